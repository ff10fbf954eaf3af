"""What is put while another thread has the lock is left to that one: nobody waits, and nobody can tell (RA-6, IF-31)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jmsclient.errors import DestinationPausedError, InvalidDestinationError
from jmsclient_embedded.pauses import Pause

from .conftest import Background, Client, content, in_thread, until


class Holder:
    """A thread inside a step, until `leave` is called; then the step ends with `error`, if one was given."""

    def __init__(self, client: Client, step: Callable[[], object] = bool, error: Exception | None = None) -> None:
        inside, self._go = threading.Event(), threading.Event()

        def hold() -> None:
            inside.set()
            assert self._go.wait(10)
            step()
            if error is not None:
                raise error

        self._thread = Background(lambda: client.broker.steps.perform(hold))
        assert inside.wait(30)

    def leave(self) -> None:
        self._go.set()
        self._thread.result()


def put(client: Client, *bodies: str, queue: str = "q") -> None:
    """Send from another thread than the main one, whose sends are carried out by the broker's."""
    in_thread(lambda: client.send(*bodies, queue=queue))


def test_a_put_waits_for_nobody_and_is_carried_out_by_whoever_is_inside(client: Client) -> None:
    put(client, "made")
    holder = Holder(client)
    put(client, "a", "b")
    put(client, "c")
    assert client.broker.granting.lines["q"].queue.visible == 1
    holder.leave()
    assert client.broker.granting.lines["q"].queue.visible == 4  # no further step was made
    assert client.bodies() == ["made", "a", "b", "c"]
    assert client.stats().messages_received == 4


def test_ra_6_several_queues_keep_the_order_in_which_messages_were_put(client: Client) -> None:
    for queue in ("q", "r"):
        put(client, "made", queue=queue)
    holder = Holder(client)
    for queue, body in (("q", "1"), ("q", "2"), ("r", "3"), ("q", "4"), ("q", "5")):
        put(client, body, queue=queue)
    holder.leave()
    assert (client.bodies("q"), client.bodies("r")) == (["made", "1", "2", "4", "5"], ["made", "3"])
    sequences = [[one.sequence for one in client.broker.granting.lines[queue].queue.browse()] for queue in ("q", "r")]
    assert sequences == [[1, 3, 4, 6, 7], [2, 5]]


def test_what_was_left_is_pushed_to_whoever_waits_for_it(client: Client) -> None:
    put(client, "made")
    _, sink = client.receiver(demand=5)
    sink.wait(1)
    holder = Holder(client)
    put(client, "a")
    assert sink.bodies == ["made"]
    holder.leave()
    sink.wait(2)
    assert sink.bodies == ["made", "a"]


def test_what_was_left_is_pushed_though_the_step_failed(client: Client) -> None:
    """The step that begins with what was left, and the one that ends with it."""
    put(client, "made")
    _, sink = client.receiver(demand=5)
    holder = Holder(client, error=InvalidDestinationError("no such thing"))
    put(client, "a")
    with pytest.raises(InvalidDestinationError):
        holder.leave()
    sink.wait(2)
    client.broker._left.append((client.broker.granting.lines["q"], [content("b")]))
    with pytest.raises(InvalidDestinationError):
        in_thread(lambda: client.admin.statistics("nowhere"))
    sink.wait(3)
    assert sink.bodies == ["made", "a", "b"]


def test_whoever_put_something_finds_it_there(client: Client) -> None:
    put(client, "made")
    holder = Holder(client)
    found: list[int] = []

    def put_and_look() -> None:
        client.send("a")
        found.append(client.admin.statistics("q").messages_current)

    looking = Background(put_and_look)
    until(lambda: client.broker._left)
    holder.leave()
    looking.result()
    assert found == [2]


def test_if_31_a_pause_that_returned_lets_nothing_in(client: Client) -> None:
    """What is put while a pause begins is there when that returns; what comes after it is refused, though somebody is inside."""
    put(client, "made")
    line = client.broker.granting.lines["q"]
    pausing = Holder(client, lambda: client.broker.pausing.change(line.flags, [line], line.destination, Pause.PRODUCTION, True))
    put(client, "before")
    pausing.leave()
    assert line.queue.visible == 2
    holder = Holder(client)
    assert not client.broker._leave(line, [content("after")])
    refused = Background(lambda: client.send("after"))
    holder.leave()
    with pytest.raises(DestinationPausedError):
        refused.result()
    assert client.bodies() == ["made", "before"]


def test_what_is_put_while_its_queue_is_removed_comes_into_the_next_of_its_name(client: Client) -> None:
    client.admin.create_queue("q")
    line = client.broker.granting.lines["q"]
    holder = Holder(client, lambda: client.broker.catalogue.delete(line.destination, client.broker.discard_all))
    put(client, "a")
    holder.leave()
    assert client.bodies() == ["a"]
    assert client.broker.granting.lines["q"] is not line


def test_what_cannot_be_put_does_no_harm_to_whoever_is_inside(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    put(client, "made")
    client.broker._left.append((client.broker.granting.lines["q"], [None]))  # type: ignore[list-item]
    assert client.stats().messages_current == 1
    assert "could not be put" in caplog.text


def test_a_put_waits_where_too_many_were_left(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jmsclient_embedded.broker.MOST_PUTS_AHEAD", 2)
    put(client, "made")
    holder = Holder(client)
    put(client, "a")
    put(client, "b")
    third = Background(lambda: client.send("c"))
    until(lambda: len(client.broker._left) == 2)
    assert third.running
    holder.leave()
    third.result()
    assert client.bodies() == ["made", "a", "b", "c"]
