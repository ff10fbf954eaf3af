"""The parts of a `send_many` and their one error, without a provider (IF-30)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jmsclient.errors import ConnectionLostError, IllegalStateError, JmsClientError, ResourceAllocationError, SendError
from jmsclient.jms.ahead import Ahead
from jmsclient.message import MessageKind, PlainContent
from jmsclient.transport.contract import Begun, Receipt


class Part(Begun):
    """One that ends as it is told to."""

    def __init__(self, ids: Sequence[str], error: JmsClientError | None, size: int) -> None:
        self.ids = ids
        self.size = size
        self.error = error
        self.known = False
        self.stopped = False

    @property
    def failed(self) -> bool:
        return self.known and self.error is not None

    def finish(self, *, room_deadline: float | None, confirm_timeout: float | None) -> list[Receipt]:
        if self.error is not None:
            raise self.error
        return [Receipt(one) for one in self.ids]

    def stop(self) -> None:
        self.stopped = True


class Line:
    """A sender of two-message parts `a1 a2`, `b1 b2`, …; `errors` by the letter."""

    def __init__(self, **errors: JmsClientError) -> None:
        self.errors = errors
        self.parts: dict[str, Part] = {}
        self.sent: list[str] = []
        self.most = 1000
        self.ahead = Ahead(send=self._send, begin=self._begin, finish=self._finish)

    def send(self, letter: str) -> list[str]:
        contents = [
            PlainContent(kind=MessageKind.TEXT, body="x", message_id=f"{letter}{number}", destination="q") for number in (1, 2)
        ]
        return self.ahead.send(contents)

    def _begin(self, part: Sequence[PlainContent], under_way: int) -> Begun | None:
        ids = [str(one.message_id) for one in part]
        letter = ids[0][0]
        error = self.errors.get(letter)
        if isinstance(error, IllegalStateError):
            raise error
        if under_way + 10 > self.most:
            return None
        made = self.parts[letter] = Part(ids, error, 10)
        return made

    def _finish(self, part: Begun) -> Sequence[Receipt]:
        return part.finish(room_deadline=None, confirm_timeout=None)

    def _send(self, part: Sequence[PlainContent]) -> Sequence[Receipt]:
        self.sent += [str(one.message_id) for one in part]
        return [Receipt(str(one.message_id)) for one in part]


def fates(error: SendError) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    return error.confirmed, error.in_doubt, error.unsent


def test_ids_come_in_order_a_part_late() -> None:
    line = Line()
    assert [line.send(letter) for letter in "abc"] == [[], ["a1", "a2"], ["b1", "b2"]]
    assert line.ahead.finish() == ["c1", "c2"]
    assert line.ahead.finish() == []


def test_too_much_at_once_goes_one_after_the_other() -> None:
    line = Line()
    line.most = 15
    assert [line.send(letter) for letter in "ab"] == [[], ["a1", "a2", "b1", "b2"]]
    assert line.sent == ["b1", "b2"]


def test_the_part_behind_one_that_failed_is_stopped_and_named() -> None:
    cause = ConnectionLostError("gone")
    failed = SendError("refused", confirmed=["a1"], unsent=["a2"])
    failed.__cause__ = cause
    line = Line(a=failed)
    line.send("a")
    with pytest.raises(SendError, match="refused") as caught:
        line.send("b")
    assert fates(caught.value) == (("a1", "b1", "b2"), (), ("a2",))
    assert caught.value.__cause__ is cause
    assert line.parts["b"].stopped
    assert line.ahead.finish() == [], "nothing is under way any more"


def test_both_fail() -> None:
    line = Line(a=SendError("late", in_doubt=["a1", "a2"]), b=SendError("later", confirmed=["b1"], unsent=["b2"]))
    line.send("a")
    with pytest.raises(SendError, match="late") as caught:
        line.send("b")
    assert fates(caught.value) == (("b1",), ("a1", "a2"), ("b2",))


def test_where_nothing_was_sent_the_reason_stays_what_it_is() -> None:
    line = Line(a=ResourceAllocationError("no room"), b=ResourceAllocationError("none either"))
    line.send("a")
    with pytest.raises(ResourceAllocationError, match="no room"):
        line.send("b")


def test_where_only_the_part_behind_was_sent_it_is_named() -> None:
    line = Line(a=ResourceAllocationError("no room"))
    line.send("a")
    with pytest.raises(SendError, match="no room") as caught:
        line.send("b")
    assert fates(caught.value) == (("b1", "b2"), (), ("a1", "a2"))


def test_what_is_known_to_have_failed_is_not_followed() -> None:
    line = Line(a=SendError("refused", unsent=["a1", "a2"]))
    line.send("a")
    line.parts["a"].known = True
    with pytest.raises(SendError) as caught:
        line.send("b")
    assert fates(caught.value) == ((), (), ("a1", "a2", "b1", "b2"))
    assert "b" not in line.parts


@pytest.mark.parametrize("before", [None, SendError("refused", unsent=["a1", "a2"])], ids=["well", "failed"])
def test_what_cannot_begin_waits_for_what_is_under_way(before: SendError | None) -> None:
    line = Line(**({} if before is None else {"a": before}), b=IllegalStateError("closed"))
    line.send("a")
    with pytest.raises(IllegalStateError if before is None else SendError):
        line.send("b")
    assert line.ahead.finish() == []


def test_a_stop_leaves_nothing_to_wait_for() -> None:
    line = Line()
    line.send("a")
    line.ahead.stop()
    assert line.parts["a"].stopped
    assert line.ahead.finish() == []
