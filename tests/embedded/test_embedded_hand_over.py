"""The hand-over journal (IF-11): what it keeps, torn and foreign files, growth, rotation, a full disk, a fork, an older format."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from jmsclient.errors import StoreError
from jmsclient_embedded.hand_over import HandOverJournal

OURS, ANOTHERS = b"a" * 16, b"b" * 16
FIRST, STEP = 24, 16  # where the first record begins, and how long each is
MANY = 10_000
"""Records that do not fit into the room that a journal begins with."""


def journal(folder: Path, identity: bytes = OURS, *, rotate_at: int = 1 << 20) -> HandOverJournal:
    return HandOverJournal(folder / "s.db", identity, rotate_at=rotate_at)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.db.handed-over"


def test_if_11_the_last_mark_of_a_message_holds(tmp_path: Path) -> None:
    first = journal(tmp_path)
    assert first.read() == {}
    first.start()
    first.mark([(1, 1), (2, 3)])
    first.mark([(1, 2)])
    first.mark_one(2, 0)
    assert journal(tmp_path).read() == {1: 2, 2: 0}
    first.close()
    assert journal(tmp_path).read() == {1: 2, 2: 0}


def test_a_journal_of_another_store_is_none(tmp_path: Path) -> None:
    first = journal(tmp_path, ANOTHERS)
    first.start()
    first.mark([(1, 1)])
    first.close()
    assert journal(tmp_path).read() == {}


@pytest.mark.parametrize("cut", range(1, STEP + 1))
def test_a_torn_record_is_ignored_the_others_hold(tmp_path: Path, file: Path, cut: int) -> None:
    first = journal(tmp_path)
    first.start()
    first.mark([(1, 1), (2, 1)])
    os.truncate(file, FIRST + 2 * STEP - cut)
    assert journal(tmp_path).read() == {1: 1}
    os.truncate(file, 0)  # for the map below it
    first.disown()


def test_if_11_a_record_whose_count_was_not_stored_any_more_takes_nothing_back(tmp_path: Path, file: Path) -> None:
    first = journal(tmp_path)
    first.start()
    first.mark([(7, 1)])
    with file.open("r+b") as torn:
        torn.seek(FIRST + STEP)
        torn.write(struct.pack("<Q", 7))
    assert journal(tmp_path).read() == {7: 1}
    first.close()


def test_a_journal_of_the_format_before_is_read(tmp_path: Path, file: Path) -> None:
    file.write_bytes(struct.pack(">4sI16s", b"JMHO", 1, OURS) + struct.pack(">QIQIQI", 1, 1, 2, 5, 1, 3) + b"\0\0\0\0")
    assert journal(tmp_path).read() == {1: 3, 2: 5}
    assert journal(tmp_path, ANOTHERS).read() == {}


def test_it_grows_and_keeps_what_it_has(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.start()
    for number in range(MANY):
        first.mark_one(number + 1, 2)
    assert journal(tmp_path).read() == {number + 1: 2 for number in range(MANY)}
    first.close()


def test_it_begins_at_the_front_again_when_nothing_is_needed(tmp_path: Path, file: Path) -> None:
    first = journal(tmp_path)
    first.start()
    size = file.stat().st_size
    for number in range(MANY):
        first.mark([(number + 1, 1)])
        first.forget({}, [number + 1])
    first.mark([(1, 2)])
    assert file.stat().st_size == size
    assert journal(tmp_path).read() == {1: 2}
    first.close()


def test_rotation_keeps_what_is_not_in_its_row_yet(tmp_path: Path, file: Path) -> None:
    first = journal(tmp_path, rotate_at=200)
    first.start()
    for number in range(MANY):
        first.mark([(number, 1)])
    full = file.stat().st_size
    first.forget({}, range(98))
    first.forget({98: 0, 99: 1, MANY: 1}, [])  # an older count than 98's mark; the same as 99's; one that was never marked
    first.forget({}, range(100, MANY))
    first.rotate()
    assert file.stat().st_size < full
    first.mark([(500, 4)])
    assert journal(tmp_path).read() == {98: 1, 500: 4}
    first.close()
    assert file.exists()  # 98 is not in its row: kept for the next start


def test_a_journal_without_open_marks_is_removed_at_close(tmp_path: Path, file: Path) -> None:
    first = journal(tmp_path)
    first.start()
    first.mark([(1, 1)])
    first.forget({1: 1}, [])
    first.close()
    assert not file.exists()
    with pytest.raises(StoreError):
        first.mark([(2, 1)])


@pytest.mark.parametrize("room", [0, 5, 4096])
def test_a_full_disk_fails_the_hand_over_and_leaves_no_torn_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    first = journal(tmp_path)
    first.start()
    write, left = os.pwrite, room

    def full(handle: int, data: bytes, at: int) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(handle, data[:left], at)
        left -= done
        return done

    numbers = iter(range(1, MANY))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreError, match="No space left"):
            first.mark((number, 1) for number in numbers)
    marked = next(numbers) - 2  # the one before it was refused
    assert 0 < marked < MANY
    assert journal(tmp_path).read() == dict.fromkeys(range(1, marked + 1), 1)
    first.mark([(MANY, 1)])
    assert journal(tmp_path).read() == dict.fromkeys((*range(1, marked + 1), MANY), 1)
    first.close()


def test_a_rotation_that_the_disk_has_no_room_for_leaves_the_old_one(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = journal(tmp_path, rotate_at=FIRST)
    first.start()
    first.mark([(1, 1)])

    def full(handle: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreError, match="No space left"):
            first.rotate()
    first.mark([(2, 1)])
    assert journal(tmp_path).read() == {1: 1, 2: 1}
    assert list(tmp_path.iterdir()) == [file]
    first.close()


def test_if_40_a_fork_marks_nothing_in_its_parents_journal(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.start()
    first.mark([(1, 1)])
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        code = 1
        try:
            first.disown()
            first.mark([(2, 1)])
        except StoreError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    first.mark([(3, 1)])
    assert journal(tmp_path).read() == {1: 1, 3: 1}
    first.close()
