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
    """See the module."""

    def __init__(self, history: DocumentHistory) -> None:
        self._history = history
        self._waiting: list[tuple[Command, Answer]] = []
        self.unclaimed: list[Claim] = []
        """Claims of a failed call, in the order asked; whoever reads them empties the list."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, command: Command, answer: Answer) -> None:
        """Send this with the next group; `answer` may add further commands."""
        self._waiting.append((command, answer))

    def forget(self, token: str) -> bool:
        """Drop what waits for this token (TR-50: given up); True if there was something."""
        kept = [pair for pair in self._waiting if pair[0].token != token]
        found = len(kept) < len(self._waiting)
        self._waiting = kept
        return found

    def exchange(self) -> None:
        """Send all that waits, and what the answers ask for in turn, until nothing does.

        Raises HistoryUnavailableError; then `unclaimed` gives the claims that were not confirmed, and the rest waits here.
        """
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                replies = self._history.exchange([command for command, _ in group])
            except HistoryUnavailableError:
                self.unclaimed += [command for command, _ in group if isinstance(command, Claim)]
                self._waiting = [_again(command, answer) for command, answer in group]
                raise
            for (_, answer), reply in zip(group, replies, strict=True):
                answer(reply)


def _again(command: Command, answer: Answer) -> tuple[Command, Answer]:
    """What is sent when the store answers again: the same command, or the release of a claim that may have been made."""
    if not isinstance(command, Claim):
        return command, answer
    release = Release(
        trigger=command.trigger, id=command.id, source=command.source, token=command.token, history_ttl=command.history_ttl
    )
    return release, _nothing_to_do


def _nothing_to_do(_: Reply) -> None:
    """Whoever asked for the claim was told long ago that there is none."""
