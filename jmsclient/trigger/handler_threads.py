"""Where plain handlers of a concurrent trigger run: a fixed number of threads. It must not know what they run (TR-62)."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from jmsclient.trigger.batch import Item
from jmsclient.trigger.quick import LOOK, LOOKS, Quick


class Call(Enum):
    """What a thread is called for."""

    WORK = "work"
    WATCH = "watch"
    END = "end"


class HandlerThreads:
    """A fixed number of threads that run work off one queue, and put it into `finished` then and `ring`.

    Whoever is free takes the next work, so no thread idles while another has one waiting (TR-62). A group wakes one thread, and a
    thread that leaves work behind wakes the next before it runs its own: handlers that wait get a thread each, and those that
    return at once are not paid for with a wake-up each.

    Where `go_on` is given, quick ones are run by the thread that hands them out (`Quick`). It goes on with what that thread did,
    and says True when that has ended, False when it is to be a handler thread again.
    """

    def __init__(
        self,
        name: str,
        number: int,
        execute: Callable[[Item], None],
        finished: deque[Item],
        ring: Callable[[], None],
        go_on: Callable[[], bool] | None = None,
    ) -> None:
        self._execute = execute
        self._finished = finished
        self._ring = ring
        self._go_on = go_on if number > 1 else None
        self.quick = Quick()
        self._works: deque[Item] = deque()  # append and popleft are atomic: no lock
        self._here: deque[Item] = deque()
        """Of a group that `run_here` runs, what is not begun: nobody else's, until its place is taken. A handler thread that has
        not looked since its last call would take from it: one call too many, and perhaps nobody left to watch."""
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._waking = False
        """A thread was woken and has not looked yet; stored before the wake and cleared before the look, so none is missed."""
        # Daemons: a handler that never returns must not keep the process alive after the grace period (O01).
        self._threads = [
            threading.Thread(target=self.serve, name=f"jmsclient-{name}-handler-{index + 1}", daemon=True)
            for index in range(number)
        ]

    @property
    def inside(self) -> bool:
        """Whoever asks is on one of them."""
        return threading.current_thread() in self._threads

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def start(self, items: Sequence[Item]) -> None:
        """Have these run, in order, by whoever is free."""
        self.quick.given()
        self._works.extend(items)
        self._wake()

    def all_back(self) -> None:
        """All that was to be run has been."""
        if self._go_on is not None and self.quick.returned():
            self._calls.put(Call.WATCH)

    def run_here(self, items: Sequence[Item]) -> bool:
        """Run these on the thread that calls, which has the pipeline. False: another has it now, and this one is to `serve`."""
        finished, quick, this = self._finished, self.quick, threading.get_ident()
        here = self._here = deque(items)
        quick.enter()
        while here:
            try:
                item = here.popleft()
            except IndexError:
                break
            quick.calls += 1
            self._execute(item)
            finished.append(item)
            if quick.inside != this:  # whoever has the pipeline now may wait for it
                self._ring()
        return quick.leave()

    def stop(self, timeout: float | None) -> None:
        """End them; what none of them has begun is not begun any more, for nobody hears of its end."""
        self._works.clear()
        for _ in self._threads:
            self._calls.put(Call.END)
        for thread in self._threads:
            if thread is not threading.current_thread():  # one of them may have the pipeline
                thread.join(timeout)

    def serve(self) -> None:
        """Be a handler thread, until `stop`."""
        while True:
            call = self._calls.get()
            if call is Call.WATCH:
                call = self._watch()
            if call is Call.END:
                return
            self._waking = False
            self._run_all()

    def _wake(self) -> None:
        if not self._waking:
            self._waking = True
            self._calls.put(Call.WORK)

    def _run_all(self) -> None:
        works = self._works
        while works:
            try:
                item = works.popleft()
            except IndexError:
                break
            if works:
                self._wake()
            self._execute(item)
            self._finished.append(item)
            self._ring()

    def _share(self) -> None:
        """What the thread whose place was taken has not begun is for whoever is free."""
        here = self._here
        while here:
            try:
                self._works.append(here.popleft())
            except IndexError:  # that thread was faster
                break
        if self._works:
            self._wake()

    def _watch(self) -> Call:
        """While the pipeline's thread runs handlers: take its place where one is not quick. Returns what to do then."""
        assert self._go_on is not None
        quick = self.quick
        call_seen = group_seen = -1
        looks = 0
        while quick.now:
            try:
                call = self._calls.get(timeout=LOOK)
            except queue.Empty:
                calls, groups = quick.calls, quick.groups
                looks = looks + 1 if groups == group_seen else 0
                if (calls == call_seen or looks >= LOOKS) and quick.take_over():
                    self._share()
                    return Call.END if self._go_on() else Call.WORK
                call_seen, group_seen = calls, groups
            else:
                if call is Call.END:
                    return call
                self._waking = False  # before the next look at `now`: while that is true, whoever runs handlers needs no help
        return Call.WORK
