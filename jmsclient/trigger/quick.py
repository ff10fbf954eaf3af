"""Quick handlers on the pipeline's own thread, and what happens where one turns out not to be quick.

To hand a group to other threads and hear of its end costs more than handlers that return at once. So after some groups that came
back within a millisecond, the pipeline's thread runs the next ones itself, until one takes longer or nothing is left to do.
Meanwhile one handler thread watches: it looks every hundredth of a second, and where the pipeline's thread is still inside the
call in which it was, or for long in one group, the two change places. The watcher is the pipeline's thread from then on, and the
other, when its call returns, is a handler thread. So there are never more calls at once than the trigger allows, and none waits for
a slow one for longer than a moment. It measures by the real clock, for it is about this process, and knows neither pipeline nor
handler. TR-62.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

GROUP = 0.001
"""Seconds in which a group is back if its handlers are quick."""
IN_A_ROW = 4
"""So many such groups, and the next ones are run by the pipeline's thread."""
LOOK = 0.01
"""Seconds from one look of the watcher to the next."""
LOOKS = 10
"""So many in one group, and it takes too long, however quick each call is: leases and stops wait for it."""


class Quick:
    """`take_over` is the watcher's; the rest the pipeline's thread's, whichever that is."""

    def __init__(self, seconds: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self.now = False
        """Whether the pipeline's thread runs the next group."""
        self.calls = 0
        """How many it has begun; whoever begins one adds to it."""
        self.groups = 0
        self._in_a_row = 0
        self._given: float | None = None
        self._lock = threading.Lock()  # guards `inside`
        self.inside: int | None = None
        """The thread that runs a group, and has the pipeline."""

    def given(self) -> None:
        """A group goes to the handler threads."""
        if self._given is None:
            self._given = self._seconds()

    def returned(self) -> bool:
        """All that was given is back. True: the pipeline's thread is to run the next, and somebody has to watch."""
        if self._given is None:
            return False
        seconds, self._given = self._seconds() - self._given, None
        self._in_a_row = self._in_a_row + 1 if seconds <= GROUP else 0
        self.now = self._in_a_row >= IN_A_ROW
        return self.now

    def rest(self) -> None:
        """Nothing is left to do, so that nobody need watch; or a handler was not quick."""
        self.now = False
        self._in_a_row = 0

    def enter(self) -> None:
        """The pipeline's thread begins to run a group."""
        self.calls += 1
        self.groups += 1
        self._given = self._seconds()
        with self._lock:
            self.inside = threading.get_ident()

    def leave(self) -> bool:
        """It has run it. False: meanwhile the watcher has taken the pipeline over, and nothing of it may be touched any more."""
        with self._lock:
            if self.inside != threading.get_ident():
                return False
            self.inside = None
        if self._given is not None and self._seconds() - self._given > GROUP:
            self.rest()
        self._given = None
        return True

    def take_over(self) -> bool:
        """The pipeline's thread is inside a call for too long: True where the caller has the pipeline from now on."""
        with self._lock:
            if self.inside is None:
                return False
            self.inside = None
        self._given = None
        self.rest()
        return True
