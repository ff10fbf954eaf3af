"""Messages of which something cannot be read: each goes where any that failed goes, whole as it came, and ends no trigger (IF-19,
TR-34, TR-45, TR-63)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Message, Status, TriggerOptions, Worker, envelope
from jmsclient.errors import MessageFormatError
from jmsclient.history import open_history
from jmsclient.message import MessageKind, PlainContent
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.trigger import carrying_out
from jmsclient.trigger.unreadable import UNREADABLE

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
ERRORS = "queue:///errors"
RAW = b"\xff as it came"
Until = Callable[..., None]


class Garbled(PlainContent):
    """Of which one part cannot be read."""

    __slots__ = ("part", "raw")

    def __init__(self, part: str, raw: bytes | None = RAW) -> None:
        super().__init__(kind=MessageKind.TEXT, body="never read", message_id="ID:1", correlation_id="c", timestamp=1.0)
        self.part = part
        self.raw = raw

    def body(self) -> Any:
        self._read("body")
        return super().body()

    def properties(self) -> Any:
        self._read("properties")
        return super().properties()

    def header(self, name: str) -> Any:
        if name == "timestamp":
            self._read("header")
        return super().header(name)

    def encoded(self) -> bytes | None:
        return self.raw

    def _read(self, part: str) -> None:
        if self.part == part:
            raise MessageFormatError(f"its {part} is garbled")


PARTS = ["body", "properties", "header"]


def raises(message: Message) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("raw", [RAW, None], ids=["raw", "no raw"])
@pytest.mark.parametrize("part", PARTS)
def test_tr45_the_copy_that_goes_to_the_error_destination_has_the_bytes_as_they_came(
    backend: ScriptedBackend, until: Until, part: str, raw: bytes | None
) -> None:
    worker = Worker(backend.url, history="memory:")
    worker.trigger(Q, error_destination=ERRORS)(raises)
    with worker:
        backend.deliver(Q, Garbled(part, raw))
        until(lambda: backend.settlements)
    assert verbs(backend) == [Verb.ACCEPT]
    (copy,) = backend.waiting(ERRORS)
    assert (copy.message_id, copy.correlation_id) == ("ID:1", "c")
    assert copy.body() == raw
    assert copy.kind is (MessageKind.MESSAGE if raw is None else MessageKind.BYTES)
    assert copy.properties()[UNREADABLE] == f"its {part} is garbled"
    assert copy.properties()["JMS_jmsclient_reason"] == "handler_failed"


@pytest.mark.parametrize("part", ["body", "header"])
def test_tr34_one_that_is_in_doubt_is_parked_as_it_came_and_can_be_decided(
    backend: ScriptedBackend, until: Until, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying_out, "LOOK_INTERVAL", 0.05)
    ran: list[Any] = []
    with open_history(f"sqlite:{tmp_path / 'history.db'}") as history:
        history.claim(Q, "ID:1", lease=0.001)
        worker = Worker(backend.url, history=history)

        @worker.trigger(Q)
        def book(message: Message) -> None:
            ran.append((message.body, message.properties[UNREADABLE]))

        with worker:
            until(lambda: (entry := history.lookup(Q, "ID:1")) is not None and not entry.lease_alive)
            backend.deliver(Q, Garbled(part), delivery_count=2)
            until(lambda: backend.settlements)
            (parked,) = history.in_doubt()
            assert envelope.decode(parked.envelope).body() == RAW
            history.decide(Q, "ID:1", Status.NEW, "ada")
            until(lambda: ran)
    assert verbs(backend) == [Verb.ACCEPT]
    assert ran == [(RAW, f"its {part} is garbled")]


@pytest.mark.parametrize("part", PARTS)
def test_tr63_one_cannot_be_joined_and_is_dead_lettered(backend: ScriptedBackend, until: Until, part: str, tmp_path: Path) -> None:
    worker = Worker(backend.url, history=f"sqlite:{tmp_path / 'history.db'}")

    @worker.join([Q, "queue:///payments"], "and", lambda message: "x", error_destination=ERRORS)
    def book(messages: list[Message]) -> None:
        raise AssertionError("no set is complete")

    with worker:
        backend.deliver(Q, Garbled(part))
        until(lambda: backend.settlements)
    assert verbs(backend) == [Verb.ACCEPT]
    assert [one.body() for one in backend.waiting(ERRORS)] == [RAW]


def test_tr47_one_whose_id_is_of_a_body_that_can_be_read_is_dead_lettered(backend: ScriptedBackend, until: Until) -> None:
    worker = Worker(backend.url, history="memory:")
    worker.trigger(Q, error_destination=ERRORS, options=TriggerOptions(body_check=True))(raises)
    with worker:
        backend.deliver(Q, Garbled("body"))
        until(lambda: backend.settlements)
    assert [one.body() for one in backend.waiting(ERRORS)] == [RAW]


def test_tr45_one_that_no_handler_saw_goes_back_counted_so_that_the_providers_limit_ends_it(
    backend: ScriptedBackend, until: Until
) -> None:
    worker = Worker(backend.url, history="memory:")
    worker.trigger(Q, on_error="redeliver")(raises)
    with worker:
        backend.deliver(Q, Garbled("properties"))
        until(lambda: len(backend.settlements) >= 2)
    assert verbs(backend)[:2] == [Verb.RETRY] * 2
