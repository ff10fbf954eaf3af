"""Where `async def` handlers run: one event loop a trigger, up to `concurrency` at once, cancelled gently (case O01)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jmsclient.trigger.batch import Batch, Item

LAST_MOMENT = 1.0


class HandlerLoop:
    """One thread with an event loop; at most `number` handlers are in it at once, begun in the order given."""

    def __init__(
        self,
        name: str,
        number: int,
        execute: Callable[[Item, ThreadPoolExecutor], Coroutine[Any, Any, None]],
        done: Callable[[Item], None],
    ) -> None:
        self._execute = execute
        self._done = done
        self._room = asyncio.Semaphore(number)
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = 0
        self._ended = 0
        self._cancelled = False
        self._loop = asyncio.new_event_loop()
        self._sender = ThreadPoolExecutor(1, thread_name_prefix=f"jmsclient-{name}-sender")  # its thread starts with a first send
        self._thread = threading.Thread(target=self._run, name=f"jmsclient-{name}-loop", daemon=True)

    @property
    def active(self) -> int:
        return self._started - self._ended

    @property
    def inside(self) -> bool:
        """Whoever asks is on its thread."""
        return threading.current_thread() is self._thread

    def begin(self) -> None:
        self._thread.start()

    def start(self, items: Sequence[Item]) -> None:
        self._started += len(items)
        self._loop.call_soon_threadsafe(self._begin, items)

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._loop.call_soon_threadsafe(self._cancel)

    def stop(self, timeout: float | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._sender.shutdown(wait=False)
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _begin(self, items: Sequence[Item]) -> None:
        for item in items:
            task = self._loop.create_task(self._one(item))
            self._tasks.add(task)  # the loop itself holds tasks weakly
            task.add_done_callback(self._tasks.discard)

    async def _one(self, item: Item) -> None:
        try:
            async with self._room:
                await self._execute(item, self._sender)
        except asyncio.CancelledError as error:  # before it began
            for work in item.works if isinstance(item, Batch) else (item,):
                work.error = error
        self._ended += 1
        self._done(item)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._cancel()
            if left := tuple(self._tasks):  # one that has ended may leave the set before it is waited for
                self._loop.run_until_complete(asyncio.wait(left, timeout=LAST_MOMENT))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
