"""The contract through the socket of a store, where it is more than the conformance checks: who saw what, whose end means what."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jmsclient.destination import Queue
from jmsclient.errors import (
    InvalidDestinationError,
    MessageFormatError,
    RequestTimeoutError,
    ResourceAllocationError,
    SendError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsclient.transport.contract import ACCEPT, Arrival, Outcome, Receiver, ReceiverSpec, Verb
from jmsclient_embedded.attach import frames, link, pushing, remote

from .attached import Attached, holding, threads_named, wait_until
from .conftest import PATIENCE, Client, Listener, content, in_thread


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def holder(store: Path) -> Iterator[Client]:
    with holding(store) as client:
        yield client


def test_if_11_a_hand_over_is_in_the_journal_when_it_returns(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("seen", "unseen")
    receiver, arrivals = attached.take(2)
    receiver.handing_over(arrivals[:1])
    journal = holder.broker.store.journal  # type: ignore[union-attr]
    assert list(journal._open.values()) == [1]
    attached.cut()
    wait_until(lambda: sorted(holder.shown()) == [("visible", 0), ("visible", 1)])


def test_if_11_of_a_non_persistent_message_too_the_holder_knows_whether_it_was_seen(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("seen", "unseen", "called off", persistent=False)
    _, arrivals = attached.take(3)
    arrivals[0].handed_over = True
    arrivals[2].handed_over = True
    arrivals[2].handed_over = False
    attached.session.flush(None)
    attached.cut()
    wait_until(lambda: holder.shown() == [("visible", 1), ("visible", 0), ("visible", 0)])


def test_if_11_a_hand_over_that_was_struck_is_none(holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IF-40: an exception from a signal handler while the holder is asked; the application never sees the message."""
    attached = Attached(store)
    attached.send("a")
    receiver, arrivals = attached.take(1)
    with monkeypatch.context() as patched:
        patched.setattr(link.Answer, "wait", _struck)
        with pytest.raises(KeyboardInterrupt):
            receiver.handing_over(arrivals)
    attached.session.flush(None)
    attached.cut()
    wait_until(lambda: holder.shown() == [("visible", 0)])


def _struck(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_holder_that_does_not_answer_is_left_alone_at_the_deadline(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a")
    attached.take(1)
    with holder.broker.steps.lock, pytest.raises(RequestTimeoutError):  # nothing is done there meanwhile
        attached.transport.close(attached.transport.link.clock.deadline(0.02))
    wait_until(lambda: holder.shown() == [("visible", 0)])
    wait_until(lambda: not threads_named("embedded-attached"))
    assert attached.listener.errors == []


def test_if_10_what_a_client_held_is_back_when_its_link_is_cut(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send(*map(str, range(20)))
    attached.take(20)
    assert holder.shown() == [("receive", 0)] * 20
    attached.cut()
    assert attached.listener.heard.wait(PATIENCE)
    wait_until(lambda: holder.shown() == [("visible", 0)] * 20)
    assert len(attached.listener.errors) == 1


def test_a_transaction_is_one_through_the_socket(holder: Client, store: Path) -> None:
    attached = Attached(store, transacted=True)
    holder.send("old")
    receiver, arrivals = attached.take(1)
    receiver.handing_over(arrivals)
    receiver.settle(arrivals, ACCEPT)
    attached.send("new")
    assert sorted(state for state, _ in holder.shown()) == ["receive+transaction", "send+transaction"]
    attached.session.rollback(redelivery_delay=0.0, deadline=None)
    assert holder.shown() == [("visible", 1)]
    attached.send("new")
    attached.session.commit(None)
    assert holder.shown() == [("visible", 1), ("visible", 0)]


def test_if_28_a_lost_commit_is_in_doubt_and_one_after_the_loss_is_rolled_back(holder: Client, store: Path) -> None:
    attached = Attached(store, transacted=True)
    attached.send("a")
    attached.transport.link.wire.put(lambda: _cut(attached))
    with pytest.raises(TransactionInDoubtError):
        attached.session.commit(None)
    assert attached.listener.heard.wait(PATIENCE)
    with pytest.raises(TransactionRolledBackError):
        attached.session.commit(None)
    wait_until(lambda: holder.shown() == [])


def _cut(attached: Attached) -> bytes:
    attached.cut()
    return b""


def test_a_send_whose_link_is_lost_is_in_doubt(holder: Client, store: Path) -> None:
    attached = Attached(store)
    sender = attached.session.open_sender(Queue("q"), None)
    attached.transport.link.wire.put(lambda: _cut(attached))
    with pytest.raises(SendError) as caught:
        sender.send([content("a", message_id="ID:a")], room_deadline=None, confirm_timeout=PATIENCE)
    assert caught.value.in_doubt == ("ID:a",)


def test_a_send_without_room_waits_and_raises_what_the_holder_raises(holder: Client, store: Path) -> None:
    """IF-31."""
    holder.admin.create_queue("q", messages_maximum=1)
    attached = Attached(store)
    attached.send("a")
    sender = attached.session.open_sender(Queue("q"), None)
    clock = attached.transport.link.clock
    with pytest.raises(ResourceAllocationError):
        sender.send([content("b")], room_deadline=clock.deadline(0.05), confirm_timeout=PATIENCE)
    waiting = threading.Thread(target=lambda: attached.send("c"))
    waiting.start()
    wait_until(lambda: holder.admin.statistics("q").blocked_senders == 1)
    receiver, arrivals = attached.take(1)  # another call of the same client is not held up
    receiver.settle(arrivals, ACCEPT)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    assert [state for state, _ in holder.shown()] == ["visible"]


def test_a_client_that_dies_while_its_send_waits_for_room_waits_no_more(holder: Client, store: Path) -> None:
    holder.admin.create_queue("q", messages_maximum=1)
    holder.send("full")
    attached = Attached(store)

    def send() -> None:
        with pytest.raises(SendError):
            attached.send("a")

    waiting = threading.Thread(target=lambda: in_thread(send))
    waiting.start()
    wait_until(lambda: holder.admin.statistics("q").blocked_senders == 1)
    attached.cut()
    waiting.join(PATIENCE)
    wait_until(lambda: holder.admin.statistics("q").blocked_senders == 0)


def test_large_sends_and_deliveries_go_in_portions(holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SEND_BYTES", 1000)
    monkeypatch.setattr(pushing, "BATCH_BYTES", 1500)
    attached = Attached(store)
    bodies = [str(number) * 300 for number in range(30)]
    attached.send(*bodies)
    receiver, arrivals = attached.take(30)
    assert [one.content.body() for one in arrivals] == bodies
    assert [one.size for one in arrivals] == [len(body) for body in bodies]
    receiver.settle(arrivals, ACCEPT)


def test_a_send_that_fails_in_its_second_portion_says_what_became_of_each(
    holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "SEND_BYTES", 1000)
    holder.admin.create_queue("q", messages_maximum=5)
    attached = Attached(store)
    sender = attached.session.open_sender(Queue("q"), None)
    messages = [content("x" * 300, message_id=f"ID:{number}") for number in range(8)]
    with pytest.raises(SendError) as caught:
        sender.send(messages, room_deadline=attached.transport.link.clock.deadline(0.05), confirm_timeout=PATIENCE)
    ids = [f"ID:{number}" for number in range(8)]
    assert caught.value.confirmed == tuple(ids[:5])
    assert caught.value.unsent == tuple(ids[5:])
    assert holder.shown() == [("visible", 0)] * 5


def test_a_message_too_long_for_a_frame_is_not_sent(holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attached = Attached(store)
    monkeypatch.setattr(frames, "FRAME_LIMIT", 100_000)
    with pytest.raises(MessageFormatError, match="at most 100000"):
        attached.send("x" * 100_000)
    attached.send("a")
    assert holder.shown() == [("visible", 0)]


def test_a_message_too_long_for_a_frame_closes_the_receiver_that_asks_for_it(
    holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not come again and again, and the others of the client go on."""
    attached = Attached(store)
    holder.send("x" * 100_000)
    errors: list[Exception | None] = []
    heard = threading.Event()
    monkeypatch.setattr(frames, "FRAME_LIMIT", 100_000)
    receiver, sink = attached.receiver()

    def closed(error: Exception | None) -> None:
        errors.append(error)
        heard.set()

    sink.closed = closed  # type: ignore[method-assign]
    receiver.request(1)
    assert heard.wait(PATIENCE)
    assert isinstance(errors[0], MessageFormatError)
    assert sink.arrivals == []
    attached.send("a", queue="other")
    attached.take(1, "other")
    attached.session.close(None)
    assert holder.shown() == [("visible", 0)]


def test_a_recall_crosses_the_socket(holder: Client, store: Path) -> None:
    """IF-20: a consumption pause takes back what the application has not seen."""
    attached = Attached(store)
    attached.send("a", "b")
    receiver, sink = attached.receiver(demand=2)
    sink.wait(2)
    recalled = threading.Event()
    sink.recall = recalled.set  # type: ignore[method-assign]
    holder.admin.pause_consumption("q")
    assert recalled.wait(PATIENCE)
    receiver.settle(sink.arrivals, Outcome(verb=Verb.RELEASE))
    attached.session.flush(None)
    assert holder.shown() == [("visible", 0)] * 2


def test_browsing_through_the_socket_changes_nothing(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a", "b")
    receiver, sink = attached.receiver(demand=10, kind="browse")
    receiver.drain(None)
    assert sink.bodies == ["a", "b"]
    assert all(arrival.settled for arrival in sink.arrivals)
    receiver.close(None)
    assert holder.shown() == [("visible", 0)] * 2


def test_temporary_destinations_and_subscriptions_belong_to_the_attached_connection(holder: Client, store: Path) -> None:
    attached, other = Attached(store, client_id="shop"), Attached(store)
    temporary = attached.session.create_temporary("queue", None)
    spec = ReceiverSpec(destination=temporary)
    with pytest.raises(InvalidDestinationError):
        other.session.open_receiver(spec, Listener(), None)  # type: ignore[arg-type]
    attached.session.delete_temporary(temporary, None)
    with pytest.raises(InvalidDestinationError, match="news"):
        attached.session.unsubscribe("news", None)


def test_a_sink_may_ask_while_it_is_being_called(holder: Client, store: Path) -> None:
    attached = Attached(store)
    seen: list[str] = []
    receivers: list[Receiver] = []

    def ask(batch: list[Arrival]) -> None:
        receivers[0].handing_over(batch)
        receivers[0].settle(batch, ACCEPT)
        attached.session.flush(None)
        seen.extend(attached.send(*[f"answer to {one.content.body()}" for one in batch], queue="answers"))

    receiver, _ = attached.receiver(on_batch=ask)
    receivers.append(receiver)
    receiver.request(10)
    attached.send("a", "b", "c")
    wait_until(lambda: len(seen) == 3)
    assert holder.shown() == []
    assert holder.shown("answers") == [("visible", 0)] * 3


def test_what_arrives_while_a_receiver_closes_goes_back_unseen(holder: Client, store: Path) -> None:
    attached = Attached(store)
    entered, gate = threading.Event(), threading.Event()

    def block(batch: list[Arrival]) -> None:
        entered.set()
        gate.wait(PATIENCE)

    receiver, sink = attached.receiver(on_batch=block)
    receiver.request(10)
    attached.send("a")
    assert entered.wait(PATIENCE)
    attached.send("b", "c")
    closing = threading.Thread(target=lambda: receiver.close(None))
    closing.start()
    wait_until(lambda: receiver._ended)
    gate.set()
    closing.join(PATIENCE)
    assert sink.bodies == ["a"]
    attached.session.flush(None)
    assert holder.shown() == [("visible", 0), ("visible", 0), ("receive", 0)]


def test_what_waits_gives_up_at_its_deadline_and_the_link_goes_on(holder: Client, store: Path) -> None:
    attached = Attached(store)
    entered, gate = threading.Event(), threading.Event()

    def block(batch: list[Arrival]) -> None:
        entered.set()
        gate.wait(PATIENCE)

    receiver, _ = attached.receiver(on_batch=block, demand=1)
    attached.send("a")
    assert entered.wait(PATIENCE)
    with pytest.raises(RequestTimeoutError):
        receiver.drain(attached.transport.link.clock.deadline(0.02))
    gate.set()
    receiver.drain(None)
    attached.session.flush(None)


def test_many_clients_at_the_same_time_conserve_every_message(holder: Client, store: Path) -> None:
    """IF-7: six clients send and take, two of them are cut now and then."""
    total, lock = 300, threading.Lock()
    taken: list[str] = []

    def sender(number: int) -> None:
        attached = Attached(store)
        for start in range(0, total, 10):
            attached.send(*[f"{number}-{start + one}" for one in range(10)])
        attached.transport.close(None)

    def taker(number: int) -> None:
        rounds = 0
        while len(taken) < 2 * total:
            attached = Attached(store)
            rounds += 1
            receiver, sink = attached.receiver(demand=40)
            wait_until(lambda: sink.arrivals or len(taken) >= 2 * total)  # noqa: B023
            arrivals = sink.arrivals[:20]
            with lock:
                receiver.handing_over(arrivals)
                receiver.settle(arrivals, ACCEPT)
                attached.session.flush(None)
                taken.extend(str(one.content.body()) for one in arrivals)
            if (rounds + number) % 2:
                attached.cut()
            else:
                attached.transport.close(None)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(2) for one in (sender, taker)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(taken) == sorted(f"{number}-{one}" for number in range(2) for one in range(total))
    wait_until(lambda: holder.shown() == [])
