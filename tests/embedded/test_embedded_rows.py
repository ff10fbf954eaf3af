"""What of a message is in its row: everything comes back, whatever it is, plain ones in columns; stores of the formats before."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsclient.conversion import Byte
from jmsclient.envelope import encode
from jmsclient.errors import MessageFormatError, StoreError
from jmsclient.message import Content, MessageKind, PlainContent
from jmsclient_embedded.changes import Changes, Place, runs
from jmsclient_embedded.rows import Columns, columns, envelope, read
from jmsclient_embedded.store import Store
from jmsclient_embedded.store_file import APPLICATION_ID, FORMAT

from .conftest import Connect

_HEADERS = (
    "destination", "persistent", "priority", "timestamp", "expiration", "delivery_time", "correlation_id", "reply_to", "type",
)  # fmt: skip


def plain(body: object = "body", kind: MessageKind = MessageKind.TEXT, **more: object) -> PlainContent:
    given: dict[str, object] = {"message_id": "ID:1", "destination": "queue:///q", "timestamp": 1.25, **more}
    return PlainContent(kind=kind, body=body, **given)  # type: ignore[arg-type]


def everything(content: Content) -> object:
    return (
        content.kind,
        content.message_id,
        content.body(),
        dict(content.properties()),
        [content.header(name) for name in _HEADERS],
    )


def stored(content: PlainContent) -> Columns:
    """What is stored of it."""
    (row,) = columns([content])
    assert row is not None
    return row


def through_sqlite(row: Columns) -> tuple[object, object, object, object, object]:
    """(content, id, destination, priority, timestamp) as SQLite gives them back, from a table as the store's."""
    content, id_, timestamp, head = row
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE t (content BLOB NOT NULL, id TEXT, destination TEXT, priority INTEGER, timestamp REAL)")
        connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", (content, id_, *head, timestamp))
        (found,) = connection.execute("SELECT * FROM t").fetchall()
    finally:
        connection.close()
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "content",
    [
        plain(),
        plain(""),
        plain("\0 with \0 nothing \0"),
        plain("12"),
        plain(b"bytes \xff\0", MessageKind.BYTES),
        plain(b"", MessageKind.BYTES),
        plain(priority=9, destination="topic:///t/a%20b"),
        plain(timestamp=3.0),
    ],
)
def test_a_plain_message_is_in_columns(content: PlainContent) -> None:
    row = stored(content)
    assert row == (content.body(), content.message_id, content.timestamp, (content.destination, content.priority))
    again = read(*through_sqlite(row))
    assert isinstance(again, PlainContent)
    assert everything(again) == everything(content)
    assert again.size == content.size


@pytest.mark.parametrize(
    "content",
    [
        plain("ü"),
        plain("half a surrogate \ud800"),
        plain(message_id="ID:ü"),
        plain(destination="queue:///\udfff"),
        plain(None),
        plain(b"x", MessageKind.OBJECT),
        plain({"a": 1, "b": b"\0"}, MessageKind.MAP),
        plain([1, Byte(2), "x"], MessageKind.STREAM),
        plain(None, MessageKind.MESSAGE),
        plain(properties={"n": 1}),
        plain(correlation_id="c"),
        plain(reply_to="queue:///r"),
        plain(type="t"),
        plain(expiration=4e9),
        plain(delivery_time=4e9),
        plain(message_id=None),
        plain(destination=None),
        plain(timestamp=None),
        plain(timestamp=3),
        plain(timestamp=1e305),
        plain(priority=12),
        plain(priority=2**70),
        plain(priority=None),
    ],
)
def test_any_other_is_an_envelope(content: PlainContent) -> None:
    row = stored(content)
    assert row == envelope(content) == (encode(content), None, None, (None, None))
    assert everything(read(*through_sqlite(row))) == everything(content)


@given(
    body=st.text() | st.binary(),
    destination=st.none() | st.text(),
    message_id=st.none() | st.text(),
    timestamp=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    priority=st.integers(-1, 11),
    more=st.sampled_from([{}, {"properties": {"a": True}}, {"type": "t"}, {"expiration": 2.0}]),
)
def test_everything_comes_back(
    body: str | bytes,
    destination: str | None,
    message_id: str | None,
    timestamp: float | None,
    priority: int,
    more: dict[str, object],
) -> None:
    kind = MessageKind.TEXT if isinstance(body, str) else MessageKind.BYTES
    content = plain(body, kind, destination=destination, message_id=message_id, timestamp=timestamp, priority=priority, **more)
    assert everything(read(*through_sqlite(stored(content)))) == everything(content)


@pytest.mark.parametrize(
    "row",
    [
        ("text", None, None, None, None),
        (b"\0", None, None, None, None),
        ("text", "ID:1", None, 4, 1.0),
        ("text", "ID:1", "queue:///q", None, 1.0),
        (5, "ID:1", "queue:///q", 4, 1.0),
        (b"x", b"ID:1", "queue:///q", 4, 1.0),
    ],
)
def test_columns_that_nobody_writes_are_refused(row: tuple[object, object, object, object, object]) -> None:
    with pytest.raises(MessageFormatError):
        read(*row)


def test_a_send_mixes_whatever_it_likes() -> None:
    sent = [
        plain("a"),
        plain("b", persistent=False),
        plain("ü"),
        plain("c"),
        plain("d", priority=5),
        plain("e", destination="queue:///r"),
    ]
    rows = columns(sent)
    assert rows[1] is None
    assert [row and row[0] for row in rows] == ["a", None, encode(sent[2]), "c", "d", "e"]
    assert [everything(read(*through_sqlite(row))) for row in rows if row] == [everything(one) for one in sent if one.persistent]


# -- what goes in --------------------------------------------------------------------------------------------------------------


def changed(number: int, place: Place = ("q", 0, "queue:///q", 4)) -> Changes:
    return Changes(inserts={place: [(one, str(one), f"ID:{one}", 0.5 * one) for one in range(1, number + 1)]})


@pytest.mark.parametrize("number", [1, 7, 8, 9, 63, 64, 65, 137])
def test_any_number_of_messages_is_stored_whatever_a_statement_takes(tmp_path: Path, number: int) -> None:
    store = Store(tmp_path / "shop.db")
    store.write(changed(number))
    store.write(Changes(inserts={("r", 3, None, None): [(1000, encode(plain("ü")), None, None)]}))
    found = list(store.load())
    assert [(row.sequence, row.queue, row.count, row.content.body()) for row in found] == [
        *((one, "q", 0, str(one)) for one in range(1, number + 1)),
        (1000, "r", 3, "ü"),
    ]
    one = found[number - 1].content
    assert everything(one) == everything(plain(str(number), message_id=f"ID:{number}", timestamp=0.5 * number))
    store.close()


def test_a_batch_that_is_one_statement_is_one_and_any_other_says_in_which_order() -> None:
    assert len(changed(64).statements()) == 1
    assert len(Changes(deletes=[4, 5, 6]).statements()) == 1
    both = changed(73)
    both.deletes, both.counts, both.definitions = [5, 9], {7: 1}, {"q": {"a": 1}, "r": None}
    assert [sql.split()[0] for sql, _ in both.statements()] == ["INSERT"] * 3 + ["UPDATE", "DELETE", "DELETE", "INSERT", "DELETE"]


def test_no_parameter_has_a_number() -> None:
    """Python 3.12.0 to 3.12.3 warn of each where a sequence is given: six times the cost of the row."""
    both = changed(73)
    both.deletes, both.counts, both.definitions = [5, 9], {7: 1}, {"q": {"a": 1}, "r": None}
    for sql, values in both.statements():
        assert re.findall(r"\?\w|:\w|@\w", sql) == []
        assert sql.count("?") == len(values)


@pytest.mark.parametrize("number", [1, 64, 65])
def test_a_batch_that_fails_is_not_there_at_all(tmp_path: Path, number: int) -> None:
    store = Store(tmp_path / "shop.db")
    store.write(changed(1, ("r", 0, None, None)))
    with pytest.raises(StoreError, match="nothing of the batch is stored"):
        store.write(changed(number))  # whose first has the number of the one that is there
    again = Changes(inserts={("q", 0, None, None): [(number + 1, b"x", None, None), (1, b"x", None, None)]})
    with pytest.raises(StoreError, match="nothing of the batch is stored"):
        store.write(again)
    assert store._connection.execute("SELECT sequence, queue FROM messages").fetchall() == [(1, "r")]
    store.write(Changes(deletes=[1]))
    store.write(changed(number))
    assert len(list(store.load())) == number
    store.close()


def test_what_is_left_of_a_batch_that_failed_is_written_with_the_next(tmp_path: Path) -> None:
    first = changed(3)
    first.inserts[("r", 0, None, None)] = [(4, b"x", None, None)]
    assert first.without({2}) == {("q", 0, "queue:///q", 4): [(1, "1", "ID:1", 0.5), (3, "3", "ID:3", 1.5)]} | {
        ("r", 0, None, None): [(4, b"x", None, None)]
    }
    assert first.without({4, 7}) == changed(3).inserts
    assert not Changes(inserts=first.without({1, 2, 3, 4}))
    later = Changes(inserts={("q", 0, "queue:///q", 4): [(9, "9", "ID:9", 0.0)], ("s", 0, None, None): []})
    both = first.then(later).inserts
    assert [row[0] for row in both["q", 0, "queue:///q", 4]] == [1, 2, 3, 9]
    assert set(both) == {*first.inserts, *later.inserts}


# -- stores of older formats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, FORMAT))
def test_a_store_of_a_format_before_is_brought_to_the_present_one(tmp_path: Path, connect: Connect, version: int) -> None:
    file = tmp_path / "shop.db"
    connection = sqlite3.connect(file)
    connection.executescript(
        f"""
        BEGIN IMMEDIATE;
        PRAGMA application_id = {APPLICATION_ID};
        PRAGMA user_version = {version};
        CREATE TABLE store (id BLOB NOT NULL);
        INSERT INTO store VALUES (x'{"ab" * 16}');
        CREATE TABLE queues (name TEXT PRIMARY KEY, settings TEXT NOT NULL);
        CREATE TABLE messages (sequence INTEGER PRIMARY KEY, queue TEXT NOT NULL, count INTEGER NOT NULL, envelope BLOB NOT NULL);
        COMMIT;
        PRAGMA journal_mode = WAL;
        """
    )
    old = [plain(str(number), properties={"n": number}) for number in range(3)]
    connection.executemany(
        "INSERT INTO messages VALUES (?, 'q', ?, ?)", [(7 + number, number, encode(one)) for number, one in enumerate(old)]
    )
    connection.commit()
    connection.close()
    client = connect(f"embedded:?store={file}")
    client.send("new")
    client.transport.close(None)
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    assert connection.execute("SELECT sequence, id IS NULL FROM messages").fetchall() == [(7, 1), (8, 1), (9, 1), (10, 0)]
    connection.close()
    client = connect(f"embedded:?store={file}")
    assert client.shown() == [("visible", 0), ("visible", 1), ("visible", 2), ("visible", 0)]
    assert [everything(one.content) for one in client.take(3)[1]] == [everything(one) for one in old]
    client.transport.close(None)


# -- what leaves ---------------------------------------------------------------------------------------------------------------


def test_runs_have_no_gap() -> None:
    assert runs([5]) == [(5, 5)]
    assert runs([5, 6, 7]) == [(5, 7)]
    assert runs([7, 6, 5]) == [(5, 7)]
    assert runs([1, 2**40]) == [(1, 1), (2**40, 2**40)]
    assert runs([3, 1, 2, 2, 9, 7, 8, 11]) == [(1, 3), (7, 9), (11, 11)]


@given(st.sets(st.integers(1, 60), min_size=1), st.permutations(range(1, 61)))
def test_exactly_what_is_deleted_goes(deleted: set[int], order: list[int]) -> None:
    left = set(range(1, 61))
    for first, last in runs([one for one in order if one in deleted]):
        left -= set(range(first, last + 1))
    assert left == set(range(1, 61)) - deleted


def test_rows_between_the_deleted_ones_stay(tmp_path: Path) -> None:
    store = Store(tmp_path / "shop.db")
    store.write(changed(10))
    store.write(Changes(deletes=[9, 2, 3, 4, 6]))
    assert [row.content.body() for row in store.load()] == ["1", "5", "7", "8", "10"]
    store.close()
