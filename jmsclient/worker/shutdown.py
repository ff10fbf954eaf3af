"""Signals of a worker that runs as a program (the command line's, never installed by importing the library).

First SIGTERM or Ctrl-C: stop gently, then say what became of every buffered message. Second: end the drain at once, exit code
130, what runs stays unacknowledged. Third: killed. A forked child ends at its first. Source: api.md "Command line"; cases O01, O02.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from jmsclient.worker.worker import Worker

INTERRUPTED = 130


class Signals:
    """Counts the requests to end. The handlers only set flags and ring bells."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._process = os.getpid()
        self.received = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that a handler forked, such as a pool's, has inherited this and is to end
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received += 1
        if self.received <= 2:
            self.tell()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def tell(self) -> None:
        """Have the worker stop if it is to; also what came before it listened."""
        if self.received:
            self._worker.request_stop(None if self.received == 1 else 0.0)


def run_with_signals(worker: Worker) -> int:
    """Run the worker in the main thread until a signal ends it; returns the exit code: 0 clean, 1 when a handler outlasted
    the grace period, 130 when the drain was cut short. Raises what `Worker.run` raises."""
    signals = Signals(worker)
    before = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        report = worker.run_listening(signals.tell)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for line in report.lines():
        print(f"jmsclient: {line}", file=sys.stderr)
    for error in report.errors:
        print(f"jmsclient: {type(error).__name__}: {error}", file=sys.stderr)
    if signals.received > 1:
        return INTERRUPTED
    return 0 if report.clean else 1
