"""QueueBrowser: look at what waits on a queue. It holds nothing, counts nothing, and closing it loses nothing (RA-7).

It reads ahead a page at a time: ask for a page, drain, show what came; an empty page is the end. So it needs no buffer that
anybody would have to give back. Whether it shows a snapshot or what changes meanwhile is the provider's. Jakarta Messaging 3.1
section 8.6; rules RA-7, RA-9, RA-12.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from jmsclient.errors import ConnectionLostError, IllegalStateError
from jmsclient.message import Message
from jmsclient.transport.contract import RELEASE, Arrival, Receiver, ReceiverSpec

if TYPE_CHECKING:
    from jmsclient.jms.settling import Settling

FIRST_PAGE = 10
"""Messages asked for before anything is known of their size."""
PAGE = 100
PAGE_BYTES = 8 << 20
"""Bytes that a page has at most, by the size of the largest message of the page before (RA-9); one message always fits. Where they
turn out larger, the rest of the page is taken back; what is on its way then is the backend's bound, as for consumers."""


class QueueBrowser:
    """Made by `Session.create_browser`. Each `for` loop over it looks anew, from the head. It shows only what a consumer could take
    now: not what is delayed, held by consumers or uncommitted. `close` from any thread; the rest one thread at a time."""

    def __init__(self, session: Settling, spec: ReceiverSpec) -> None:
        self.closed = False
        self.destination = spec.destination
        self.selector = spec.selector
        self._session = session
        self._spec = spec
        self._views: weakref.WeakSet[_View] = weakref.WeakSet()

    def check(self) -> None:
        """Ask the provider once whether this can be browsed; for the session."""
        self._session.keeper.shielded(lambda: self._open(_Page()).close(self._session.request_deadline()))

    def _open(self, page: _Page) -> Receiver:
        return self._session.transport_session.open_receiver(self._spec, page, self._session.request_deadline())

    def __iter__(self) -> Iterator[Message]:
        """The messages from the head on, until the provider has no more to show. A loop whose link is lost ends with
        ConnectionLostError, also where the connection makes another: begin a new one. Raises IllegalStateError on a closed browser,
        a stopped connection (RA-12), or in a second thread; RequestTimeoutError, ConnectionLostError."""
        if self.closed:
            raise IllegalStateError(f"the browser of {self.destination.address} is closed")
        return self._session.run_inside(self._view)

    def _view(self) -> _View:
        def opened() -> _View:
            page = _Page()
            view = _View(self, self._session, page, self._open(page))
            self._views.add(view)
            return view

        return self._session.keeper.shielded(opened)

    def close(self) -> None:
        """End its loops. Closing twice does nothing."""
        if not self.closed:
            self.closed = True
            self._session.keeper.note(self._close_views)

    def _close_views(self) -> None:
        for view in list(self._views):
            view.end()

    def __enter__(self) -> QueueBrowser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<QueueBrowser {self.destination}{' closed' if self.closed else ''}>"


class _Page:
    """The sink of a view: what came since it was last asked."""

    def __init__(self) -> None:
        self.arrivals: deque[Arrival] = deque()
        self.room = PAGE_BYTES
        """Bytes that may still come before the next is asked for."""
        self.error: Exception | None = None
        """Why no more will come. A loop never goes on over another link: that would show some again, or leave some out."""

    def delivered(self, batch: list[Arrival]) -> None:
        self.arrivals.extend(batch)
        held = [arrival for arrival in batch if not arrival.settled]
        if held:  # a provider that wants an answer: nobody takes it
            held[0].receiver.settle(held, RELEASE)
        self.room -= sum(arrival.size for arrival in batch)
        if self.room < 0:
            batch[0].receiver.withdraw()

    def closed(self, error: Exception | None) -> None:
        self.error = error or ConnectionLostError("the provider closed the browser")

    def recall(self) -> None:
        """It holds nothing."""


class _View(Iterator[Message]):
    """One look from the head on."""

    def __init__(self, browser: QueueBrowser, session: Settling, page: _Page, receiver: Receiver) -> None:
        self._browser = browser
        self._session = session
        self._page = page
        self._receiver = receiver
        self._size = FIRST_PAGE
        self._over = False

    def __next__(self) -> Message:
        if self._over or self._browser.closed or self._session.closed:
            raise StopIteration
        arrivals = self._page.arrivals
        if not arrivals:
            self._session.run_inside(lambda: self._session.keeper.shielded(self._turn))
            if not arrivals:
                self._session.keeper.shielded(self.end)
                raise StopIteration
        arrival = arrivals.popleft()
        return Message.received(arrival.content, arrival.delivery_count, None, arrival)

    def _turn(self) -> None:
        """The next page."""
        if not self._session.started:
            raise IllegalStateError("the connection is stopped; start it to browse")
        receiver = self._receiver
        link = receiver.present
        self._page.room = PAGE_BYTES
        receiver.request(self._size)
        receiver.drain(self._session.request_deadline())
        lost = link is None or receiver.present is not link
        if lost and self._page.error is None:  # then a drain that finds nothing is no end
            self._page.closed(ConnectionLostError(f"the link was lost while {self._browser.destination.address} was browsed"))
        if self._page.error is not None:
            raise self._page.error
        largest = max((arrival.size for arrival in tuple(self._page.arrivals)), default=0)
        self._size = max(1, min(PAGE, PAGE_BYTES // max(largest, 1)))

    def end(self) -> None:
        """Detach; once."""
        if not self._over:
            self._over = True
            self._receiver.close(self._session.request_deadline())

    def __del__(self) -> None:
        """A loop that was left: a note for the keeper. It takes no lock."""
        if not self._over and not self._session.closed:
            receiver, session = self._receiver, self._session
            session.keeper.note(lambda: receiver.close(session.request_deadline()))
