"""Numbers (IF-7, IF-8, IF-9, IF-10, IF-11, IF-15): each kind of in-flight work, consumers, high-water marks, conservation."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from typing import Any

import pytest

from jmsclient import AcknowledgeMode
from jmsclient import connect as connect_public
from jmsclient.testing import ManualClock
from jmsclient.transport.administration import DestinationStatistics, PendingByKind
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, Verb
from jmsclient_embedded.states import CURRENT, PENDING, SHOWN_AS

from .conftest import Background, Client, Connect, content, hand, until


def kinds(client: Client, queue: str = "q") -> dict[str, int]:
    """Those that are not 0."""
    found = client.stats(queue).pending_by_kind
    return {one.name: value for one in fields(PendingByKind) if (value := getattr(found, one.name))}


# -- each kind of in-flight work -----------------------------------------------------------------------------------------


def test_pending_by_kind_of_each_kind(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    """Un-born, un-committed (sent, received), un-acknowledged, redelivery delay, paused; blocked sends are in none."""
    transacted = connect(url, clock, transacted=True)
    timed.admin.create_queue("q", messages_maximum=6)
    timed.send(content("unborn", delivery_time=clock.wall() + 100))
    assert kinds(timed) == {"unborn": 1}
    transacted.send("sent")
    assert kinds(timed) == {"unborn": 1, "uncommitted_sent": 1}
    timed.send("received")
    receiver, taken = transacted.take(1, hand_over=True)
    receiver.settle(taken, ACCEPT)
    assert kinds(timed) == {"unborn": 1, "uncommitted_sent": 1, "uncommitted_received": 1}
    timed.send("held")
    timed.take(1)
    assert kinds(timed)["unacknowledged"] == 1
    timed.send("delayed")
    other, arrivals = timed.take(1, hand_over=True)
    other.settle(arrivals, Outcome(verb=Verb.RETRY, delay=50.0))
    timed.session.flush(None)
    assert kinds(timed)["redelivery_delay"] == 1
    transacted2 = connect(url, clock, transacted=True)
    transacted2.send("paused")
    timed.admin.pause_insertion("q")
    transacted2.commit()
    assert kinds(timed) == {
        "unborn": 1,
        "uncommitted_sent": 1,
        "uncommitted_received": 1,
        "unacknowledged": 1,
        "redelivery_delay": 1,
        "paused": 1,
    }
    assert timed.numbers() == (0, 6)
    timed.admin.resume_insertion("q")
    sending = Background(lambda: connect(url, clock).send("blocked", room=10.0))
    until(lambda: timed.stats().blocked_senders == 1)
    found = timed.stats()
    assert (found.messages_current, found.messages_pending, found.messages_received) == (1, 5, 5)
    timed.admin.create_queue("q")
    with pytest.raises(Exception, match="quota"):
        sending.result()


def test_the_states_shown_are_those_of_the_rules(timed: Client) -> None:
    assert set(SHOWN_AS) == {
        "send",
        "send+transaction",
        "delayed",
        "paused",
        "visible",
        "ordered",
        "receive",
        "receive+transaction",
    }
    assert not CURRENT & PENDING


def test_a_stored_send_under_way_is_uncommitted(connect: Connect, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(f"embedded:?store={tmp_path / 'shop.db'}")
    client.admin.create_queue("q")
    store = client.broker.store
    assert store is not None
    write, go_on = store.write, threading.Event()

    def slow(changes: Any) -> None:
        assert go_on.wait(60)
        write(changes)

    monkeypatch.setattr(store, "write", slow)
    sending = Background(lambda: client.send("a"))
    until(lambda: kinds(client) == {"uncommitted_sent": 1})
    assert client.shown() == [("send", 0)]
    assert client.stats().messages_received == 0
    go_on.set()
    sending.result()
    assert client.numbers() == (1, 0)


# -- high, received, bytes -----------------------------------------------------------------------------------------------


def test_if_15_high_is_the_peak_of_current_and_reset_sets_it_to_now(client: Client) -> None:
    client.send("aa", "bb", "cc")
    receiver, arrivals = client.take(2)
    found = client.stats()
    assert (found.messages_high, found.bytes_high, found.messages_current) == (3, 6, 1)
    client.admin.reset_statistics("q")
    found = client.stats()
    assert (found.messages_high, found.bytes_high) == (1, 2)
    receiver.settle(arrivals, RELEASE)
    client.session.flush(None)
    assert client.stats().messages_high == 3
    assert (client.stats().messages_received, client.stats().bytes_received) == (3, 6)


def test_if_15_pending_does_not_count_for_high(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    timed.send(content("unborn", delivery_time=clock.wall() + 100))
    connect(url, clock, transacted=True).send("sent")
    assert timed.stats().messages_high == 0


def test_if_15_received_counts_each_message_once(client: Client) -> None:
    client.send("a")
    for _ in range(5):
        receiver, arrivals = client.take(1, hand_over=True)
        receiver.settle(arrivals, RETRY)
        receiver.close(None)
    client.session.flush(None)
    assert client.stats().messages_received == 1


def test_if_7_every_way_out_is_counted_once_in_messages_and_bytes(timed: Client, clock: ManualClock) -> None:
    timed.admin.create_queue("q", redelivery_limit=0, error_destination=None)
    timed.admin.create_queue("other")
    timed.send(*(content(body * 10, message_id=f"ID:{body}") for body in "amdx"))
    timed.send(content("e" * 10, expiration=clock.wall() + 5))
    receiver, arrivals = timed.take(1)
    receiver.settle(arrivals, ACCEPT)
    receiver.close(None)
    timed.admin.pause_consumption("q")
    timed.admin.move("q", "other", message_ids=["ID:m"])
    timed.admin.delete("q", message_ids=["ID:d"])
    timed.admin.resume_consumption("q")
    receiver, arrivals = timed.take(1, hand_over=True)
    receiver.settle(arrivals, RETRY)
    clock.advance(31)
    until(lambda: timed.stats().messages_expired == 1)
    found = timed.stats()
    gone = (
        found.messages_acknowledged,
        found.messages_expired,
        found.messages_moved,
        found.messages_deleted,
        found.messages_discarded,
    )
    assert gone == (1, 1, 1, 1, 1)
    assert (found.messages_received, found.bytes_received, found.bytes_removed) == (5, 50, 50)
    assert (found.messages_current, found.messages_pending, found.bytes_current, found.bytes_pending) == (0, 0, 0, 0)


def test_if_7_bytes_follow_the_messages(client: Client, connect: Connect) -> None:
    transacted = connect(transacted=True)
    transacted.send("12345")
    found = client.stats()
    assert (found.bytes_current, found.bytes_pending, found.bytes_received) == (0, 5, 0)
    transacted.commit()
    found = client.stats()
    assert (found.bytes_current, found.bytes_pending, found.bytes_received) == (5, 0, 5)
    client.take(1)
    found = client.stats()
    assert (found.bytes_current, found.bytes_pending, found.bytes_high) == (0, 5, 5)


# -- consumers -----------------------------------------------------------------------------------------------------------


def test_consumers_current_high_and_total(client: Client, connect: Connect) -> None:
    client.send("a")

    def consumers() -> tuple[int, int, int]:
        found = client.stats()
        return found.consumers_current, found.consumers_high, found.consumers_total

    first, _ = client.receiver()
    second, _ = client.receiver()
    other = connect()
    other.receiver()
    assert consumers() == (3, 3, 3)
    first.close(None)
    first.close(None)
    assert consumers() == (2, 3, 3)
    other.transport.lose()
    assert consumers() == (1, 3, 3)
    client.admin.reset_statistics("q")
    assert consumers() == (1, 1, 3)
    client.receiver()
    assert consumers() == (2, 2, 4)
    second.close(None)
    client.session.close(None)
    assert consumers() == (0, 2, 4)


def test_a_browser_is_no_consumer(client: Client) -> None:
    client.send("a")
    client.receiver(kind="browse")
    assert client.stats().consumers_total == 0


# -- owners --------------------------------------------------------------------------------------------------------------


def owners(client: Client) -> list[str | None]:
    return [one.owner for one in client.admin.messages("q")]


def test_if_8_each_message_in_receive_names_its_owner_and_no_other(client: Client) -> None:
    client.send("a", "b", "c")
    client.take(1)
    client.take(1)
    first, second, third = owners(client)[1:] + owners(client)[:1]
    assert third is None
    assert first is not None
    assert second is not None
    assert first != second


@pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=lambda mode: mode.name)
def test_if_9_a_closed_consumer_leaves_only_what_its_session_has_to_settle(client: Client, url: str, mode: AcknowledgeMode) -> None:
    client.send("a", "b", "c")
    with connect_public(url) as connection, connection.create_session(mode) as session:
        consumer = session.create_consumer("q")
        assert consumer.receive(5) is not None
        consumer.close()
        named = [one for one in owners(client) if one is not None]
        if mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK):
            assert named == []
            assert client.numbers() == (2, 0)
        else:
            assert len(named) == 1
            session.close()
            assert owners(client) == [None, None, None]
            assert client.shown() == [("visible", 1), ("visible", 0), ("visible", 0)]


@pytest.mark.parametrize("transacted", [False, True])
def test_if_10_a_dead_connection_gives_everything_back_at_once(
    timed: Client, connect: Connect, url: str, clock: ManualClock, transacted: bool
) -> None:
    timed.admin.create_queue("q", redelivery_delay=100.0)
    timed.send("a", "b", "c")
    other = connect(url, clock, transacted=transacted)
    receiver, arrivals = other.take(3)
    hand(receiver, arrivals[:2])
    receiver.settle(arrivals[:1], ACCEPT)
    other.transport.lose()
    expected = [("visible", 1), ("visible", 1), ("visible", 0)] if transacted else [("visible", 1), ("visible", 0)]
    assert timed.shown() == expected


def test_if_11_counts_rise_with_hand_overs_only(client: Client) -> None:
    """Prefetch, recall, browse and drain leave them alone."""
    client.send("a")
    for _ in range(3):
        assert client.bodies() == ["a"]
        receiver, arrivals = client.take(1)
        receiver.drain(None)
        client.admin.pause_consumption("q")
        receiver.settle(arrivals, RELEASE)
        client.admin.resume_consumption("q")
        receiver.close(None)
    assert client.shown() == [("visible", 0)]
    _, (arrival,) = client.take(1, hand_over=True)
    assert arrival.delivery_count == 1
    assert client.admin.messages("q")[0].delivery_count == 1


def test_fresh_destination_has_no_numbers(client: Client) -> None:
    client.admin.create_queue("q")
    assert client.stats() == DestinationStatistics()
    client.admin.pause_insertion("q")
    assert client.stats() == replace(DestinationStatistics(), production_paused=False, insertion_paused=True)


def test_statistics_after_a_restart_begin_with_what_is_stored(connect: Connect, tmp_path: Any) -> None:
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url)
    client.send("aa", "bb")
    receiver, arrivals = client.take(1)
    receiver.settle(arrivals, ACCEPT)
    client.transport.close(None)
    found = connect(url).stats()
    assert (found.messages_current, found.messages_received, found.messages_high, found.bytes_received) == (1, 1, 1, 2)
    assert found.messages_acknowledged == 0


def test_the_age_of_a_message_is_counted_from_when_it_was_sent(connect: Connect, tmp_path: Any, clock: ManualClock) -> None:
    """Across a restart and a step of the wall clock, and never negative."""
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url, clock)
    client.send(content("a", timestamp=clock.wall()), content("b", timestamp=clock.wall() + 100))
    clock.advance(5)
    assert [one.age for one in client.admin.messages("q")] == [5.0, 0.0]
    client.transport.close(None)
    clock.advance(10)
    assert [one.age for one in connect(url, clock).admin.messages("q")] == [15.0, 0.0]
