"""Owns one receiver of an attached client at the holder of the store: the sink that the broker pushes to, and what is unsettled.

Must not know of sockets: frames go where `put` puts them, encoded by the thread that writes them, so that the broker waits for
neither. A message that cannot be sent closes its receiver instead of coming again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jmsclient import envelope
from jmsclient.errors import MessageFormatError
from jmsclient.transport.contract import Arrival, Receiver
from jmsclient_embedded.attach.frames import encode
from jmsclient_embedded.attach.values import error_to_json
from jmsclient_embedded.attach.wire import Outgoing

BATCH_BYTES = 1024 * 1024
"""Bytes of messages in one frame, unless one message alone is longer."""
_Tagged = tuple[int, Arrival, bool]  # the tag, the delivery, whether it was sent settled


class ServedReceiver:
    """A sink (see the contract). `next_tag` numbers the client's deliveries; `fail` is called where a message cannot be sent."""

    def __init__(
        self,
        number: int,
        put: Callable[[Outgoing], None],
        next_tag: Callable[[], int],
        fail: Callable[[ServedReceiver], None],
    ) -> None:
        self.number = number
        self.session = 0
        self.receiver: Receiver
        self.closed_by_client = False
        self.unsettled: dict[int, Arrival] = {}
        """By tag; filled by whoever pushes, emptied on the client's reading thread: each step is one operation of the dict."""
        self._put = put
        self._next_tag = next_tag
        self._fail = fail
        self._failed = False

    # -- the sink ------------------------------------------------------------------------------------------------------

    def delivered(self, batch: list[Arrival]) -> None:
        tagged = [(self._next_tag(), arrival, arrival.settled) for arrival in batch]
        self.unsettled.update([(tag, arrival) for tag, arrival, settled in tagged if not settled])
        self._put(lambda: self._frames(tagged))

    def closed(self, error: Exception | None) -> None:
        self._put(encode(self._push("closed", error=None if error is None else error_to_json(error))))

    def recall(self) -> None:
        self._put(encode(self._push("recall")))

    # -- what the client says of it ------------------------------------------------------------------------------------

    def find(self, tags: Sequence[int]) -> list[Arrival]:
        """Those of them that are unsettled."""
        return [arrival for tag in tags if (arrival := self.unsettled.get(tag)) is not None]

    def take(self, tags: Sequence[int]) -> list[Arrival]:
        """As `find`, and forget them: they are about to be settled."""
        return [arrival for tag in tags if (arrival := self.unsettled.pop(tag, None)) is not None]

    # -- on the writing thread -----------------------------------------------------------------------------------------

    def _push(self, what: str, **more: object) -> dict[str, object]:
        return {"push": what, "receiver": self.number, **more}

    def _frames(self, tagged: list[_Tagged]) -> bytes:
        if self._failed:
            return b""
        try:
            return b"".join(encode(self._push("delivered", messages=heads), pieces) for heads, pieces in _batches(tagged))
        except MessageFormatError as error:  # all of them stay unsettled, and go back when the session ends
            self._failed = True
            self._fail(self)
            return encode(self._push("closed", error=error_to_json(error)))


def _batches(tagged: list[_Tagged]) -> Iterator[tuple[list[object], list[bytes]]]:
    heads: list[object] = []
    pieces: list[bytes] = []
    size = 0
    for tag, arrival, settled in tagged:
        piece = envelope.encode(arrival.content)
        if pieces and size + len(piece) > BATCH_BYTES:
            yield heads, pieces
            heads, pieces, size = [], [], 0
        heads.append(_head(tag, arrival, settled))
        pieces.append(piece)
        size += len(piece)
    yield heads, pieces


def _head(tag: int, arrival: Arrival, settled: bool) -> list[object]:
    return [
        tag,
        arrival.delivery_count,
        arrival.count_derived,
        arrival.persistent,
        arrival.size,
        arrival.expires_at,
        settled,
    ]
