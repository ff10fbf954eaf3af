"""Sessions, links and deliveries: what is received and how it is settled, what is sent and what became of it.

Deliveries are numbers outside of this module: a pointer dies with its connection, a number is then only not found. Every
settlement goes out with an outcome, and modified with both its flags written, whatever version of the engine (IF-22, IF-23).
Used by the thread of the engine only. Source: AMQP 1.0 sections 2.6, 3.4 and 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from cproton_ffi import ffi, lib

from jmsclient_amqp.engine.library import (
    MODIFIED,
    REJECTED,
    RELEASED,
    REMOTE_CLOSED,
    REMOTE_OPEN,
    TRANSACTIONAL,
    UNSPECIFIED,
    Condition,
    condition_of,
    fill,
    text_of,
    value_of,
)
from jmsclient_amqp.primitives import Described

_current, _partial, _recv, _advance = lib.pn_link_current, lib.pn_delivery_partial, lib.pn_link_recv, lib.pn_link_advance
_update, _settle, _settled = lib.pn_delivery_update, lib.pn_delivery_settle, lib.pn_delivery_settled
_delivery, _send, _credit, _remote_state = lib.pn_delivery, lib.pn_link_send, lib.pn_link_credit, lib.pn_delivery_remote_state
_unpack = ffi.unpack
_MESSAGE_BUFFER = 1 << 18
_pack_tag = Struct(">Q")
_ABORTED = bytes(bytearray(b"aborted"))  # known by its identity


def address_of(pointer: Any) -> int:
    """A pointer as a number, to find the object around it again."""
    return int(ffi.cast("uintptr_t", pointer))


class Terminus(NamedTuple):
    """What a source or target is to be: values that are encoded already, None where the field is left out."""

    address: str | None
    capabilities: bytes | None = None
    filters: bytes | None = None
    outcomes: bytes | None = None
    copy: bool = False
    durable: bool = False
    never_expires: bool = False
    dynamic: bool = False
    properties: bytes | None = None
    """Of a dynamic node."""
    coordinator: bool = False
    absent: bool = False
    """Null: to find what the link's name stands for."""


class Disposition(NamedTuple):
    """How to settle. `transaction` is a transactional state (an encoded list of the id and an outcome), with which `code` is
    TRANSACTIONAL."""

    code: int
    failed: bool = False
    undeliverable: bool = False
    condition: Condition | None = None
    transaction: bytes | None = None


class Outcome(NamedTuple):
    """What the peer made of a delivery that was sent: a number of the state, 0 where it settled without one."""

    code: int
    condition: Condition | None = None
    value: Any = None
    """Of a declared transaction: what came in the list."""


def _put(pointer: Any, terminus: Terminus) -> None:
    if terminus.coordinator:
        lib.pn_terminus_set_type(pointer, lib.PN_COORDINATOR)
    if terminus.address is not None:
        lib.pn_terminus_set_address(pointer, terminus.address.encode())
    fill(lib.pn_terminus_capabilities(pointer), terminus.capabilities)
    fill(lib.pn_terminus_filter(pointer), terminus.filters)
    fill(lib.pn_terminus_outcomes(pointer), terminus.outcomes)
    if terminus.copy:
        lib.pn_terminus_set_distribution_mode(pointer, lib.PN_DIST_MODE_COPY)
    if terminus.durable:
        lib.pn_terminus_set_durability(pointer, lib.PN_DELIVERIES)
    if terminus.never_expires:
        lib.pn_terminus_set_expiry_policy(pointer, lib.PN_EXPIRE_NEVER)
    fill(lib.pn_terminus_properties(pointer), terminus.properties)
    if terminus.dynamic:
        lib.pn_terminus_set_dynamic(pointer, True)
    if terminus.absent:
        lib.pn_terminus_set_type(pointer, UNSPECIFIED)


class Scratch:
    """Where messages are copied to first; one an engine."""

    def __init__(self) -> None:
        self.pointer = ffi.new("char[]", _MESSAGE_BUFFER)


class SessionHandle:
    """A session, opened."""

    def __init__(self, pointer: Any, scratch: Scratch) -> None:
        self._session = pointer
        self._scratch = scratch
        lib.pn_session_open(pointer)

    @property
    def remote_open(self) -> bool:
        return bool(lib.pn_session_state(self._session) & REMOTE_OPEN)

    @property
    def remote_closed(self) -> bool:
        return bool(lib.pn_session_state(self._session) & REMOTE_CLOSED)

    @property
    def remote_condition(self) -> Condition | None:
        return condition_of(lib.pn_session_remote_condition(self._session))

    def close(self) -> None:
        lib.pn_session_close(self._session)

    def free(self) -> None:
        lib.pn_session_free(self._session)

    def receiver(self, name: str, source: Terminus, target: Terminus, *, pre_settled: bool, first_number: int = 0) -> ReceivingLink:
        """Attach a receiving link. `first_number` is that of its first delivery, where it takes the place of another."""
        pointer = lib.pn_receiver(self._session, name.encode())
        return ReceivingLink(pointer, source, target, pre_settled=pre_settled, scratch=self._scratch, first_number=first_number)

    def sender(self, name: str, source: Terminus, target: Terminus) -> SendingLink:
        """Attach a sending link."""
        return SendingLink(lib.pn_sender(self._session, name.encode()), source, target, pre_settled=False)


class Link:
    """What both kinds of link share."""

    def __init__(self, pointer: Any, source: Terminus, target: Terminus, *, pre_settled: bool) -> None:
        self._link = pointer
        self.address = address_of(pointer)
        _put(lib.pn_link_source(pointer), source)
        _put(lib.pn_link_target(pointer), target)
        lib.pn_link_set_snd_settle_mode(pointer, lib.PN_SND_SETTLED if pre_settled else lib.PN_SND_UNSETTLED)
        lib.pn_link_set_rcv_settle_mode(pointer, lib.PN_RCV_FIRST)
        lib.pn_link_open(pointer)

    @property
    def remote_open(self) -> bool:
        return bool(lib.pn_link_state(self._link) & REMOTE_OPEN)

    @property
    def remote_closed(self) -> bool:
        return bool(lib.pn_link_state(self._link) & REMOTE_CLOSED)

    @property
    def remote_condition(self) -> Condition | None:
        return condition_of(lib.pn_link_remote_condition(self._link))

    @property
    def refused(self) -> bool:
        """The peer attached without the terminus that was asked for: it is about to say why."""
        return bool(lib.pn_terminus_get_type(self._remote_terminus()) == UNSPECIFIED)

    def _remote_terminus(self) -> Any:
        raise NotImplementedError

    @property
    def remote_address(self) -> str:
        """The address that the peer gave the terminus, of a dynamic one its name."""
        return text_of(lib.pn_terminus_get_address(self._remote_terminus()))

    @property
    def credit(self) -> int:
        return int(_credit(self._link))

    def close(self) -> None:
        """Detach for good."""
        lib.pn_link_close(self._link)

    def blame(self, why: Condition) -> None:
        """Tell the peer so when it is closed or detached."""
        condition = lib.pn_link_condition(self._link)
        lib.pn_condition_set_name(condition, why.name.encode())
        lib.pn_condition_set_description(condition, why.description.encode())

    def detach(self) -> None:
        """Detach so that the peer keeps the terminus (a durable subscription)."""
        lib.pn_link_detach(self._link)

    def free(self) -> None:
        lib.pn_link_free(self._link)


class Taken(NamedTuple):
    """What `ReceivingLink.take` found: (number, bytes, settled by the peer) for each message; how many were aborted."""

    messages: list[tuple[int, bytes, bool]]
    aborted: int


class ReceivingLink(Link):
    """A receiving link and its unsettled deliveries by number. Numbers rise and are never used again."""

    def __init__(
        self, pointer: Any, source: Terminus, target: Terminus, *, pre_settled: bool, scratch: Scratch, first_number: int
    ) -> None:
        super().__init__(pointer, source, target, pre_settled=pre_settled)
        self._unsettled: dict[int, Any] = {}
        self._next = first_number
        self._parts: list[bytes] = []
        self._scratch = scratch

    def _remote_terminus(self) -> Any:
        return lib.pn_link_remote_source(self._link)

    @property
    def remote_filters(self) -> frozenset[str]:
        """The names of the filters that the peer says it applies (IF-26)."""
        found = value_of(lib.pn_terminus_filter(lib.pn_link_remote_source(self._link)))
        return frozenset(str(key) for key in found) if isinstance(found, dict) else frozenset()

    @property
    def next_number(self) -> int:
        """What the next delivery will be called."""
        return self._next

    @property
    def came(self) -> tuple[int, int]:
        """Changes whenever something comes: how many messages there were, and how many bytes of the next."""
        return self._next, sum(map(len, self._parts))

    @property
    def partial(self) -> bool:
        """A message has begun to arrive and has not ended."""
        return bool(_current(self._link))

    def flow(self, credit: int) -> None:
        lib.pn_link_flow(self._link, credit)

    def withdraw(self) -> int:
        """Take back the credit that is out; how much. What the peer has sent before it hears of that comes all the same: see
        `balance`."""
        link = self._link
        credit = max(0, int(_credit(link)) - int(lib.pn_link_queued(link)))  # a message that has begun to arrive has its own
        if credit:
            lib.pn_link_flow(link, -credit)
        return credit

    def balance(self) -> None:
        """No credit where more came than was out: after a withdrawal, or from a broker that does not count well. Before the engine
        writes, for it would write a credit below zero as a very large one; and what is granted later is granted in full."""
        link = self._link
        credit = _credit(link)
        if credit <= 0 and credit < (queued := lib.pn_link_queued(link)):
            lib.pn_link_flow(link, queued - credit)

    def drain(self) -> None:
        """Ask for what is there under the credit that is out, and for the credit back. Adds none (IF-18)."""
        lib.pn_link_drain(self._link, 0)

    @property
    def drained(self) -> bool:
        """No credit is out and no message is half here."""
        if self.credit or self.partial:
            return False
        lib.pn_link_drained(self._link)
        return True

    def take(self) -> Taken:
        """Every message that is complete. The hot path: six calls into the engine a message."""
        link, unsettled = self._link, self._unsettled
        pointer = self._scratch.pointer
        messages: list[tuple[int, bytes, bool]] = []
        aborted = 0
        number = self._next
        while True:
            delivery = _current(link)
            if not delivery:
                break
            whole: bytes | None
            if self._parts or _partial(delivery):
                whole = self._take_part(delivery)
            else:
                size = _recv(link, pointer, _MESSAGE_BUFFER)
                if size == _MESSAGE_BUFFER:
                    self._parts.append(_unpack(pointer, size))
                    whole = self._take_part(delivery)
                else:
                    whole = _unpack(pointer, size) if size >= 0 else self._take_part(delivery)
            if whole is None:
                break
            _advance(link)
            if whole is _ABORTED:
                aborted += 1
                _settle(delivery)
                continue
            settled = _settled(delivery)
            if settled:
                _settle(delivery)  # the peer has settled it: nothing goes out (S01)
            else:
                unsettled[number] = delivery
            messages.append((number, whole, settled))
            number += 1
        self._next = number
        return Taken(messages, aborted)

    def _take_part(self, delivery: Any) -> bytes | None:
        """More of a message that comes in many frames, or is longer than the buffer; whole at its end. None: not yet."""
        while True:
            size = _recv(self._link, self._scratch.pointer, _MESSAGE_BUFFER)
            if size > 0:
                self._parts.append(_unpack(self._scratch.pointer, size))
            elif size == 0 and _partial(delivery):
                return None
            else:
                whole = _ABORTED if lib.pn_delivery_aborted(delivery) else b"".join(self._parts)
                self._parts = []
                return whole

    def settle(self, numbers: list[int], disposition: Disposition) -> int:
        """Settle these; how many were there to be settled."""
        pop, code = self._unsettled.pop, disposition.code
        simple = code not in (MODIFIED, REJECTED, TRANSACTIONAL)
        done = 0
        for number in numbers:
            delivery = pop(number, None)
            if delivery is None:
                continue
            if not simple:
                _describe(delivery, disposition)
            _update(delivery, code)
            _settle(delivery)
            done += 1
        return done

    def leave(self, numbers: list[int]) -> None:
        """Never settle these: the end of the link decides."""
        for number in numbers:
            self._unsettled.pop(number, None)

    def forget(self) -> list[int]:
        """The numbers of what is unsettled, which the peer has taken back."""
        numbers = list(self._unsettled)
        self._unsettled.clear()
        return numbers


def _describe(delivery: Any, disposition: Disposition) -> None:
    """What belongs to an outcome beside its code."""
    local = lib.pn_delivery_local(delivery)
    if disposition.code == MODIFIED:
        lib.pn_disposition_set_failed(local, disposition.failed)
        lib.pn_disposition_set_undeliverable(local, disposition.undeliverable)
    elif disposition.code == TRANSACTIONAL:
        fill(lib.pn_disposition_data(local), disposition.transaction)
    elif disposition.condition is not None:
        condition = lib.pn_disposition_condition(local)
        lib.pn_condition_set_name(condition, disposition.condition.name.encode())
        lib.pn_condition_set_description(condition, disposition.condition.description.encode())


class SendingLink(Link):
    """A sending link and what was sent on it and is not settled, in order. Numbers rise by one."""

    def __init__(self, pointer: Any, source: Terminus, target: Terminus, *, pre_settled: bool) -> None:
        super().__init__(pointer, source, target, pre_settled=pre_settled)
        self._sent: deque[Any] = deque()
        """Up to `_next`, in order; None where it was abandoned."""
        self._next = 0
        self._tag_bytes = bytearray(_pack_tag.size)
        self._tag_pointer = ffi.from_buffer(self._tag_bytes)
        self._tag = ffi.new("pn_bytes_t *", {"size": _pack_tag.size, "start": self._tag_pointer})[0]
        """Of one link, for the calls drop the interpreter's lock; the engine copies it."""

    def _remote_terminus(self) -> Any:
        return lib.pn_link_remote_target(self._link)

    def send(self, message: bytes, transaction: bytes | None = None) -> int:
        """Send one message; its number. Only while there is credit."""
        return self.send_some((message,), transaction)

    def send_some(self, messages: Sequence[bytes | tuple[bytes, ...]], transaction: bytes | None = None) -> int:
        """Send these; the number of the first, those of the others follow it. Only while there is credit for all."""
        link, tag, first = self._link, self._tag, self._next
        sent, pack, place = self._sent.append, _pack_tag.pack_into, self._tag_bytes
        self._next += len(messages)
        for number, message in enumerate(messages, first):
            pack(place, 0, number)
            delivery = _delivery(link, tag)
            if transaction is not None:
                fill(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), transaction)
                _update(delivery, TRANSACTIONAL)
            if isinstance(message, bytes):
                _send(link, message, len(message))
            else:
                for part in message:
                    _send(link, part, len(part))
            _advance(link)
            sent(delivery)
        return first

    def confirmed(self) -> tuple[int, list[Outcome]]:
        """What the peer has settled, or decided, since, from the oldest on; it is settled here too. The number of the first, and
        their outcomes; of what was abandoned, none."""
        found: list[Outcome] = []
        sent = self._sent
        first = self._next - len(sent)
        while sent:
            delivery = sent[0]
            if delivery is None:
                found.append(_UNKNOWN)
                sent.popleft()
                continue
            code = _remote_state(delivery)
            settled = _settled(delivery)
            if not settled and code <= _RECEIVED:
                break
            sent.popleft()
            found.append(_ACCEPTED if code == _ACCEPTED_CODE else _outcome(code, delivery))
            if not settled:
                _update(delivery, code)
            _settle(delivery)
        return first, found

    def abandon(self, first: int, count: int) -> None:
        """Nobody waits for these any more, as far as they are not confirmed."""
        sent = self._sent
        oldest = self._next - len(sent)
        for place in range(max(first - oldest, 0), first - oldest + count):
            delivery, sent[place] = sent[place], None
            if delivery is not None:
                _update(delivery, RELEASED)
                _settle(delivery)

    def forget(self) -> None:
        """What became of what was sent and not confirmed the peer will not tell any more."""
        self._sent.clear()


_ACCEPTED_CODE, _RECEIVED = lib.PN_ACCEPTED, lib.PN_RECEIVED
_ACCEPTED, _UNKNOWN = Outcome(lib.PN_ACCEPTED), Outcome(0)


def _outcome(code: int, delivery: Any) -> Outcome:
    remote = lib.pn_delivery_remote(delivery)
    value: Any = None
    if code not in (0, lib.PN_RECEIVED, lib.PN_ACCEPTED, lib.PN_REJECTED, lib.PN_RELEASED, lib.PN_MODIFIED):
        value = value_of(lib.pn_disposition_data(remote))
    if code == TRANSACTIONAL and isinstance(value, list) and len(value) > 1 and isinstance(value[1], Described):
        return _outcome_in_transaction(value[1])
    condition = condition_of(lib.pn_disposition_condition(remote)) if code == lib.PN_REJECTED else None
    return Outcome(int(code), condition, value)


def _outcome_in_transaction(outcome: Described) -> Outcome:
    """What became of a message within its transaction: the outcome that the transactional state carries."""
    condition = None
    fields = outcome.value if isinstance(outcome.value, list) else []
    if outcome.descriptor == REJECTED and fields and isinstance(fields[0], Described) and isinstance(fields[0].value, list):
        said = [str(one) for one in fields[0].value[:2] if one is not None]
        condition = Condition(*said) if said else None
    return Outcome(outcome.descriptor if isinstance(outcome.descriptor, int) else 0, condition)
