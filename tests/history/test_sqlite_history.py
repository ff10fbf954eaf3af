"""What only the SQLite history has: what may be opened, boots, other processes on the file, forks, its sweep."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from jmsclient.errors import HistoryUnavailableError, StoreError, StoreFormatError
from jmsclient.history import Claim, State, open_history
from jmsclient.history.sqlite import SqliteHistory
from jmsclient.history.sqlite_file import BootClock

T = "orders"


class Machine(BootClock):
    """A machine whose clocks are moved by hand."""

    def __init__(self, boot_id: str = "first", *, up: float = 100.0, wall: float = 1_700_000_000.0) -> None:
        self.boot_id = boot_id
        self.up = up
        self.time = wall

    def now(self) -> float:
        return self.up

    def wall(self) -> float:
        return self.time

    def pass_by(self, seconds: float) -> None:
        self.up += seconds
        self.time += seconds


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# -- bad input --------------------------------------------------------------------------------------------------------------


def make_foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def make_newer(path: Path) -> None:
    SqliteHistory(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda path: path.write_text("something else entirely"), StoreFormatError, "not an SQLite file"),
        (lambda path: path.write_bytes(b"SQLite format 3\x00"), StoreFormatError, "not an SQLite file"),
        (make_foreign, StoreFormatError, "another program"),
        (make_newer, StoreFormatError, "format 99"),
        (lambda path: path.mkdir(), StoreError, "not a regular file"),
        (lambda path: path.write_bytes(b"") or path.chmod(0o444), StoreError, "read-only"),
        (lambda path: path.parent.chmod(0o555), StoreError, "read-only"),
    ],
    ids=["text", "cut", "foreign", "newer", "folder", "read_only", "read_only_folder"],
)
def test_a_file_that_cannot_be_used_is_named_and_left_as_it_is(tmp_path: Path, make: object, error: type, says: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "history.db"
    make(path)  # type: ignore[operator]
    before = snapshot(folder)
    with pytest.raises(error, match=says) as raised:
        open_history(f"sqlite:{path}")
    folder.chmod(0o755)
    assert snapshot(folder) == before
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist; create it first"):
        open_history(f"sqlite:{tmp_path / 'none' / 'history.db'}")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_a_new_history(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.touch()
    with open_history(f"sqlite:{path}") as history:
        assert history.claim(T, "1").claimed


# -- durability -------------------------------------------------------------------------------------------------------------


def test_commits_survive_a_power_failure_and_readers_wait_for_nobody(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "history.db") as history:
        assert history._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert history._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_tr34_entries_and_copies_are_there_after_reopening(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "history.db") as history:
        history.claim(T, "1", token="a")
        history.park(T, "2", token="a", envelope=b"\x00whole", reason="r", delivery_count=2)
    with SqliteHistory(tmp_path / "history.db") as history:
        assert not history.claim(T, "1", token="b").claimed
        assert [(one.id, one.envelope, one.delivery_count) for one in history.in_doubt()] == [("2", b"\x00whole", 2)]


# -- time (TR-43) -----------------------------------------------------------------------------------------------------------


def test_tr43_a_lease_ends_with_its_boot_and_the_entry_stays(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "history.db", clock=Machine()) as history:
        first = history.claim(T, "1", token="a", lease=5000.0)
        history.claim(T, "2", token="a", lease=None)
        history.complete(T, "3", token="a")
    later = Machine("second", up=1.0, wall=1_700_000_010.0)
    with SqliteHistory(tmp_path / "history.db", clock=later) as history:
        for id_ in ("1", "2"):
            entry = history.lookup(T, id_)
            assert entry is not None
            assert (entry.state, entry.lease_left) == (State.PROCESSING, 0.0)
        assert history.lookup(T, "3") is not None
        taken = history.claim(T, "1", token="b", take_over=True)
        assert taken.claimed
        assert taken.fencing_token > first.fencing_token  # although the boot clock began again
        assert history.claim(T, "new").fencing_token > first.fencing_token


def test_tr43_the_same_boot_keeps_leases_when_the_file_is_opened_again(tmp_path: Path) -> None:
    machine = Machine()
    with SqliteHistory(tmp_path / "history.db", clock=machine) as history:
        history.claim(T, "1", lease=60.0)
    machine.pass_by(10)
    machine.time += 86_400  # somebody set the wall clock
    with SqliteHistory(tmp_path / "history.db", clock=machine) as history:
        entry = history.lookup(T, "1")
        assert entry is not None
        assert entry.lease_left == pytest.approx(50.0)
        machine.pass_by(51)
        assert history.claim(T, "1", take_over=True).claimed


@pytest.mark.parametrize(("off", "there"), [(3600.0, True), (90_000.0, False), (-1e9, True)], ids=["hour", "day", "reset_clock"])
def test_tr43_between_boots_history_ttl_goes_on_by_the_wall_clock(tmp_path: Path, off: float, there: bool) -> None:
    with SqliteHistory(tmp_path / "history.db", clock=Machine()) as history:
        history.complete(T, "1", token="a", history_ttl=86_400.0)
    with SqliteHistory(tmp_path / "history.db", clock=Machine("second", up=5.0, wall=1_700_000_000.0 + off)) as history:
        assert (history.lookup(T, "1") is not None) is there


def test_tr44_the_sweep_removes_only_what_is_past_history_ttl(tmp_path: Path) -> None:
    machine = Machine()
    with SqliteHistory(tmp_path / "history.db", clock=machine) as history:
        history.exchange([Claim(trigger=T, id=str(number), token="a", history_ttl=10.0) for number in range(1200)])
        history.claim(T, "long", history_ttl=1000.0)
        history.park(T, "parked", token="a", envelope=b"x", reason="r")
        machine.pass_by(11)
        assert history.purge_expired() == 1200
        assert history.purge_expired() == 0
        assert history.statistics() == {"processing": 1, "in_doubt": 1}


def test_d09_the_file_shrinks_without_being_asked(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with SqliteHistory(path) as history:
        for number in range(20):
            history.claim(T, str(number), lease=0.05, history_ttl=0.2)
        end = time.monotonic() + 30
        while rows(path) and time.monotonic() < end:
            time.sleep(0.02)
    assert rows(path) == 0


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])


# -- others on the file -----------------------------------------------------------------------------------------------------


def test_tr49_a_file_that_another_holds_is_given_up_after_two_seconds(tmp_path: Path) -> None:
    with (
        SqliteHistory(tmp_path / "history.db") as history,
        closing(sqlite3.connect(tmp_path / "history.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        with pytest.raises(HistoryUnavailableError, match="locked"):
            history.claim(T, "1")
        assert 1.5 < time.monotonic() - start < 20.0
        assert history.lookup(T, "1") is None  # reading goes on
        other.execute("ROLLBACK")
        assert history.claim(T, "1").claimed


def test_tr49_the_time_limit_may_be_shorter(tmp_path: Path) -> None:
    with (
        open_history(f"sqlite:{tmp_path / 'history.db'}", operation_timeout=0.2) as history,
        closing(sqlite3.connect(tmp_path / "history.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        took = []
        for _ in range(3):  # a busy machine may take its time, but hardly each time
            start = time.monotonic()
            with pytest.raises(HistoryUnavailableError, match="locked"):
                history.claim(T, "1")
            took.append(time.monotonic() - start)
        assert 0.1 < min(took) < 1.5


def test_many_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    program = "import sys; from jmsclient.history import open_history; open_history(sys.argv[1]).claim('t', sys.argv[2])"
    url = f"sqlite:{tmp_path / 'history.db'}"
    started = [
        subprocess.Popen([sys.executable, "-c", program, url, str(number)], stderr=subprocess.PIPE, text=True)
        for number in range(6)
    ]
    assert [one.communicate(timeout=60)[1] for one in started] == [""] * 6
    with open_history(url) as history:
        assert history.statistics() == {"processing": 6}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 warns of a fork beside threads
def test_a_forks_child_has_a_connection_of_its_own(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "history.db") as history:
        history.claim(T, "parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                refused = not history.claim(T, "parent").claimed
                status = 0 if refused and history.claim(T, "child").claimed else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not history.claim(T, "child").claimed


def in_another_process(path: Path, call: str) -> str:
    """What a process says that opens the file, does this with `history` and leaves."""
    program = f"import sys; from jmsclient.history import open_history\nwith open_history(sys.argv[1]) as history: {call}"
    done = subprocess.run([sys.executable, "-c", program, f"sqlite:{path}"], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_tr38_a_file_that_one_process_opens_twice_stays_one_file_for_all_others(tmp_path: Path) -> None:
    """A file descriptor that was opened and closed beside SQLite's took its locks along: the next process to leave removed the
    write-ahead log, and neither saw what the other wrote from then on."""
    path = tmp_path / "history.db"
    with SqliteHistory(path) as history:
        history.claim(T, "before")
        SqliteHistory(path).close()
        in_another_process(path, f"history.claim({T!r}, 'theirs')")
        assert history.lookup(T, "theirs") is not None
        history.claim(T, "ours")
        assert in_another_process(path, f"print(history.claim({T!r}, 'ours').claimed)") == "False"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 warns of a fork beside threads
def test_tr38_what_a_forks_child_writes_is_kept_when_its_parent_has_closed_the_file(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    to_child, from_child = os.pipe(), os.pipe()
    history = SqliteHistory(path)
    history.claim(T, "before")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(to_child[1])
            history.claim(T, "before the parent closed it")
            os.write(from_child[1], b".")
            os.read(to_child[0], 1)
            seen = not history.claim(T, "theirs").claimed
            status = 0 if seen and history.claim(T, "childs").claimed else 2
            os.write(from_child[1], b".")
            os.read(to_child[0], 1)  # until the parent has looked, or has ended
        finally:
            os._exit(status)
    os.close(from_child[1])
    assert os.read(from_child[0], 1) == b"."
    history.close()
    in_another_process(path, f"history.claim({T!r}, 'theirs')")
    os.write(to_child[1], b".")
    assert os.read(from_child[0], 1) == b"."
    try:
        assert in_another_process(path, f"print(history.claim({T!r}, 'childs').claimed)") == "False"
    finally:
        os.close(to_child[1])
        os.close(from_child[0])
        os.close(to_child[0])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_interrupted_group_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteHistory(tmp_path / "history.db") as history:
        monkeypatch.setattr(history, "_now", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            history.claim(T, "1")
        monkeypatch.undo()
        assert history.lookup(T, "1") is None
        assert history.claim(T, "1").claimed
