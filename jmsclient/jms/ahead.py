"""What `send_many` has under way: a part that waits for its confirmations, and the next one, which is on its way already.

So neither end idles while the other answers. Owns which part is waited for when, and the one error of two parts; order is the
sender's. Must not know sessions or what a message is. A part begins only while all before it is well as far as anybody knows,
and is stopped where one before it failed. Rule IF-30; api.md "Producing". One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from jmsclient.errors import ConnectionLostError, JmsClientError, SendError
from jmsclient.message import PlainContent, Texts
from jmsclient.transport.contract import Begun, Receipt

Parts = Sequence[PlainContent]


def ids_of(receipts: Sequence[Receipt]) -> list[str]:
    """Their message ids. Texts that were sent at once are their own receipts."""
    given: object = receipts
    return given.ids if isinstance(given, Texts) else [receipt.message_id for receipt in cast(list[Receipt], given)]


class Ahead:
    """See the module. `send` as `Sender.send`; `begin` as `Sender.begin`, given the bytes that are under way too, None where only
    `send` will do; `finish` as `Begun.finish`."""

    def __init__(
        self,
        *,
        send: Callable[[Parts], Sequence[Receipt]],
        begin: Callable[[Parts, int], Begun | None],
        finish: Callable[[Begun], Sequence[Receipt]],
    ) -> None:
        self._send = send
        self._begin = begin
        self._finish = finish
        self._last: Begun | None = None

    def send(self, part: Parts) -> list[str]:
        """Send this one behind those before; the ids of what is confirmed since. Raises as `Sender.send`, for all that is not
        confirmed yet, this part included."""
        confirmed: list[str] = []
        if self._last is not None and self._last.failed:
            confirmed = self._confirmed(part)
        last = self._last
        begun: Begun | None = None
        try:
            begun = self._begin(part, 0 if last is None else last.size)
        except ConnectionLostError:
            pass  # `send` knows what to do about that
        except Exception:
            self._confirmed(part)
            raise
        if begun is None:
            confirmed += self._confirmed(part)
            return confirmed + ids_of(self._send(part))
        self._last = begun
        return confirmed if last is None else self._wait(last, begun, ())

    def finish(self) -> list[str]:
        """Wait for what is under way; its ids. Raises as `Sender.send`."""
        return self._confirmed(())

    def stop(self) -> None:
        """Nobody will wait: send nothing more of it."""
        last, self._last = self._last, None
        if last is not None:
            last.stop()

    def _confirmed(self, unsent: Parts) -> list[str]:
        """As `finish`; `unsent` will not be sent if that fails."""
        last = self._last
        return [] if last is None else self._wait(last, None, unsent)

    def _wait(self, part: Begun, behind: Begun | None, unsent: Parts) -> list[str]:
        try:
            receipts = self._finish(part)
        except JmsClientError as error:
            self._last = None
            fate = Fate.of(error, part)
            if behind is not None:
                fate.add(self._ended(behind))
            fate.unsent += [content.message_id for content in unsent if content.message_id is not None]
            if not (fate.confirmed or fate.in_doubt) and not isinstance(error, SendError):
                raise  # nothing was sent at all: it says why
            raise fate.error(error) from error.__cause__
        if behind is None:
            self._last = None
        return ids_of(receipts)

    def _ended(self, behind: Begun) -> Fate:
        """What became of a part whose predecessor failed."""
        behind.stop()
        try:
            return Fate(confirmed=ids_of(self._finish(behind)))
        except JmsClientError as error:
            return Fate.of(error, behind)


class Fate:
    """Which of several parts are confirmed, in doubt, unsent: message ids in order."""

    def __init__(self, *, confirmed: Sequence[str] = (), in_doubt: Sequence[str] = (), unsent: Sequence[str] = ()) -> None:
        self.confirmed = list(confirmed)
        self.in_doubt = list(in_doubt)
        self.unsent = list(unsent)

    @classmethod
    def of(cls, error: JmsClientError, part: Begun) -> Fate:
        """What an error says about a part: one that is no SendError, that nothing of it was sent."""
        if isinstance(error, SendError):
            return cls(confirmed=error.confirmed, in_doubt=error.in_doubt, unsent=error.unsent)
        return cls(unsent=part.ids)

    def add(self, other: Fate) -> None:
        """That of a part behind."""
        self.confirmed += other.confirmed
        self.in_doubt += other.in_doubt
        self.unsent += other.unsent

    def error(self, first: JmsClientError) -> SendError:
        """As the first of the parts failed."""
        return SendError(str(first.args[0] if first.args else first), self.confirmed, self.in_doubt, self.unsent)
