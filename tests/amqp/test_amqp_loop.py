"""The I/O thread's reading: what has come is read at once, up to a bound, and looked at once (O04, IF-19)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from jmsclient.clock import SYSTEM_CLOCK

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)

from jmsclient_amqp.batch import Batch
from jmsclient_amqp.engine.library import Condition, EngineError
from jmsclient_amqp.loop import MOST_AT_ONCE, Answer, Loop

ROOM = 1 << 14
PATIENCE = 10.0


class Engine:
    """What the loop asks of one: it swallows what comes, and chokes on a zero byte."""

    def __init__(self) -> None:
        self.incoming = bytearray(ROOM)
        self.fed = 0

    def feed(self, count: int) -> None:
        if 0 in self.incoming[:count]:
            raise EngineError(Condition("amqp:framing-error", "a zero"))
        self.fed += count

    def tick(self, now: float) -> None:
        return None

    def pending(self) -> None:
        return None

    def end_of_input(self) -> None:
        pass

    def check(self) -> None:
        pass

    def free(self) -> None:
        pass


class Owner:
    """How much the engine had at each look, and why the loop ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.looks: list[int] = []
        self.error: Exception | None = None
        self.over = threading.Event()

    def look(self) -> None:
        self.looks.append(self._engine.fed)

    def ended(self, error: Exception) -> None:
        self.error = error
        self.over.set()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MOST_AT_ONCE)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MOST_AT_ONCE)
    yield ours, theirs
    ours.close()
    theirs.close()


def run(ours: socket.socket) -> Owner:
    """A loop on this socket, until it ends."""
    engine: Any = Engine()
    owner = Owner(engine)
    loop = Loop(ours, engine, SYSTEM_CLOCK, owner, "loop-under-test")
    loop.start()
    assert owner.over.wait(PATIENCE)
    loop.join()
    return owner


def test_all_that_has_come_is_looked_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"x" * (3 * ROOM + 5))
    theirs.close()
    owner = run(ours)
    assert owner.looks[0] == 3 * ROOM + 5
    assert "cut" in str(owner.error)


def test_a_peer_that_never_pauses_is_looked_at_all_the_same(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    whole = 3 * MOST_AT_ONCE
    sending = threading.Thread(target=lambda: (theirs.sendall(b"x" * whole), theirs.close()))
    sending.start()
    owner = run(ours)
    sending.join()
    assert owner.looks[-1] == whole
    looks = [0, *owner.looks]
    assert all(after - before < MOST_AT_ONCE + ROOM for before, after in pairwise(looks))


def test_what_came_before_a_fault_is_looked_at_and_the_fault_is_the_reason(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"x" * ROOM + b"\0")
    owner = run(ours)
    assert owner.looks == [ROOM]
    assert "a zero" in str(owner.error)


@pytest.mark.parametrize("waiting", [Answer(SYSTEM_CLOCK), Batch(["1"], [b"x"], SYSTEM_CLOCK)], ids=["an answer", "a send"])
def test_s08_who_asks_as_the_thread_ends_is_told_and_not_left_to_wait(
    pair: tuple[socket.socket, socket.socket], waiting: Any
) -> None:
    """Told after the thread's last look, and before it said why it ends: a send then waited for its whole time-out."""
    engine = Engine()
    owner = Owner(engine)
    loop = Loop(pair[0], engine, SYSTEM_CLOCK, owner, "test")  # type: ignore[arg-type]
    ended = owner.ended

    def told_at_the_last_moment(error: Exception) -> None:
        loop.tell(lambda *_: pytest.fail("the thread has ended"), waiting)
        ended(error)

    owner.ended = told_at_the_last_moment  # type: ignore[method-assign]
    loop.start()
    pair[1].close()
    assert owner.over.wait(PATIENCE)
    loop.join()
    if isinstance(waiting, Batch):
        assert waiting.bell.wait(0)
        assert waiting.over
        assert waiting.error is loop.error
    else:
        with pytest.raises(EngineError):
            waiting.wait(SYSTEM_CLOCK, None, "nothing")
