"""`for message in consumer`: in AUTO a message is acknowledged when the next one is asked for, or when the consumer closes.

Owns what the running loop has in hand. Each loop is a generator, for that keeps what it needs at hand; it holds no message but the
one that the application has. Each next one leaves the buffer by `HandOver._pop`, so that a close and the statistics find all others
there, and an exception from a signal handler strands none. It must not know how a consumer is closed. Rules RA-25, IF-39, IF-40.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Iterator

from jmsclient.jms.hand_over import HandOver, _received
from jmsclient.message import Message
from jmsclient.transport.contract import RETRY, Arrival


class Iterating(HandOver):
    """What `MessageConsumer` is built on. The names with one underscore are shared with it, and with nobody else."""

    _active = False  # a receive is inside
    _in_hand: Arrival | None = None  # AUTO: what the running `for` loop works on

    def __iter__(self) -> Iterator[Message]:
        """Every message, until the consumer is closed. In AUTO each is acknowledged when the next is asked for, or at close."""
        session, connection, intake, queue = self._session, self._connection, self.intake, self._queue
        auto = not (self._client or self._transacted or self._gathered is not None)
        while True:
            message: Message | None = None
            me = get_ident()
            # Hot path: what `_next` and `_pop` do where the next one is here already and nothing is special, without their calls.
            if (
                auto
                and queue
                and connection.started
                and self._pending is None
                and not (session.inside or session.owner or self._closing or self.closed)
            ):
                session.inside = me
                self._active = True
                try:
                    done = self._in_hand
                    if done is not None:
                        if not done.settled:
                            done.receiver.accept(done)
                        self._in_hand = None
                    arrival = queue[0] if queue else None
                    if arrival is not None and arrival.expires_at is None:
                        self._pending = arrival
                        queue.popleft()  # this very one: no call came between, so no other thread and no signal handler
                        if arrival.persistent and intake.records_hand_over and not (arrival.settled or self._recorded(arrival)):
                            self._pending = None  # its link is lost: it comes again on another
                        else:
                            arrival.handed_over = True
                            if len(queue) <= self._buffer.mark:
                                intake.asked()
                            message = _received(arrival.content, arrival.delivery_count, None, arrival)
                            self._buffer.delivered += 1
                            self._in_hand = arrival
                            self._pending = None
                finally:
                    self._active = False
                    session.inside = 0
            if message is None:
                message = self._next()
                if message is None:
                    return
            yield message

    def __next__(self) -> Message:
        message = self._next()
        if message is None:
            raise StopIteration
        return message

    def _next(self) -> Message | None:
        """The next one; waits for it. None where the consumer is closed."""
        session = self._session
        me = get_ident()
        if self.closed or self._closing:
            return None
        if session.inside:
            raise session.busy_error()
        session.inside = me
        self._active = True
        try:
            if session.owner:
                session.check_owner(me)
            done = self._in_hand
            if done is not None:
                if not done.settled:
                    self._accept(done)
                self._in_hand = None
            arrival = self._take(None)
            if arrival is None:
                return None
            if self._transacted:
                return self._accepted(arrival)
            message = self._message(arrival)
            if self._client:
                session.unacknowledged.append(arrival)
            in_hand = None if self._client else arrival
            self._buffer.delivered += 1
            self._in_hand = in_hand
            self._pending = None
            return message
        finally:
            self._active = False
            session.inside = 0

    def retry_in_hand(self) -> None:
        """An exception leaves the `with` block: what the loop had in hand is to be tried again (IF-39)."""
        done = self._in_hand
        if done is not None:
            self.intake.settle((done,), RETRY)
            self._in_hand = None
