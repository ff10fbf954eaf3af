"""Where a trigger's application code runs: plain functions on threads, `async def` functions on one event loop, one path for both.

Work goes in as a group and comes back in `finished`, and the bell is rung; nobody here touches the buffer, the history or a
settlement. Rules TR-55, TR-57, TR-62; case O01.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from jmsclient.clock import Bell
from jmsclient.history.entries import Complete
from jmsclient.message import Message
from jmsclient.trigger.batch import Batch, Item, Prepared, grouped
from jmsclient.trigger.binding import BatchCall, CallWithMessage, is_async
from jmsclient.trigger.decision import Status
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.delivery import Delivery, Gathered, ResolverRequest
from jmsclient.trigger.handler_loop import LAST_MOMENT, HandlerLoop
from jmsclient.trigger.handler_threads import HandlerThreads
from jmsclient.trigger.recording import recording
from jmsclient.trigger.transaction import Transaction
from jmsclient.trigger.work import Work

Call = Callable[[Message, Delivery], Any] | BatchCall
Send = Callable[[Sequence[Gathered]], None]
NOTHING: AbstractContextManager[None] = nullcontext()


class Handlers:
    """All of one trigger's: `call` runs the handler, `send` what it gathered (after it returned, before `complete`).

    `begin`, `start`, `cancel` and `stop` belong to one thread at a time.
    """

    def __init__(
        self,
        declaration: Declaration,
        call: Call,
        send: Send,
        bell: Bell,
        transaction: Transaction | None = None,
        *,
        may_be_inline: bool = False,
        go_on: Callable[[], bool] | None = None,
    ) -> None:
        """`may_be_inline`: handlers may run on the thread that starts them; `go_on`: what that does, for a thread that takes its
        place (`HandlerThreads`)."""
        self._transaction = transaction
        self.finished: deque[Item] = deque()
        self._declaration = declaration
        self._call: Any = call
        self._batch_call: Any = call
        self._send = send
        self._bell = bell
        self._handler_is_async = is_async(declaration.function)
        self._records = declaration.same_transaction
        self._resolver_is_async = declaration.resolver is not None and is_async(declaration.resolver)
        name, number = declaration.name, declaration.concurrency
        self.inline = may_be_inline and number == 1 and not self._handler_is_async and declaration.resolver is None
        """They run on the thread that starts them: `start` returns when they have ended."""
        gives_more = self._records or transaction is not None or declaration.resolver is not None
        self._call_with_message = call if isinstance(call, CallWithMessage) and not gives_more else None
        self._function: Any = self._call_with_message and self._call_with_message.function
        on_threads = not self.inline and (
            not self._handler_is_async or (declaration.resolver is not None and not self._resolver_is_async)
        )
        self._run_one: Callable[..., None] = self._execute if self._function is None else self._execute_with_message
        may_be_here = may_be_inline and not self._handler_is_async and declaration.resolver is None
        number_on_threads = number if on_threads else 0
        go_on = go_on if may_be_here else None
        self._threads = HandlerThreads(name, number_on_threads, self._run_one, self.finished, bell.ring, go_on)
        on_loop = self._handler_is_async or self._resolver_is_async
        self._loop = HandlerLoop(name, number, self._execute_async, self._done) if on_loop else None

    def begin(self) -> None:
        """Start the threads."""
        self._threads.begin()
        if self._loop is not None:
            self._loop.begin()

    def items(self, works: Sequence[Work]) -> Sequence[Item]:
        """What one call each is about."""
        batch = self._declaration.batch
        return works if batch == 1 else grouped(works, batch)

    def start(self, items: Sequence[Item]) -> None:
        """Run these, in order; those there is no room for wait."""
        if self.inline:
            for item in items:
                self._run_one(item)
                self.finished.append(item)
        elif self._loop is None:
            self._threads.start(items)
        else:
            awaited = [item for item in items if self._is_async(item)]
            self._threads.start([item for item in items if not self._is_async(item)])
            if awaited:
                self._loop.start(awaited)

    @property
    def quick(self) -> bool:
        """They return at once: `run_here`."""
        return self._threads.quick.now

    def run_here(self, items: Sequence[Item]) -> bool:
        """Run these on the thread that calls. False: one was not quick, and another thread goes on in its place; then `serve`."""
        return self._threads.run_here(items)

    def serve(self) -> None:
        """Be a handler's thread, until `stop`."""
        self._threads.serve()

    def all_back(self) -> None:
        """All that was started has been collected."""
        self._threads.all_back()

    def rest(self) -> None:
        """Nothing is to be started for now."""
        self._threads.quick.rest()

    @property
    def inside(self) -> bool:
        """Whoever asks is on one of its threads."""
        return self._threads.inside or (self._loop is not None and self._loop.inside)

    @property
    def cancellable(self) -> int:
        """How many async handlers run."""
        return self._loop.active if self._loop is not None else 0

    def cancel(self) -> None:
        """Cancel the async handlers that run; they come back with CancelledError. Threads cannot be cancelled."""
        if self._loop is not None:
            self._loop.cancel()

    def stop(self, timeout: float | None) -> None:
        """End the threads once their work is done; wait `timeout` seconds for each."""
        self._threads.stop(timeout)
        if self._loop is not None:
            self._loop.stop(timeout)

    def _is_async(self, item: Item) -> bool:
        question = isinstance(item, Work) and item.question is not None
        return self._resolver_is_async if question else self._handler_is_async

    def _done(self, item: Item) -> None:
        self.finished.append(item)
        self._bell.ring()

    def _execute_with_message(self, work: Any) -> None:
        """`_execute` where there is nothing but the handler, and that takes nothing but the message or its body."""
        try:
            returned = self._function(work.message)
            if returned is not None and self._call_with_message is not None:
                self._call_with_message.check(returned)
        except BaseException as error:  # noqa: BLE001  as below
            work.error = error

    def _execute(self, work: Item) -> None:
        if isinstance(work, Batch):
            self._execute_batch(work)
            return
        try:
            if work.question is not None:
                assert self._declaration.resolver is not None
                work.answer = self._declaration.resolver(self._request(work))
                return
            delivery = self._delivery(work)
            if self._records:
                with self._recording(work, delivery):
                    self._run(work, delivery)
            else:
                self._run(work, delivery)
            if self._transaction is not None:
                self._transaction.commit((work,))
        except BaseException as error:  # noqa: BLE001  whatever application code raises is the result of this work
            work.error = error
            if self._transaction is not None and work.question is None:
                self._transaction.failed(error)

    def _run(self, work: Work, delivery: Delivery) -> None:
        try:
            self._call(work.message, delivery)
        finally:
            gathered = delivery.returned()
        if gathered:
            self._send(gathered)

    async def _execute_async(self, work: Item, sender: ThreadPoolExecutor) -> None:
        if isinstance(work, Batch):
            await self._execute_batch_async(work, sender)
            return
        try:
            if work.question is not None:
                assert self._declaration.resolver is not None
                # The pipeline decides at the time limit; a moment later the call ends too, so that it keeps nobody waiting.
                async with asyncio.timeout(self._declaration.options.resolver_timeout + LAST_MOMENT):
                    work.answer = await self._declaration.resolver(self._request(work))
                return
            delivery = self._delivery(work)
            try:
                await self._call(work.message, delivery)
            finally:
                gathered = delivery.returned()
            if gathered:
                await asyncio.get_running_loop().run_in_executor(sender, self._send, gathered)
            if self._transaction is not None:
                await asyncio.get_running_loop().run_in_executor(sender, self._transaction.commit, (work,))
        except BaseException as error:  # noqa: BLE001  as above; a cancellation is a result too
            work.error = error
            if self._transaction is not None and work.question is None:
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(sender, self._transaction.failed, error))

    def _execute_batch(self, batch: Batch) -> None:
        prepared = self._prepared(batch)
        if not prepared.rows:
            return
        try:
            try:
                self._batch_call(prepared.rows)
            finally:
                gathered = prepared.returned()
            if gathered:
                self._send(gathered)
            if self._transaction is not None:
                self._transaction.commit(prepared.works)
        except BaseException as error:  # noqa: BLE001  as above
            prepared.failed(error)
            if self._transaction is not None:
                self._transaction.failed(error)

    async def _execute_batch_async(self, batch: Batch, sender: ThreadPoolExecutor) -> None:
        prepared = self._prepared(batch)
        if not prepared.rows:
            return
        try:
            try:
                await self._batch_call(prepared.rows)
            finally:
                gathered = prepared.returned()
            if gathered:
                await asyncio.get_running_loop().run_in_executor(sender, self._send, gathered)
            if self._transaction is not None:
                await asyncio.get_running_loop().run_in_executor(sender, self._transaction.commit, prepared.works)
        except BaseException as error:  # noqa: BLE001  as above
            prepared.failed(error)
            if self._transaction is not None:
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(sender, self._transaction.failed, error))

    def _prepared(self, batch: Batch) -> Prepared:
        prepared = Prepared(((work, self._delivery(work)) for work in batch.works), self._batch_call)
        if self._transaction is not None and not prepared.rows:
            self._transaction.take_back()
        return prepared

    def _recording(self, work: Work, delivery: Delivery) -> AbstractContextManager[None]:
        """The history's transaction, where the handler asks for it (TR-36)."""
        declaration = self._declaration
        if declaration.history is None:
            return NOTHING
        completion = None
        if work.claimed:
            assert work.id is not None
            assert work.source is not None
            completion = Complete(
                trigger=declaration.name,
                id=work.id,
                source=work.source,
                token=work.token,
                outcome="done",
                history_ttl=declaration.history_ttl,
            )
        return recording(declaration.history, work, delivery, completion)

    def _delivery(self, work: Work) -> Delivery:
        delivery = Delivery(
            message=work.message,
            trigger=self._declaration.name,
            status=Status.NEW,
            attempt=work.attempt,
            history_entry=work.entry,
            fencing_token=work.fencing_token,
        )
        if self._transaction is not None:
            delivery.session = self._transaction.lend(to_one_thread=not self._handler_is_async)
        return delivery

    def _request(self, work: Work) -> ResolverRequest:
        return ResolverRequest(
            id=work.id,
            source=work.source,
            trigger=self._declaration.name,
            message=work.message,
            delivery_count=work.arrival.delivery_count,
            entry=work.entry,
        )
