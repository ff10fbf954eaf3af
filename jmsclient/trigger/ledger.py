"""The trigger's talk with its history: commands gathered, sent in one call a group, each answered to whoever asked.

What the store did not confirm is not forgotten: completions and the rest stay and are sent again with the same token (safe by
TR-39); a claim that was never confirmed is handed back to its asker and released by its token as soon as the store answers.
Touched by the pipeline thread only.
"""

from __future__ import annotations

from collections.abc import Callable

from jmsclient.errors import HistoryUnavailableError
from jmsclient.history.contract import DocumentHistory
from jmsclient.history.entries import Claim, Command, Release, Reply

Answer = Callable[[Reply], None]


class Ledger:
    """`refused(command)` is called for each claim of a failed call."""

    def __init__(self, history: DocumentHistory, refused: Callable[[Claim], None]) -> None:
        self._history = history
        self._refused = refused
        self._waiting: list[tuple[Command, Answer]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, command: Command, answer: Answer) -> None:
        """Send this with the next group; `answer` may add further commands."""
        self._waiting.append((command, answer))

    def drop(self, token: str) -> bool:
        """Forget what waits for this token (TR-50: given up); True if there was something."""
        kept = [pair for pair in self._waiting if pair[0].token != token]
        found = len(kept) < len(self._waiting)
        self._waiting = kept
        return found

    def exchange(self) -> None:
        """Send all that waits, and what the answers ask for in turn, until nothing does. Raises HistoryUnavailableError."""
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                replies = self._history.exchange([command for command, _ in group])
            except HistoryUnavailableError:
                self._keep(group)
                raise
            for (_, answer), reply in zip(group, replies, strict=True):
                answer(reply)

    def _keep(self, group: list[tuple[Command, Answer]]) -> None:
        for command, answer in group:
            if isinstance(command, Claim):
                release = Release(
                    trigger=command.trigger,
                    id=command.id,
                    source=command.source,
                    token=command.token,
                    history_ttl=command.history_ttl,
                )
                self._waiting.append((release, _nothing_to_do))
                self._refused(command)
            else:
                self._waiting.append((command, answer))


def _nothing_to_do(_: Reply) -> None:
    """A claim that may never have been made has been released; whoever asked was told long ago."""
