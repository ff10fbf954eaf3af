"""The trigger's talk with its history: commands gathered, sent in one call a group, each answered to whoever asked.

What the store did not confirm is not forgotten: it stays and is sent again with the same token (safe by TR-39). A claim whose
asker would rather be told that there was no answer is released by its token as soon as the store answers.
Touched by the pipeline thread only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from jmsclient.clock import Clock
from jmsclient.errors import HistoryUnavailableError
from jmsclient.history.contract import DocumentHistory, Sent
from jmsclient.history.entries import Command, Release, Reply
from jmsclient.trigger.work import Work

Answer = Callable[[Work, Reply], None]
Unanswered = Callable[[Work], None]
Item = tuple[Command, Work, Answer, Unanswered | None]


MOST_NOTES = 1000
FEW = 32
"""So many commands are worth a call of their own, sent while more are gathered; twice as many the next, up to `MANY`."""
MANY = 128
MOST_AHEAD = 8
"""Calls on their way at once, for each takes a connection."""


class Ledger:
    """See the module."""

    def __init__(self, history: DocumentHistory, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self._spent = 0.0
        self._waiting: list[Item] = []
        self._sent: deque[tuple[list[Item], Sent]] = deque()
        self._enough = FEW if history.sends_ahead else math.inf
        """So many that wait are sent ahead."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    def add(self, command: Command, work: Work, answer: Answer, unanswered: Unanswered | None = None) -> None:
        """Send this about a work with the next group; `answer` is called with both and may add further commands. `unanswered`
        (of a claim) is called instead when the store did not answer."""
        self._waiting.append((command, work, answer, unanswered))
        if len(self._waiting) >= self._enough:
            self._send()

    def time_spent(self) -> float:
        """Seconds in the store since it was asked last."""
        spent, self._spent = self._spent, 0.0
        return spent

    @property
    def pressing(self) -> bool:
        """Somebody waits for an answer."""
        return any(answer is not _nothing_to_do for _, _, answer, _ in self._waiting)

    def note(self, command: Command, work: Work) -> None:
        """Tell the store when it answers again, if not too much waits by then: nobody needs to know. Takes the place of what
        waits for the same token."""
        self.forget(command.token)
        if len(self._waiting) < MOST_NOTES:
            self._waiting.append((command, work, _nothing_to_do, None))

    def forget(self, token: str) -> bool:
        """Drop what waits for this token (TR-50: given up); True if there was something."""
        kept = [one for one in self._waiting if one[0].token != token]
        found = len(kept) < len(self._waiting)
        self._waiting = kept
        return found

    def exchange(self) -> None:
        """Send all that waits, and what the answers ask for in turn, until nothing does.

        Raises HistoryUnavailableError when all who wanted to be told of that were told, in the order asked.
        """
        while self._waiting or self._sent:
            if self._waiting:
                self._send()
            group, sent = self._sent.popleft()
            begun = self._clock.monotonic()
            try:
                replies = sent.replies()
            except HistoryUnavailableError:
                self._unanswered(group)
                self._enough = math.inf
                raise
            finally:
                self._spent += self._clock.monotonic() - begun
            for (_, work, answer, _), reply in zip(group, replies, strict=True):
                answer(work, reply)
            if self._history.sends_ahead and not self._sent:
                self._enough = FEW

    def _send(self) -> None:
        group, self._waiting = self._waiting, []
        begun = self._clock.monotonic()
        self._sent.append((group, self._history.begin([one[0] for one in group])))
        self._spent += self._clock.monotonic() - begun
        if self._enough < math.inf:
            self._enough = min(FEW << len(self._sent), MANY) if len(self._sent) < MOST_AHEAD else math.inf

    def _unanswered(self, group: list[Item]) -> None:
        """Nor is what was sent after it: its time is over too, and it is asked again."""
        later = self._waiting
        for other, sent in self._sent:
            sent.abandon()
            group += other
        self._sent.clear()
        self._waiting = [_again(*one) for one in group] + later
        for _, work, _, unanswered in group:
            if unanswered is not None:
                unanswered(work)


def _again(command: Command, work: Work, answer: Answer, unanswered: Unanswered | None) -> Item:
    """What is sent when the store answers again: the same command, or the release of a claim that may have been made."""
    if unanswered is None:
        return command, work, answer, None
    release = Release(
        trigger=command.trigger, id=command.id, source=command.source, token=command.token, history_ttl=command.history_ttl
    )
    return release, work, _nothing_to_do, None


def _nothing_to_do(_: Work, __: Reply) -> None:
    """Nobody waits for it: a claim whose asker was told that there is none, or a note."""
