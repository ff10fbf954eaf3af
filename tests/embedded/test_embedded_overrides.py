"""What a destination changes of what producers say; priorities; thresholds and their events."""

from __future__ import annotations

from typing import Any

import pytest

from jmsclient.events import Event
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY

from .conftest import Client, Connect, content, until


def lasting(client: Client, seconds: float, body: str = "a", **settings: Any) -> Any:
    return content(body, expiration=client.clock.wall() + seconds, **settings)


# -- overrides -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["queue:///o", "topic:///o"])
@pytest.mark.parametrize(
    ("setting", "value", "header", "expected"),
    [
        ("time_to_deliver_override", 10.0, "delivery_time", 10.0),
        ("time_to_deliver_override", 0.0, "delivery_time", None),
        ("time_to_live_override", 20.0, "expiration", 20.0),
        ("time_to_live_override", 0.0, "expiration", None),
        ("priority_override", 9, "priority", 9),
        ("priority_override", 0, "priority", 0),
        ("delivery_mode_override", "persistent", "persistent", True),
        ("delivery_mode_override", "non_persistent", "persistent", False),
    ],
)
def test_overrides_change_what_the_producer_said(
    timed: Client, clock: ManualClock, where: str, setting: str, value: Any, header: str, expected: Any
) -> None:
    kind = where.partition(":")[0]
    getattr(timed.admin, f"create_{kind}")("o", **{setting: value})
    _, sink = timed.receiver(where, kind=kind, demand=2)
    wall = clock.wall()
    for persistent in (True, False):
        timed.send(content("a", expiration=wall + 500, delivery_time=wall + 1, priority=3, persistent=persistent), queue=where)
    clock.advance(11)
    sink.wait(2)
    for arrival in sink.arrivals:
        found = arrival.content.header(header)
        assert found == (wall + expected if header in ("delivery_time", "expiration") and expected else expected)
        assert arrival.persistent is arrival.content.header("persistent")


def test_overrides_of_the_template_count_at_the_first_send(connect: Connect, url: str, clock: ManualClock) -> None:
    client = connect(f"{url}?priority_override=7&time_to_live_override=5", clock)
    client.send("a")
    _, (arrival,) = client.take(1)
    assert (arrival.content.header("priority"), arrival.expires_at) == (7, clock.wall() + 5)


def test_a_delivery_mode_override_decides_what_is_stored(connect: Connect, tmp_path: Any) -> None:
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url)
    client.admin.create_queue("kept", delivery_mode_override="persistent")
    client.admin.create_queue("lost", delivery_mode_override="non_persistent")
    for queue in ("kept", "lost"):
        client.send(content("p"), content("n", persistent=False), queue=queue)
    client.transport.close(None)
    again = connect(url)
    assert (again.bodies("kept"), again.bodies("lost")) == (["p", "n"], [])


def test_a_changed_override_counts_for_later_sends_only(timed: Client) -> None:
    timed.send(content("a", priority=1))
    timed.admin.create_queue("q", priority_override=0)
    timed.send(content("b", priority=9))
    assert timed.bodies() == ["a", "b"]


# -- priorities ----------------------------------------------------------------------------------------------------------


def test_all_ten_priorities_highest_first(client: Client) -> None:
    client.send(*(content(f"{priority}{turn}", priority=priority) for turn in "ab" for priority in range(10)))
    assert client.bodies() == [f"{priority}{turn}" for priority in reversed(range(10)) for turn in "ab"]


def test_what_comes_back_stands_in_its_place_among_its_priority(client: Client) -> None:
    client.send(content("1", priority=5), content("2", priority=5), content("3", priority=5))
    receiver, arrivals = client.take(2, hand_over=True)
    receiver.settle(arrivals[1:], RETRY)
    receiver.settle(arrivals[:1], RETRY)
    client.send(content("high", priority=9), content("4", priority=5))
    assert client.bodies() == ["high", "1", "2", "3", "4"]


# -- thresholds ----------------------------------------------------------------------------------------------------------


def crossings(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.name, event.fields["what"]) for event in events if event.name.startswith("threshold")]


def consume(client: Client, number: int) -> None:
    receiver, arrivals = client.take(number)
    receiver.settle(arrivals, ACCEPT)
    receiver.close(None)
    client.session.flush(None)


@pytest.mark.parametrize("what", ["messages", "bytes"])
def test_thresholds_tell_once_each_way(client: Client, events: list[Event], what: str) -> None:
    """Armed and disarmed: high at 4, low at 2; nothing in between is told again."""
    scale = 1 if what == "messages" else 10
    limits: dict[str, Any] = {f"{what}_threshold_high": 4 * scale, f"{what}_threshold_low": 2 * scale}
    client.admin.create_queue("q", **limits)
    high, low = ("threshold_high", what), ("threshold_low", what)
    body = "x" * 10

    def told(expected: list[tuple[str, str]]) -> None:
        until(lambda: crossings(events) == expected)

    client.send(body, body, body)
    told([])
    client.send(body)
    told([high])
    consume(client, 1)
    client.send(body, body)
    told([high])
    consume(client, 2)
    told([high])
    consume(client, 1)
    told([high, low])
    client.send(body)
    consume(client, 1)
    told([high, low])
    client.send(body, body)
    told([high, low, high])
    (event,) = [one for one in events[-1:] if one.name == "threshold_high"]
    assert event.fields["count"] == 4 * scale


def test_a_high_threshold_alone_ends_below_itself(client: Client, events: list[Event]) -> None:
    client.admin.create_queue("q", messages_threshold_high=2)
    client.send("a", "b")
    consume(client, 1)
    until(lambda: [name for name, _ in crossings(events)] == ["threshold_high", "threshold_low"])


def test_a_threshold_that_is_set_on_a_full_queue_is_told(client: Client, events: list[Event]) -> None:
    client.send("a", "b", "c")
    client.admin.create_queue("q", messages_threshold_high=2)
    until(lambda: crossings(events) == [("threshold_high", "messages")])


def test_thresholds_follow_each_way_in_and_out(timed: Client, connect: Connect, url: str, events: list[Event]) -> None:
    """Commit, due time, resumed insertion, release, expiry, delete: current is what counts."""
    timed.admin.create_queue("q", messages_threshold_high=1)
    clock = timed.clock
    assert isinstance(clock, ManualClock)
    transacted = connect(url, clock, transacted=True)
    ups = downs = 0

    def expect() -> None:
        until(lambda: [name for name, _ in crossings(events)].count("threshold_high") == ups)
        until(lambda: [name for name, _ in crossings(events)].count("threshold_low") == downs)

    def empty() -> None:
        timed.admin.pause_consumption("q")
        timed.admin.drain("q")
        timed.admin.resume_consumption("q")

    transacted.send("a")
    expect()
    transacted.commit()
    ups += 1
    expect()
    empty()
    downs += 1
    expect()
    timed.send(content("unborn", delivery_time=clock.wall() + 5))
    expect()
    clock.advance(6)
    ups += 1
    expect()
    receiver, arrivals = timed.take(1)
    downs += 1
    expect()
    receiver.settle(arrivals, RELEASE)
    ups += 1
    expect()
    empty()
    downs += 1
    expect()
    timed.send(lasting(timed, 5))
    ups += 1
    expect()
    clock.advance(31)
    downs += 1
    expect()
    timed.admin.pause_insertion("q")
    timed.admin.resume_insertion("q")
    expect()
