"""Owns one attached client as the holder of the store sees it: what it says becomes calls of a transport of its own.

Must not know how the socket file comes to be (listening.py) nor how a frame is laid out (frames.py). What the client's process
tells is done on the reading thread, in order; what it asks may wait and is done on a thread of `Calls`, after all that was told
before it. When the link ends, for whatever reason, the client's transport is lost as a crashed connection is: everything goes back
(IF-10). Nothing that comes in can do more than end this one link, with one line in the log.
"""

from __future__ import annotations

import itertools
import logging
import socket
from collections.abc import Callable
from typing import Any

from jmsclient.clock import Clock, SystemBell
from jmsclient.errors import JmsClientError
from jmsclient.events import emit
from jmsclient.transport.contract import Transport
from jmsclient_embedded.attach.asked import Asked
from jmsclient_embedded.attach.calls import Calls
from jmsclient_embedded.attach.frames import FRAME_LIMIT, HELLO_LIMIT, Frame, FrameReader, ProtocolError, encode
from jmsclient_embedded.attach.pushing import ServedReceiver
from jmsclient_embedded.attach.values import error_to_json, from_json, to_json
from jmsclient_embedded.attach.wire import Wire

CALLS_TIMEOUT = 5.0
"""Seconds that the end of a client waits for what it called and has not ended."""
LOSE_TIMEOUT = 5.0
_logger = logging.getLogger("jmsclient.embedded")


Lose = Callable[[], None]
Welcome = Callable[[dict[str, Any]], tuple[Transport, Lose, dict[str, Any]]]
"""From what a client says of itself to its transport, the call that takes all of that back, and the answer. Raises JmsClientError
where it is refused."""


class Client:
    """One attached process. `gone` is called once, when everything of it has gone back. Thread-safe."""

    def __init__(
        self, connected: socket.socket, name: str, clock: Clock, *, welcome: Welcome, gone: Callable[[Client], None]
    ) -> None:
        self.name = name
        self.greeted = False
        self._refused = False
        self._clock = clock
        self._welcome = welcome
        self._gone = gone
        self._lose: Lose | None = None
        self._lost = SystemBell()
        self._asked: Asked
        self._calls = Calls(name)
        self._tags = itertools.count(1)
        self._receivers: dict[int, ServedReceiver] = {}
        self._reader = FrameReader(HELLO_LIMIT)
        self.wire = Wire(connected, name, reader=self._reader, on_frame=self._frame, on_end=self._ended)

    def dismiss(self, text: str) -> None:
        """The holder closes the store: say so, and then no more. Does not wait."""
        self.wire.put(encode({"push": "bye", "text": text}))
        self.wire.finish()

    def end(self, limit: float) -> None:
        """After `dismiss`: until `limit` (monotonic) for what the client has not read yet; returns when everything of it has gone
        back, LOSE_TIMEOUT seconds later at most."""
        self.wire.flush(limit)
        self._lost.wait(LOSE_TIMEOUT)

    # -- the reading thread --------------------------------------------------------------------------------------------

    def _frame(self, frame: Frame) -> None:
        try:
            self._understand(frame)
        except ProtocolError:
            raise
        except Exception as error:  # whatever it says, it ends this link and nothing else
            raise ProtocolError(f"{type(error).__name__}: {error}"[:300]) from error

    def _understand(self, frame: Frame) -> None:
        header = frame.header
        if self._refused:
            return
        if not self.greeted:
            self._greet(header)
        elif "tell" in header:
            getattr(self, _TELLS[header["tell"]])(**header["with"])
        elif header["ask"] == "handing_over":  # at once: an application waits for it with a message in its hand
            self._answer(frame)
        else:
            self._calls.make(lambda: self._answer(frame))

    def _greet(self, hello: dict[str, Any]) -> None:
        if "hello" not in hello:
            raise ProtocolError("it did not say hello")
        try:
            transport, self._lose, answer = self._welcome(hello)
        except JmsClientError as error:
            self._refused = True
            self.wire.put(encode({"refused": error_to_json(error)}))
            self.wire.finish()
            return
        self._asked = Asked(transport, self._clock, self._receivers, self._new_receiver)
        self._reader.limit = FRAME_LIMIT
        self.greeted = True
        self.wire.put(encode({"hello": answer}))

    def _ended(self, error: Exception | None) -> None:
        if isinstance(error, ProtocolError):
            text = f"an attached process sent what this broker does not understand, its link is closed: {error}"
            emit("embedded", "client_not_understood", text, level=logging.WARNING, client=self.name)
        try:
            if self._lose is not None:
                self._lose()
        finally:
            self._gone(self)
            self._lost.ring()
            self._calls.end(CALLS_TIMEOUT)

    # -- what a client tells: at once, in order --------------------------------------------------------------------------

    def _tell_request(self, *, receiver: int, count: int) -> None:
        served = self._receivers.get(receiver)
        if served is not None:  # else it was closed meanwhile
            served.receiver.request(int(count))

    def _tell_settle(self, *, receiver: int, tags: list[int], outcome: Any) -> None:
        served = self._receivers.get(receiver)
        if served is None:
            return  # its session has ended, and took everything back
        served.receiver.settle(served.take(tags), from_json(outcome))
        if served.closed_by_client and not served.unsettled:
            self._receivers.pop(receiver, None)  # or close_receiver has just done so

    def _tell_seen(self, *, receiver: int, tags: list[int], seen: bool) -> None:
        served = self._receivers.get(receiver)
        for arrival in () if served is None else served.find(tags):
            arrival.handed_over = bool(seen)

    # -- what it asks ----------------------------------------------------------------------------------------------------

    def _answer(self, frame: Frame) -> None:
        number = frame.header.get("id")
        try:
            value = self._asked.do(frame)
            answer = encode({"answer": number, "value": to_json(value)})
        except Exception as error:  # noqa: BLE001  raised again at the client, whatever it is
            if not isinstance(error, JmsClientError):
                _logger.warning("a call of an attached process failed: %r", error)
            answer = encode({"answer": number, "error": error_to_json(error)})
        self.wire.put(answer)

    def _new_receiver(self, number: int) -> ServedReceiver:
        return ServedReceiver(number, self.wire.put, lambda: next(self._tags), self._close_failed)

    def _close_failed(self, served: ServedReceiver) -> None:
        self._calls.make(lambda: served.receiver.close(None))


_TELLS = {"request": "_tell_request", "settle": "_tell_settle", "seen": "_tell_seen"}
