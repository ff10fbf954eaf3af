"""The durable broker: what survives, what is refused, what a full disk does."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from jmsclient.destination import Queue
from jmsclient.errors import ConfigurationError, ConnectionLostError, SendError, StoreError, StoreFormatError, StoreInUseError
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, Verb
from jmsclient.transport.registry import parse_url
from jmsclient_embedded.invariants import check
from jmsclient_embedded.store import Store
from jmsclient_embedded.store_file import APPLICATION_ID, FORMAT
from jmsclient_embedded.transport import EmbeddedBackend

from .conftest import PATIENCE, Client, Connect, content, hand


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"embedded:?store={file}"


def rows(file: Path) -> list[tuple[str, int]]:
    """(queue, count) of what is in the file, read by a program of its own."""
    with sqlite3.connect(file) as connection:
        found = connection.execute("SELECT queue, count FROM messages ORDER BY sequence").fetchall()
    connection.close()
    return found


def end(client: Client) -> None:
    """Close it; with its last connection the store is closed."""
    client.transport.close(None)
    assert client.broker.ended


# -- what survives ---------------------------------------------------------------------------------------------------------


def test_messages_counts_and_order_outlive_the_broker_non_persistent_ones_do_not(connect: Connect, file: Path) -> None:
    client = connect()
    client.send("a", content("b", persistent=False), "c", "d", content("high", priority=9))
    receiver, sink = client.receiver(demand=3)
    arrivals = sink.wait(3)
    hand(receiver, arrivals)
    receiver.settle(arrivals[:1], ACCEPT)  # the one with priority
    receiver.settle(arrivals[1:2], RETRY)
    end(client)
    assert rows(file) == [("q", 1), ("q", 0), ("q", 0)]
    assert sorted(path.name for path in file.parent.iterdir()) == ["shop.db"]
    client = connect()
    assert client.shown() == [("visible", 1), ("visible", 0), ("visible", 0)]
    assert [one.content.body() for one in client.take(3)[1]] == ["a", "c", "d"]


def test_everything_about_a_message_comes_back(connect: Connect) -> None:
    client = connect()
    message = content(
        "body ü", properties={"uuid": "u", "n": 1, "yes": True}, correlation_id="c", reply_to="queue:///r", type="t", priority=7
    )
    client.send(message)
    end(client)
    _, (arrival,) = connect().take(1)
    again = arrival.content
    assert (again.message_id, again.kind, again.body()) == (message.message_id, message.kind, "body ü")
    assert dict(again.properties()) == {"uuid": "u", "n": 1, "yes": True}
    assert [again.header(name) for name in ("correlation_id", "reply_to", "type", "priority", "persistent")] == [
        "c", "queue:///r", "t", 7, True,
    ]  # fmt: skip
    assert arrival.persistent


def test_ra_6_mixed_persistence_of_one_send_keeps_its_order(connect: Connect) -> None:
    client = connect()
    _, sink = client.receiver(demand=10)
    client.send(content("n1", persistent=False), content("n2", persistent=False), "p3", content("n4", persistent=False))
    sink.wait(4)
    assert sink.bodies == ["n1", "n2", "p3", "n4"]


def test_non_persistent_messages_never_touch_the_disk(connect: Connect, file: Path) -> None:
    client = connect()
    client.send(content("secret", persistent=False))
    receiver, arrivals = client.take(1, hand_over=True)
    receiver.settle(arrivals, RETRY)
    client.session.flush(None)
    assert rows(file) == []
    assert b"secret" not in b"".join(path.read_bytes() for path in file.parent.iterdir() if path.is_file())


def test_a_settlement_is_stored_when_flush_returns(connect: Connect, file: Path) -> None:
    client = connect()
    client.send("a", "b", "c")
    receiver, arrivals = client.take(3)
    receiver.settle(arrivals[:1], ACCEPT)
    receiver.settle(arrivals[1:2], RETRY)
    client.session.flush(None)
    assert rows(file) == [("q", 1), ("q", 0)]


def test_a_dead_letter_changes_its_queue_in_the_store(connect: Connect, file: Path) -> None:
    client = connect()
    client.send("a", "b")
    receiver, arrivals = client.take(1, hand_over=True)
    receiver.settle(arrivals, Outcome(verb=Verb.DEAD_LETTER, reason="bad"))
    client.session.flush(None)
    assert rows(file) == [("q", 0), ("DLQ", 0)]
    end(client)
    client = connect()
    dead = client.take(1, "DLQ")[1][0].content
    assert dead.properties()["JMS_jmsclient_reason"] == "bad"
    assert dead.body() == "a"


def test_the_settings_of_create_queue_outlive_the_broker(connect: Connect) -> None:
    client = connect()
    client.admin.create_queue("q", redelivery_limit=0, error_destination="errors")
    end(client)
    client = connect()
    client.send("a")
    receiver, arrivals = client.take(1)
    receiver.settle(arrivals, RETRY)
    client.session.flush(None)
    assert client.shown("errors") == [("visible", 0)]


def test_delivery_time_and_expiry_outlive_the_broker_a_redelivery_delay_does_not(connect: Connect) -> None:
    client = connect()
    client.send(content("unborn", delivery_time=4e9), content("delayed"), content("expired", expiration=1.0))
    receiver, arrivals = client.take(1)
    receiver.settle(arrivals, Outcome(verb=Verb.RETRY, delay=1000.0))
    end(client)
    client = connect()
    receiver, sink = client.receiver(demand=5)
    receiver.drain(None)
    assert sink.bodies == ["delayed"]
    assert client.shown() == [("delayed", 0), ("receive", 1)]


def test_connections_share_one_broker_and_the_last_one_closes_the_store(connect: Connect, file: Path) -> None:
    first, second = connect(), connect()
    assert first.broker is second.broker
    first.transport.close(None)
    second.send("a")
    assert Path(f"{file}.lock").read_text().strip() == str(os.getpid())
    end(second)
    assert not Path(f"{file}.lock").exists()


def test_a_named_broker_with_a_store_is_its_name(connect: Connect, file: Path, tmp_path: Path) -> None:
    client = connect(f"embedded:shop?store={file}")
    assert connect("embedded:shop").broker is client.broker
    with pytest.raises(ConfigurationError, match="other parameters"):
        connect(f"embedded:shop?store={tmp_path / 'other.db'}")
    with pytest.raises(StoreInUseError):
        connect(f"embedded:another?store={file}")


# -- kill -9 ---------------------------------------------------------------------------------------------------------------

_PROGRAM = """
import os, sys, threading
from jmsclient.transport.contract import *
from jmsclient.transport.registry import parse_url
from jmsclient.destination import Queue
from jmsclient.message import MessageKind, PlainContent
from jmsclient_embedded.transport import EmbeddedBackend

class Sink:
    def __init__(self):
        self.got, self.full = [], threading.Event()
    def delivered(self, batch):
        self.got += batch
        if len(self.got) >= 4: self.full.set()
    def closed(self, error): pass
    def lost(self, error): pass

sink = Sink()
transport = EmbeddedBackend().connect(parse_url(sys.argv[1]), sink, deadline=None)
session = transport.open_session(transacted=False, deadline=None)
sender = session.open_sender(Queue("q"), None)
def send(*bodies):
    messages = [PlainContent(kind=MessageKind.TEXT, body=body, message_id=body) for body in bodies]
    sender.send(messages, room_deadline=None, confirm_timeout=None)
receiver = session.open_receiver(ReceiverSpec(destination=Queue("q")), sink, None)
def hand(*arrivals):
    receiver.handing_over(arrivals)
    for one in arrivals: one.handed_over = True
"""


_TAKE_FOUR_SEE_ONE = "\nreceiver.request(4)\nsink.full.wait(10)\nhand(sink.got[0])"


def killed(url: str, program: str) -> None:
    """Run `program` after the prologue in a process of its own that ends itself by SIGKILL."""
    text = _PROGRAM + textwrap.dedent(program) + "\nos.kill(os.getpid(), 9)\n"
    done = subprocess.run([sys.executable, "-c", text, url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_if_11_kill_9_counts_what_was_handed_over_and_nothing_else(connect: Connect, url: str) -> None:
    killed(
        url,
        """
        send("seen", "windowed", "accepted", "released", "waiting")
        receiver.request(4)
        sink.full.wait(10)
        hand(sink.got[0], sink.got[2], sink.got[3])
        receiver.settle([sink.got[2]], ACCEPT)
        receiver.settle([sink.got[3]], RELEASE)
        session.flush(None)
        """,
    )
    client = connect()
    assert client.shown() == [("visible", 1), ("visible", 0), ("visible", 0), ("visible", 0)]
    arrivals = client.take(4)[1]
    assert [(one.content.body(), one.delivery_count) for one in arrivals] == [
        ("seen", 2), ("windowed", 1), ("released", 1), ("waiting", 1),
    ]  # fmt: skip


def test_if_11_the_hand_over_counts_before_anything_is_written_to_the_store(connect: Connect, url: str) -> None:
    for deliveries in (1, 2, 3):
        killed(
            url,
            ('send("a", "b", "c", "d")' if deliveries == 1 else "")
            + "\nreceiver.request(4)\nsink.full.wait(10)\nhand(sink.got[0])",
        )
        client = connect()
        assert client.shown() == [("visible", deliveries)] + [("visible", 0)] * 3
        end(client)


def test_an_acknowledged_send_survives_kill_9(connect: Connect, url: str) -> None:
    killed(url, "for number in range(20): send(str(number))")
    assert connect().shown() == [("visible", 0)] * 20


def test_if_13_a_hand_over_that_ended_in_kill_9_counts_for_the_limit(connect: Connect, url: str, file: Path) -> None:
    limit = 'transport.administration().create_queue("q", redelivery_limit=0)'
    killed(url, f'{limit}\nsend("a", "b", "c", "d"){_TAKE_FOUR_SEE_ONE}')
    client = connect()
    assert client.shown() == [("visible", 0)] * 3
    dead = client.take(1, "DLQ")[1][0]
    assert dead.content.body() == "a"
    assert dead.content.properties()["JMS_jmsclient_deliveries"] == 1
    client.session.flush(None)
    assert rows(file) == [("q", 0)] * 3 + [("DLQ", 0)]


def test_if_11_a_release_after_the_announcement_takes_it_back(connect: Connect, url: str) -> None:
    killed(
        url,
        """
        send("a", "b", "c", "d")
        receiver.request(4)
        sink.full.wait(10)
        hand(*sink.got)
        receiver.settle(sink.got[:2], RELEASE)
        session.flush(None)
        """,
    )
    assert connect().shown() == [("visible", 0), ("visible", 0), ("visible", 1), ("visible", 1)]


# -- bad input -------------------------------------------------------------------------------------------------------------


def refuse(url: str, error: type[StoreError], named: str, folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(error, match=named) as raised:
        EmbeddedBackend().connect(parse_url(url), _Deaf(), deadline=None)
    assert "\n" not in str(raised.value)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


class _Deaf:
    def lost(self, error: Exception) -> None:
        raise AssertionError("nothing was connected")


def test_a_file_that_is_not_sqlite_is_left_untouched(url: str, file: Path) -> None:
    file.write_text("my diary, not to be overwritten " * 10)
    refuse(url, StoreFormatError, "shop.db' is not an SQLite file", file.parent)


def test_another_programs_database_is_left_untouched(url: str, file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.executescript("CREATE TABLE accounts (name TEXT); PRAGMA user_version = 7;")
    connection.close()
    refuse(url, StoreFormatError, "SQLite file of another program", file.parent)


def test_a_newer_format_is_left_untouched(url: str, file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.executescript(
        f"CREATE TABLE messages (x); PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT + 1}"
    )
    connection.close()
    refuse(url, StoreFormatError, f"has format {FORMAT + 1}, this version of jmsclient knows up to {FORMAT}", file.parent)


def test_a_read_only_file_is_refused(connect: Connect, url: str, file: Path) -> None:
    client = connect()
    client.send("a")
    end(client)
    file.chmod(0o444)
    refuse(url, StoreError, "shop.db' is read-only", file.parent)
    file.chmod(0o644)
    assert connect().shown() == [("visible", 0)]


def test_a_read_only_directory_is_refused(url: str, file: Path) -> None:
    file.parent.chmod(0o555)
    try:
        refuse(url, StoreError, "is read-only", file.parent)
    finally:
        file.parent.chmod(0o755)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    refuse(f"embedded:?store={tmp_path / 'no' / 'shop.db'}", StoreError, "directory .*no' does not exist", tmp_path)


def test_a_directory_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "shop.db").mkdir()
    refuse(f"embedded:?store={tmp_path / 'shop.db'}", StoreError, "not a regular file", tmp_path)


def test_an_empty_file_becomes_a_store(connect: Connect, file: Path) -> None:
    file.touch()
    client = connect()
    client.send("a")
    assert client.shown() == [("visible", 0)]


@pytest.mark.parametrize(
    "damage",
    [
        "content = x'00', id = NULL",
        "content = 'JM', id = NULL",
        "content = 5",
        "priority = NULL",
        "id = CAST(x'ff' AS TEXT)",
        "queue = CAST(x'ff' AS TEXT)",
    ],
)
def test_a_row_that_cannot_be_read_is_named(connect: Connect, url: str, file: Path, damage: str) -> None:
    client = connect()
    client.send("a")
    end(client)
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE messages SET {damage}")
    connection.close()
    with pytest.raises(StoreFormatError, match=r"message (1|\?) cannot be read"):
        connect()
    assert not Path(f"{file}.lock").exists()


def test_a_second_store_on_one_file_takes_no_lock_away_from_the_first(file: Path) -> None:
    """Looking at the file by a descriptor of one's own would, when that is closed; then whoever looks at it with SQLite removes the
    write-ahead log when it leaves, and what is written from then on is gone with the process."""
    store = Store(file)
    try:
        with pytest.raises(StoreInUseError):
            Store(file)
        program = "import sqlite3, sys; one = sqlite3.connect(sys.argv[1]); one.execute('SELECT * FROM store'); one.close()"
        subprocess.run([sys.executable, "-c", program, str(file)], check=True, timeout=60)
        assert file.with_name(f"{file.name}-wal").exists()
    finally:
        store.close()


def test_a_second_process_on_one_store_is_refused_by_name(connect: Connect, url: str) -> None:
    client = connect()
    client.send("a")
    program = (
        "import sys; from jmsclient.transport.registry import parse_url; "
        "from jmsclient_embedded.transport import EmbeddedBackend; "
        "EmbeddedBackend().connect(parse_url(sys.argv[1]), None, deadline=None)"
    )
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"StoreInUseError: store {str(client.broker.store and client.broker.store.path)!r}" in done.stderr
    assert f"in use by process {os.getpid()}; stop that process" in done.stderr
    assert client.shown() == [("visible", 0)]


# -- trouble ---------------------------------------------------------------------------------------------------------------


def fill(store: Store | None, pages: int = 0) -> None:
    """Make the disk full (SQLite's own limit); `pages` more than now may be used."""
    assert store is not None
    used = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {used + pages}")


def test_a_full_disk_fails_the_send_and_leaves_the_store_sound(connect: Connect, file: Path) -> None:
    client = connect()
    client.send("before")
    fill(client.broker.store)
    with pytest.raises(SendError, match="full") as raised:
        client.send(content("x" * 100_000, message_id="ID:big"))
    assert raised.value.unsent == ("ID:big",)
    assert isinstance(raised.value.__cause__, StoreError)
    assert client.shown() == [("visible", 0)]
    receiver, arrivals = client.take(1)
    receiver.settle(arrivals, RETRY)
    client.session.flush(None)
    fill(client.broker.store, 1000)
    client.send("after")
    assert client.shown() == [("visible", 1), ("visible", 0)]
    end(client)
    assert rows(file) == [("q", 1), ("q", 0)]


def test_settlements_that_could_not_be_stored_are_stored_later(
    connect: Connect, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    client.send("a", "b", "c")
    receiver, arrivals = client.take(3, hand_over=True)
    store = client.broker.store
    assert store is not None
    with monkeypatch.context() as patch:

        def full(changes: object) -> None:
            raise StoreError("disk full")

        patch.setattr(store, "write", full)
        receiver.settle(arrivals[:1], ACCEPT)
        receiver.settle(arrivals[1:2], Outcome(verb=Verb.DEAD_LETTER))
        with pytest.raises(StoreError, match="disk full"):
            client.session.flush(None)
        with pytest.raises(SendError, match="disk full"):
            client.send("fails")
        assert client.shown("DLQ") == [("send", 0)]
    client.send("d")  # takes the waiting settlements along
    assert client.shown("DLQ") == [("visible", 0)]
    assert rows(file) == [("q", 0), ("DLQ", 0), ("q", 0)]


def test_group_commit_many_senders_share_transactions(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect()
    store = client.broker.store
    assert store is not None
    write, batches = store.write, []
    first, go_on = threading.Event(), threading.Event()

    def slow(changes: object) -> None:
        batches.append(changes)
        first.set()
        assert go_on.wait(PATIENCE)
        write(changes)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "write", slow)

    def send(number: int) -> None:
        sender = client.session.open_sender(Queue("q"), None)
        sender.send([content(str(number))], room_deadline=None, confirm_timeout=PATIENCE)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    threads[0].start()
    assert first.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    while len(client.admin.messages("q")) < 8:
        pass
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(batches) == 2
    assert client.shown() == [("visible", 0)] * 8


def test_a_confirmation_that_does_not_come_in_time_leaves_the_send_in_doubt(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    store = client.broker.store
    assert store is not None
    write, go_on = store.write, threading.Event()

    def slow(changes: object) -> None:
        assert go_on.wait(PATIENCE)
        write(changes)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "write", slow)
    sender = client.session.open_sender(Queue("q"), None)
    with pytest.raises(SendError) as raised:
        sender.send([content("a", message_id="ID:slow")], room_deadline=None, confirm_timeout=0.02)
    assert raised.value.in_doubt == ("ID:slow",)
    go_on.set()
    client.session.flush(None)
    assert client.shown() == [("visible", 0)]


def test_ra_14_a_release_writes_nothing(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect()
    client.send("a", "b")
    store = client.broker.store
    assert store is not None

    def forbidden(changes: object) -> None:
        raise AssertionError(f"written: {changes}")

    monkeypatch.setattr(store, "write", forbidden)
    for _ in range(3):
        receiver, arrivals = client.take(2)
        receiver.settle(arrivals, RELEASE)
        client.session.flush(None)
    check(client.broker)


def test_if_40_after_a_fork_the_childs_copy_is_dead_and_the_parents_goes_on(connect: Connect, url: str, file: Path) -> None:
    client = connect()
    client.send("a")
    receiver, arrivals = client.take(1)
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        code = 1
        try:
            receiver.close(None)
            client.session.close(None)
            try:
                client.transport.open_session(transacted=False, deadline=None)
            except ConnectionLostError as error:
                code = 0 if "fork" in str(error) else 2
            client.transport.close(None)
            try:
                EmbeddedBackend().connect(parse_url(url), _Deaf(), deadline=None)
                code = 3
            except StoreInUseError:
                pass
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    receiver.settle(arrivals, ACCEPT)
    client.send("b")
    end(client)
    assert rows(file) == [("q", 0)]
    assert not Path(f"{file}.lock").exists()
