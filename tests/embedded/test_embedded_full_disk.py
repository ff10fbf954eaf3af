"""A disk that is full: what ends although nothing can be written, and what is written later (IF-9, IF-14, IF-28)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jmsclient import AcknowledgeMode
from jmsclient import connect as connect_public
from jmsclient.errors import SendError, StoreError
from jmsclient_embedded.changes import Changes, Statement
from jmsclient_embedded.store import Store

from .conftest import Client, Connect, until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:?store={tmp_path / 'shop.db'}"


@pytest.fixture
def disk(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """`full(disk)` makes every write of the store fail until `disk.undo()`."""
    with monkeypatch.context() as disk:
        yield disk
    client.session.flush(None)


def full(disk: pytest.MonkeyPatch) -> None:
    def write(store: Store, changes: object) -> None:
        if changes:
            raise StoreError("no space left")

    disk.setattr(Store, "write", write)


@pytest.mark.parametrize("public", [False, True])
def test_a_rollback_is_done_although_its_counts_cannot_be_written(
    client: Client, connect: Connect, url: str, disk: pytest.MonkeyPatch, public: bool
) -> None:
    client.send("a", "b")
    if public:
        with connect_public(url) as connection, connection.create_session(AcknowledgeMode.TRANSACTED) as session:
            consumer = session.create_consumer("q", prefetch=1)
            assert consumer.receive(5) is not None
            full(disk)
            session.rollback()
            again = consumer.receive(5)
            assert again is not None
            assert (again.text, again.delivery_count) == ("a", 2)
            disk.undo()
            session.commit()
        assert client.bodies() == ["b"]
    else:
        tx = connect(transacted=True)
        receiver, arrivals = tx.take(1, hand_over=True)
        receiver.accept(arrivals[0])
        full(disk)
        tx.rollback()
        assert client.shown() == [("visible", 1), ("visible", 0)]
        disk.undo()


@pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=lambda mode: mode.name)
def test_if_9_a_session_closes_although_nothing_can_be_written(
    client: Client, url: str, disk: pytest.MonkeyPatch, mode: AcknowledgeMode
) -> None:
    client.send("a", "b")
    with connect_public(url) as connection:
        session = connection.create_session(mode)
        consumer = session.create_consumer("q")
        assert consumer.receive(5) is not None
        full(disk)
        consumer.close()
        session.close()
        assert [one.owner for one in client.admin.messages("q") if one.owner is not None] == []
        disk.undo()


def test_a_connection_closes_although_nothing_can_be_written(client: Client, connect: Connect, disk: pytest.MonkeyPatch) -> None:
    client.send("a")
    other = connect()
    other.take(1, hand_over=True)
    full(disk)
    with pytest.raises(StoreError):
        other.session.close(None)
    other.transport.close(None)
    assert client.shown() == [("visible", 1)]
    disk.undo()


def test_what_was_refused_can_be_sent_again(client: Client, disk: pytest.MonkeyPatch) -> None:
    client.send("a")
    full(disk)
    for _ in range(3):
        with pytest.raises(SendError, match="no space"):
            client.send("b")
    assert client.stats().messages_received == 1
    assert client.numbers() == (1, 0)
    disk.undo()
    client.send("b")
    until(lambda: client.bodies() == ["a", "b"])


def test_a_fault_that_nobody_thought_of_fails_the_batch_and_the_store_goes_on(client: Client, disk: pytest.MonkeyPatch) -> None:
    """It ended the store's thread, and whoever sent waited for the whole confirmation time-out: so it was with `-W error`."""

    def statements(changes: Changes) -> list[Statement]:
        raise DeprecationWarning("as with -W error")

    client.send("a")
    disk.setattr(Changes, "statements", statements)
    with pytest.raises(SendError, match="as with -W error"):
        client.send("b")
    disk.undo()
    client.send("b")
    until(lambda: client.bodies() == ["a", "b"])
