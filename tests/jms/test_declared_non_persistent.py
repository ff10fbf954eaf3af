"""A destination that is declared non-persistent and read ahead: the provider may settle when it sends (RA-1, RA-5, IF-25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, Queue
from jmsclient.options import ConnectionOptions, DefaultReadAhead
from jmsclient.testing.scripted import ScriptedBackend
from jmsclient.testing.scripted_session import ScriptedSession
from jmsclient.transport.contract import ReceiverSpec
from jmsclient.transport.registry import parse_url


@pytest.fixture
def specs(monkeypatch: pytest.MonkeyPatch) -> list[ReceiverSpec]:
    """What the scripted backend was asked to open."""
    found: list[ReceiverSpec] = []
    opened = ScriptedSession.open_receiver

    def open_receiver(self: ScriptedSession, spec: ReceiverSpec, *rest: Any) -> Any:
        found.append(spec)
        return opened(self, spec, *rest)

    monkeypatch.setattr(ScriptedSession, "open_receiver", open_receiver)
    return found


CASES: dict[str, tuple[bool, dict[str, Any], AcknowledgeMode, DefaultReadAhead, dict[str, Any]]] = {
    "declared and asked for": (
        True, {"persistence": "non", "read_ahead_allowed": "yes"}, AcknowledgeMode.AUTO, DefaultReadAhead.NO, {},
    ),
    "declared, and the provider's default": (True, {"persistence": "non"}, AcknowledgeMode.DUPS_OK, DefaultReadAhead.YES, {}),
    "declared, and nobody asks": (False, {"persistence": "non"}, AcknowledgeMode.AUTO, DefaultReadAhead.NO, {}),
    "declared, and the destination says no": (
        False, {"persistence": "non", "read_ahead_allowed": "no"}, AcknowledgeMode.AUTO, DefaultReadAhead.YES, {},
    ),
    "the provider forbids": (
        False, {"persistence": "non", "read_ahead_allowed": "yes"}, AcknowledgeMode.AUTO, DefaultReadAhead.DISABLED, {},
    ),
    "not declared": (False, {"read_ahead_allowed": "yes"}, AcknowledgeMode.AUTO, DefaultReadAhead.NO, {}),
    "declared persistent": (
        False, {"persistence": "pers", "read_ahead_allowed": "yes"}, AcknowledgeMode.AUTO, DefaultReadAhead.NO, {},
    ),
    "the mode forbids": (
        False, {"persistence": "non", "read_ahead_allowed": "yes"}, AcknowledgeMode.CLIENT, DefaultReadAhead.NO, {},
    ),
    "a transaction forbids": (
        False, {"persistence": "non", "read_ahead_allowed": "yes"}, AcknowledgeMode.TRANSACTED, DefaultReadAhead.NO, {},
    ),
    "no window": (
        False, {"persistence": "non", "read_ahead_allowed": "yes"}, AcknowledgeMode.AUTO, DefaultReadAhead.NO, {"prefetch": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("takes_all", "flags", "mode", "default", "consumer"), CASES.values(), ids=CASES)
def test_ra_5_the_backend_hears_that_everything_is_taken(
    specs: list[ReceiverSpec],
    takes_all: bool,
    flags: dict[str, Any],
    mode: AcknowledgeMode,
    default: DefaultReadAhead,
    consumer: dict[str, Any],
) -> None:
    options = ConnectionOptions(default_read_ahead=default)
    with (
        ScriptedBackend() as backend,
        Connection(parse_url(backend.url), start=True, request_timeout=10.0, options=options) as connection,
    ):
        made = connection.create_session(mode).create_consumer(Queue("Q", **flags), **consumer)
        assert specs[-1].takes_all is takes_all
        assert made.read_ahead.status.name == "YES" or not takes_all
        assert not specs[-1].pre_settled, "what the caller asks for is another thing than what may be done"


@pytest.mark.parametrize("kind", ["at_most_once", "declared"])
def test_ra_16_a_persistent_message_that_was_sent_settled_counts_as_discarded(
    connection: Connection, put: Callable[..., list[str]], wait_until: Callable[..., None], kind: str
) -> None:
    """It is lost by what the user declared, so the report says so; nobody takes it for one whose receive was struck."""
    put("a", "b", "c")
    target = Queue("Q", persistence="non", read_ahead_allowed="yes") if kind == "declared" else Queue("Q")
    consumer = connection.create_session().create_consumer(target, at_most_once=True)
    message = consumer.receive(5.0)
    assert message is not None
    assert message.text == "a"
    wait_until(lambda: consumer.read_ahead.buffered_taken == 2)
    report = consumer.close()
    assert (report.delivered, report.released, report.discarded) == (0, 0, 2)
