"""The trigger's talk with its history: commands gathered, sent in one call a group, each answered to whoever asked.

What the store did not confirm is not forgotten: it stays and is sent again with the same token (safe by TR-39). A claim whose
asker would rather be told that there was no answer is released by its token as soon as the store answers.
Touched by the pipeline thread only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from jmsclient.clock import Clock
from jmsclient.errors import HistoryUnavailableError
from jmsclient.history.contract import DocumentHistory, Sent
from jmsclient.history.entries import Alike, Command, Release, Reply
from jmsclient.trigger.work import Work

Answer = Callable[[Work, Reply], None]
Answers = Callable[[Sequence[Work], Sequence[Reply]], None]
Unanswered = Callable[[Work], None]
Item = tuple[Alike, Sequence[Work], Answers, Unanswered | None]
"""What is asked, about whom, and who is to be told."""

MOST_NOTES = 1000
FEW = 64
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
        self._number = 0  # of the commands that wait
        self._sent: deque[tuple[list[Item], Sent]] = deque()
        self._enough = FEW if history.sends_ahead else math.inf
        """So many that wait are sent ahead."""

    def __len__(self) -> int:
        return self._number + len(self._sent)

    def add(self, command: Command, work: Work, answer: Answer, unanswered: Unanswered | None = None) -> None:
        """Send this about a work with the next group; `answer` is called with both and may add further commands. `unanswered`
        (of a claim) is called instead when the store did not answer."""
        self.add_all(Alike.of(command), [work], lambda works, replies: answer(works[0], replies[0]), unanswered)

    def add_all(self, asked: Alike, works: Sequence[Work], answers: Answers, unanswered: Unanswered | None = None) -> None:
        """The same about many: `answers` is called with as many as one call to the store is about, `unanswered` with each."""
        start, number = 0, len(works)
        while self._number + number - start >= self._enough:
            end = start + max(0, int(self._enough) - self._number)  # none of these, where as many notes wait already
            if end > start:
                self._wait(asked.part(start, end), works[start:end], answers, unanswered)
            self._send()
            start = end
        if start == 0:
            self._wait(asked, works, answers, unanswered)
        elif start < number:
            self._wait(asked.part(start, number), works[start:], answers, unanswered)

    def _wait(self, *item: *Item) -> None:
        self._waiting.append(item)
        self._number += len(item[1])

    def time_spent(self) -> float:
        """Seconds in the store since it was asked last."""
        spent, self._spent = self._spent, 0.0
        return spent

    @property
    def pressing(self) -> bool:
        """Somebody waits for an answer."""
        return any(answers is not _nothing_to_do for _, _, answers, _ in self._waiting)

    def note(self, command: Command, work: Work) -> None:
        """Tell the store when it answers again, if not too much waits by then: nobody needs to know. Takes the place of what
        waits for the same token."""
        self.forget(command.token)
        if self._number < MOST_NOTES:
            self._wait(Alike.of(command), [work], _nothing_to_do, None)

    def forget(self, token: str) -> bool:
        """Drop what waits for this token (TR-50: given up); True if there was something."""
        before, waiting = self._number, self._waiting
        self._waiting, self._number = [], 0
        for asked, works, answers, unanswered in waiting:
            if token not in asked.tokens:
                self._wait(asked, works, answers, unanswered)
                continue
            for place, (other, work) in enumerate(zip(asked.tokens, works, strict=True)):
                if other != token:
                    self._wait(asked.part(place, place + 1), [work], answers, unanswered)
        return self._number < before

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
            for (_, works, answers, _), of_these in zip(group, replies, strict=True):
                answers(works, of_these)
            if self._history.sends_ahead and not self._sent:
                self._enough = FEW

    def _send(self) -> None:
        group, self._waiting, self._number = self._waiting, [], 0
        begun = self._clock.monotonic()
        self._sent.append((group, self._history.begin([one[0] for one in group])))
        self._spent += self._clock.monotonic() - begun
        if self._enough < math.inf:
            self._enough = min(FEW << len(self._sent), MANY) if len(self._sent) < MOST_AHEAD else math.inf

    def _unanswered(self, group: list[Item]) -> None:
        """Nor is what was sent after it: its time is over too, and it is asked again."""
        later, self._waiting, self._number = self._waiting, [], 0
        for other, sent in self._sent:
            sent.abandon()
            group += other
        self._sent.clear()
        for item in (*map(_again, group), *later):
            self._wait(*item)
        for _, works, _, unanswered in group:
            if unanswered is not None:
                for work in works:
                    unanswered(work)


def _again(item: Item) -> Item:
    """What is sent when the store answers again: the same commands, or the release of claims that may have been made."""
    asked, works, _, unanswered = item
    if unanswered is None:
        return item
    like = asked.like
    release = Release(trigger=like.trigger, id=like.id, source=like.source, token=like.token, history_ttl=like.history_ttl)
    return Alike(release, asked.ids, asked.tokens), works, _nothing_to_do, None


def _nothing_to_do(_: Sequence[Work], __: Sequence[Reply]) -> None:
    """Nobody waits for it: a claim whose asker was told that there is none, or a note."""
