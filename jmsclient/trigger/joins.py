"""Joins: several destinations, one handler (TR-63). OR runs each message; XOR the first of an activation; AND the complete set.

An AND or XOR message is checked like any other; then, instead of being run, it is added to the set of its activation id in the
history, is `joined` there, and acknowledged. A complete set is found by the worker that looks for decided copies, and is run from
them, once. One that waited too long is parked. The pipeline thread's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import unquote

from jmsclient.envelope import EnvelopeContent, decode, encode
from jmsclient.history.contract import new_token, stored_id
from jmsclient.history.entries import Entry, Join, Reply, frames
from jmsclient.message import Body, Content, Message, MessageKind, PropertyValue
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.join_spec import JoinSpec
from jmsclient.trigger.work import Work

SOURCE = "activation"
"""Where the id of a set comes from."""


class Joining:
    """What is done with a message of an AND or XOR join. `refuse` dead-letters it, with a reason; `in_doubt` parks it; `completed`
    is called when a set is complete; `failed` takes what the application's own function raised."""

    def __init__(
        self,
        desk: Desk,
        spec: JoinSpec,
        *,
        refuse: Callable[[Work, str], None],
        in_doubt: Callable[[Work, str], None],
        failed: Callable[[Work, BaseException], None],
        completed: Callable[[], None],
    ) -> None:
        self._desk = desk
        self._spec = spec
        self._refuse = refuse
        self._in_doubt = in_doubt
        self._failed = failed
        self._completed = completed
        self._needed = len(spec.destinations) if spec.kind == "and" else 1

    def join(self, work: Work) -> None:
        """Add it to its set; then it is joined and acknowledged."""
        desk = self._desk
        assert desk.ledger is not None
        try:
            activation = self._spec.activation_of(work.message)
            envelope = encode(work.arrival.content)
        except BaseException as error:  # noqa: BLE001  the application's function, or a message that cannot be read
            self._failed(work, error)
            return
        if activation is None:
            desk.tell("no_activation", work, logging.ERROR, "has no activation id, which this join needs: refused")
            self._refuse(work, "no_activation")
            return
        command = Join(
            trigger=desk.declaration.name,
            id=stored_id(activation),
            source=SOURCE,
            token=SOURCE,
            history_ttl=desk.declaration.history_ttl,
            place=self._place(work) if self._spec.kind == "and" else "first",
            member=work.id or new_token(),
            envelope=envelope,
            needed=self._needed,
            expires=self._spec.expires,
        )
        desk.ledger.add(command, work, lambda work, reply: self._joined(work, activation, reply))

    def _place(self, work: Work) -> str:
        """Where it came from: a parked copy by what it says, for any lane may be given it."""
        own = self._desk.declaration.destination.address
        said = work.arrival.content.header("destination") if work.parked is not None else own
        return said if said in [one.address for one in self._spec.destinations] else own

    def _joined(self, work: Work, activation: str, reply: Reply) -> None:
        desk = self._desk
        if reply.done or self._spec.kind == "xor":
            text = f"joins {activation}" if reply.done else f"is not the first of {activation}: not run"
            desk.tell("joined" if reply.done else "not_first", work, logging.INFO, text, answer=activation)
            desk.complete(work, "joined")
            if len(members(reply.entry)) + 1 >= self._needed:
                self._completed()
        else:
            self._in_doubt(work, "join_taken")


def members(entry: Entry | None) -> list[str]:
    """Whose places of a set are taken, in the order in which they joined."""
    lines = (entry.body_hash if entry is not None else None) or b""
    return [unquote(line.split(b" ")[0].decode()) for line in lines.splitlines() if line]


class SetContent(Content):
    """A set as if it were one message: its id is the activation's, its members are messages."""

    __slots__ = ("activation", "kind", "members", "message_id")

    def __init__(self, activation: str, copy: bytes) -> None:
        """Raises MessageFormatError."""
        self.activation = activation
        self.message_id = activation
        self.kind = MessageKind.STREAM
        self.members: list[EnvelopeContent] = [decode(one) for one in frames(copy)]

    def header(self, name: str) -> Any:
        return self.members[0].header(name)

    def properties(self) -> Mapping[str, PropertyValue]:
        return {}

    def body(self) -> Body:
        return cast("Body", [one.body() for one in self.members])


def messages(work: Work) -> list[Message]:
    """The message, or those of the set."""
    content = work.arrival.content
    if not isinstance(content, SetContent):
        return [work.message]
    return [Message.received(one, work.arrival.delivery_count) for one in content.members]
