"""Quick handlers run on the pipeline's own thread; where one is not, another thread takes the pipeline over (TR-62, TR-40, O01)."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from jmsclient import Message, Worker
from jmsclient.history import State, open_history
from jmsclient.testing import ScriptedBackend
from jmsclient.trigger import handler_threads, quick
from jmsclient.trigger.handler_threads import HandlerThreads
from jmsclient.trigger.quick import IN_A_ROW, Quick

Q = "queue:///orders"
Until = Callable[..., None]
LONG = 60.0


@pytest.fixture(autouse=True)
def _any_group_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is; what is not quick is found by the watcher."""
    monkeypatch.setattr(quick, "GROUP", LONG)


class Giver:
    """Hands groups of calls to handler threads, as a pipeline does: it begins on a thread of its own."""

    def __init__(self, number: int, groups: list[list[Callable[[], None]]]) -> None:
        self.groups = iter(groups)
        self.left = 0
        self.ran: Counter[Any] = Counter()
        self.at_once = self.most_at_once = self.taken_over = 0
        self.where: list[str] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._back = threading.Event()
        self.finished: deque[Any] = deque()
        self.threads = HandlerThreads("test", number, self._execute, self.finished, self._back.set, self._go_on)
        self.first = threading.Thread(target=self._begin, name="giver", daemon=True)

    def begin(self) -> None:
        self.threads.begin()
        self.first.start()

    def _begin(self) -> None:
        if not self._give():
            self.threads.serve()

    def _go_on(self) -> bool:
        self.taken_over += 1
        return self._give()

    def _give(self) -> bool:
        while True:
            self._back.clear()
            while self.finished:
                self.finished.popleft()
                self.left -= 1
            if self.left:
                self._back.wait(LONG)
                continue
            self.threads.all_back()
            group = next(self.groups, None)
            if group is None:
                self.threads.stop(5.0)
                self.ended.set()
                return True
            self.left = len(group)
            if not self.threads.quick.now:
                self.threads.start(group)  # type: ignore[arg-type]
            elif not self.threads.run_here(group):  # type: ignore[arg-type]
                return False

    def _execute(self, call: Any) -> None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.ran[call] += 1
            self.where.append(threading.current_thread().name)
        call()
        with self._lock:
            self.at_once -= 1


@pytest.fixture
def threads_before() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 30
    while (left := [one for one in threading.enumerate() if one not in before]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


def calls(number: int) -> list[Callable[[], None]]:
    """Each its own."""
    return [lambda one=one: None for one in range(number)]  # type: ignore[misc]


@pytest.mark.usefixtures("threads_before")
def test_tr62_after_some_quick_groups_the_next_ones_are_run_by_the_thread_that_has_them() -> None:
    groups = [calls(3) for _ in range(IN_A_ROW + 5)]
    giver = Giver(2, groups)
    giver.begin()
    assert giver.ended.wait(LONG)
    assert giver.taken_over == 0
    assert set(giver.ran.values()) == {1}
    assert "giver" not in giver.where[: 3 * IN_A_ROW]
    assert giver.where[3 * IN_A_ROW :] == ["giver"] * 15


@pytest.mark.usefixtures("threads_before")
def test_tr62_a_call_that_is_not_quick_keeps_nobody_waiting_and_no_more_run_at_once_than_may() -> None:
    go_on, behind, later = threading.Event(), threading.Event(), threading.Event()
    slow = [*calls(1), lambda: _waited(go_on), behind.set]
    groups = [*[calls(3) for _ in range(IN_A_ROW)], slow, [lambda: _waited(later), go_on.set]]
    giver = Giver(2, groups)
    giver.begin()
    assert behind.wait(LONG), "it ran while the one before it does"
    assert giver.taken_over == 1
    go_on.set()
    later.set()
    assert giver.ended.wait(LONG)
    assert set(giver.ran.values()) == {1}
    assert giver.most_at_once == 2
    giver.first.join(LONG)
    assert not giver.first.is_alive(), "it was a handler thread, and ended with them"


@pytest.mark.usefixtures("threads_before")
def test_tr62_whoever_changed_places_as_many_run_at_once_as_before() -> None:
    go_on, behind, both = threading.Event(), threading.Event(), threading.Barrier(2, timeout=LONG)
    groups = [*[calls(2) for _ in range(IN_A_ROW)], [lambda: _waited(go_on), behind.set]]
    meet = [lambda: bool(both.wait()), lambda: bool(both.wait())]
    giver = Giver(2, [*groups, meet])  # type: ignore[list-item]
    giver.begin()
    assert behind.wait(LONG)
    go_on.set()
    assert giver.ended.wait(LONG)
    assert giver.taken_over == 1
    assert not both.broken
    assert giver.where.count("giver") == 2


@pytest.mark.usefixtures("threads_before")
def test_calls_of_which_each_is_quick_are_left_to_the_thread_that_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_threads, "LOOK", 0.4)
    giver = Giver(2, [*[calls(2) for _ in range(IN_A_ROW)], [lambda: time.sleep(0.1) for _ in range(12)]])
    giver.begin()
    assert giver.ended.wait(LONG)
    assert giver.taken_over == 0


@pytest.mark.usefixtures("threads_before")
def test_tr62_whoever_is_slow_and_however_often_each_call_is_made_once() -> None:
    chance = random.Random(62)
    slow: list[Callable[[], None]] = []

    def call(seconds: float) -> Callable[[], None]:
        made = (lambda: time.sleep(seconds)) if seconds else (lambda: None)
        slow.extend([made] if seconds else [])
        return made

    groups = [[call(0.03 if chance.random() < 0.01 else 0.0) for _ in range(chance.randint(1, 8))] for _ in range(400)]
    giver = Giver(4, groups)
    giver.begin()
    assert giver.ended.wait(LONG)
    assert sum(giver.ran.values()) == sum(map(len, groups))
    assert set(giver.ran.values()) == {1}
    assert giver.most_at_once <= 4
    assert giver.taken_over > 0
    assert slow


@pytest.mark.usefixtures("threads_before")
def test_o01_a_thread_whose_place_was_taken_and_that_comes_back_after_the_end_ends_too() -> None:
    go_on, stopped = threading.Event(), threading.Event()
    threads: HandlerThreads

    def taken_over() -> bool:
        threads.stop(0.0)
        stopped.set()
        return True

    threads = HandlerThreads("test", 2, lambda call: call(), deque(), lambda: None, taken_over)  # type: ignore[operator]
    threads.begin()
    for _ in range(IN_A_ROW):
        threads.quick.given()
        threads.all_back()
    result: list[bool] = []

    def first() -> None:
        result.append(threads.run_here([lambda: _waited(go_on)]))  # type: ignore[list-item]
        threads.serve()

    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    assert stopped.wait(LONG)
    go_on.set()
    thread.join(LONG)
    assert result == [False]


@pytest.mark.usefixtures("threads_before")
def test_tr62_a_handler_thread_that_has_not_looked_since_its_last_call_takes_nothing_from_the_pipelines_group() -> None:
    """It would be one call at once too many, with all who could watch inside calls."""
    number, go_on, late = 2, threading.Event(), threading.Event()
    inside, lock, most = [0], threading.Lock(), [0]
    begun = threading.Semaphore(0)
    finished: deque[Any] = deque()
    came_back, done = threading.Semaphore(0), threading.Event()
    taken_over = threading.Event()

    def slow() -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        begun.release()
        _waited(go_on)
        with lock:
            inside[0] -= 1

    def rung() -> None:
        if threading.current_thread().name.startswith("jmsclient-") and not late.is_set():
            came_back.release()
            _waited(late)  # where a thread may be for any time: its work is back, and it has not looked for the next

    def go_on_elsewhere() -> bool:
        taken_over.set()
        _waited(done)
        threads.stop(0.0)
        return True

    threads = HandlerThreads("test", number, lambda call: call(), finished, rung, go_on_elsewhere)  # type: ignore[operator]
    threads.begin()
    meet = threading.Barrier(2, timeout=LONG)
    threads.start([lambda: bool(meet.wait())] * 2)  # type: ignore[list-item]
    for _ in range(number):
        assert came_back.acquire(timeout=LONG)
    for _ in range(IN_A_ROW):
        threads.quick.given()
        threads.all_back()

    def first() -> None:
        assert not threads.run_here([slow] * 5)  # type: ignore[list-item]
        threads.serve()

    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    assert begun.acquire(timeout=LONG)
    late.set()
    assert taken_over.wait(LONG), "somebody watches"
    assert begun.acquire(timeout=LONG), "and the other one runs what is behind the slow one"
    go_on.set()
    for _ in range(3):
        assert begun.acquire(timeout=LONG)
    done.set()
    thread.join(LONG)
    assert not thread.is_alive()
    assert most == [number]


@pytest.mark.usefixtures("threads_before")
def test_tr40_a_group_that_takes_long_is_shared_though_each_of_its_calls_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_threads, "LOOKS", 1)
    shared = threading.Event()
    giver: Giver

    def one_of_many() -> None:
        if giver.taken_over:
            shared.set()
        shared.wait(0.001)

    giver = Giver(2, [*[calls(2) for _ in range(IN_A_ROW)], [lambda: one_of_many() for _ in range(20_000)]])
    giver.begin()
    assert shared.wait(LONG)
    assert giver.ended.wait(LONG)
    assert giver.taken_over == 1
    assert set(giver.ran.values()) == {1}


@pytest.mark.usefixtures("threads_before")
def test_o01_what_waits_behind_handlers_that_outlast_the_end_is_not_begun_after_it() -> None:
    begun, go_on, behind = threading.Semaphore(0), threading.Event(), threading.Event()
    finished: deque[Any] = deque()
    threads = HandlerThreads("test", 2, lambda call: call(), finished, lambda: None)  # type: ignore[operator]
    threads.begin()

    def slow() -> None:
        begun.release()
        _waited(go_on)

    threads.start([slow, slow, behind.set])  # type: ignore[list-item]
    for _ in range(2):
        assert begun.acquire(timeout=LONG)
    threads.stop(0.0)
    go_on.set()
    threads.stop(LONG)
    assert len(finished) == 2
    assert not behind.is_set()


def test_what_is_not_quick_in_a_row_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "GROUP", 0.001)
    now = [0.0]
    one = Quick(lambda: now[0])

    def group(seconds: float) -> bool:
        one.given()
        one.given()  # more is handed out before all is back: it counts from the first
        now[0] += seconds
        return one.returned()

    assert [group(0.0005) for _ in range(IN_A_ROW - 1)] == [False] * (IN_A_ROW - 1)
    assert not group(0.002)
    assert [group(0.0005) for _ in range(IN_A_ROW)] == [False] * (IN_A_ROW - 1) + [True]
    one.enter()
    now[0] += 0.002
    assert one.leave()
    assert not one.now
    assert not one.returned(), "nothing was given"


def test_the_pipeline_is_taken_over_once_and_by_nobody_while_no_group_runs() -> None:
    one = Quick()
    assert not one.take_over()
    one.enter()
    assert one.take_over()
    assert not one.take_over()
    assert not one.leave()
    entered, go_on = threading.Event(), threading.Event()
    results: list[bool] = []

    def another() -> None:
        one.enter()
        entered.set()
        _waited(go_on)
        results.append(one.leave())

    thread = threading.Thread(target=another)
    thread.start()
    assert entered.wait(LONG)
    assert not one.leave(), "this thread's place was taken, whoever runs a group now"
    go_on.set()
    thread.join(LONG)
    assert results == [True]


def test_whoever_has_the_pipeline_hears_of_a_call_that_a_thread_ends_which_had_it_before() -> None:
    rings: list[bool] = []

    def another_runs_a_group(_: Any) -> None:
        threads.quick.take_over()
        threads.quick.inside = -1

    threads = HandlerThreads("test", 2, another_runs_a_group, deque(), lambda: rings.append(True), lambda: True)
    assert not threads.run_here([cast(Any, "one")])
    assert rings == [True]


# -- in a trigger -----------------------------------------------------------------------------------------------------------


class Book:
    """A handler that returns at once, until it is called on the pipeline's thread: that call hangs until `go_on`."""

    def __init__(self) -> None:
        self.go_on, self.hangs = threading.Event(), threading.Event()
        self.hung: str | None = None
        self.bodies: list[str] = []

    def __call__(self, message: Message) -> None:
        self.bodies.append(str(message.body))
        if not self.hung and threading.current_thread().name == f"jmsclient-{Q}-pipeline":
            self.hung = message.message_id
            self.hangs.set()
            _waited(self.go_on)

    def delivered_to(self, backend: ScriptedBackend) -> int:
        """Messages are, until one hangs; how many."""
        number = 0
        while not self.hangs.is_set():
            backend.deliver(Q, [str(one) for one in range(number, number + 100)])
            number += 100
            deadline = time.monotonic() + LONG
            while len(self.bodies) < number and not self.hangs.is_set():
                assert time.monotonic() < deadline
                time.sleep(0.001)
        return number


@pytest.fixture
def book() -> Iterator[Book]:
    made = Book()
    yield made
    made.go_on.set()


def test_tr62_a_trigger_runs_and_acknowledges_others_while_a_handler_hangs_on_its_pipelines_thread(
    backend: ScriptedBackend, until: Until, book: Book
) -> None:
    worker = Worker(backend.url, history=open_history("memory:"))
    worker.trigger(Q, concurrency=4, prefetch=200)(book)
    with worker:
        number = book.delivered_to(backend)
        until(lambda: len(book.bodies) == number)
        until(lambda: backend.unsettled(Q) == [book.hung])
        backend.deliver(Q, ["later"])
        until(lambda: "later" in book.bodies and len(backend.unsettled(Q)) == 1)
        book.go_on.set()
        until(lambda: not backend.unsettled(Q))
        assert worker.triggers[Q].pipeline.counters.completed == number + 1
    assert set(Counter(book.bodies).values()) == {1}


def test_tr40_the_lease_of_a_handler_that_hangs_on_its_pipelines_thread_is_kept(
    backend: ScriptedBackend, until: Until, by_hand: Callable[[Worker], Worker], leased: Any, book: Book
) -> None:
    worker = by_hand(Worker(backend.url, history=leased))
    worker.trigger(Q, concurrency=2, prefetch=200, lease=30.0)(book)
    with worker:
        book.delivered_to(backend)
        until(lambda: len(backend.unsettled(Q)) == 1)
        leased.outlast(30.0)
        assert leased.lookup(Q, book.hung).lease_alive
        book.go_on.set()
        until(lambda: leased.lookup(Q, book.hung).state is State.COMPLETED)


def test_o01_a_stop_ends_at_its_grace_though_a_handler_hangs_on_the_pipelines_thread(
    backend: ScriptedBackend, until: Until, book: Book
) -> None:
    worker = Worker(backend.url, history=open_history("memory:"))
    worker.trigger(Q, concurrency=2, prefetch=200)(book)
    worker.start()
    book.delivered_to(backend)
    pipeline = worker.triggers[Q].pipeline
    began = time.monotonic()
    report = worker.stop(0.3)
    assert time.monotonic() - began < 20.0
    (one,) = report.triggers
    assert (one.unfinished, report.clean) == (1, False)
    before = list(backend.settlements)
    book.go_on.set()
    pipeline._thread.join(LONG)
    assert not pipeline._thread.is_alive()
    assert backend.settlements == before


def test_tr59_a_handler_on_the_pipelines_thread_may_wait_until_its_trigger_is_suspended(
    backend: ScriptedBackend, until: Until
) -> None:
    worker = Worker(backend.url, history=open_history("memory:"))
    disabled = threading.Event()

    @worker.trigger(Q, concurrency=2, prefetch=200)
    def book(body: str) -> None:
        if threading.current_thread().name == f"jmsclient-{Q}-pipeline" and not disabled.is_set():
            disabled.set()
            worker.triggers[Q].suspend()
            until(lambda: worker.triggers[Q].state == "suspended")

    with worker:
        deadline = time.monotonic() + LONG
        while not disabled.is_set():
            assert time.monotonic() < deadline
            backend.deliver(Q, [str(one) for one in range(100)])
            until(lambda: disabled.is_set() or not backend.unsettled(Q))
        until(lambda: worker.triggers[Q].state == "suspended" and not backend.unsettled(Q))


def test_tr62_where_messages_come_one_by_one_each_has_a_handler_thread(backend: ScriptedBackend, until: Until) -> None:
    names: list[str] = []
    worker = Worker(backend.url, history=open_history("memory:"))

    @worker.trigger(Q, concurrency=2)
    def book(body: str) -> None:
        names.append(threading.current_thread().name)

    with worker:
        for one in range(3 * IN_A_ROW):
            backend.deliver(Q, [str(one)])
            until(lambda one=one: worker.triggers[Q].pipeline.counters.completed == one + 1)
            until(lambda: not worker.triggers[Q].pipeline._handlers.quick)
            until(lambda: not worker.triggers[Q].pipeline._handlers._threads.quick._in_a_row)
    assert all("-handler-" in name for name in names)


def _waited(event: threading.Event) -> None:
    assert event.wait(LONG)
