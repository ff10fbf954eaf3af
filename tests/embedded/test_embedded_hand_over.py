"""The hand-over journal (IF-11): what it keeps, torn and foreign files, rotation, a full disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jmsclient.errors import StoreError
from jmsclient_embedded.hand_over import HandOverJournal

OURS, ANOTHERS = b"a" * 16, b"b" * 16


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
    first.mark([(1, 2), (2, 2)])
    assert journal(tmp_path).read() == {1: 2, 2: 2}
    first.close()


def test_a_journal_of_another_store_is_none(tmp_path: Path) -> None:
    first = journal(tmp_path, ANOTHERS)
    first.start()
    first.mark([(1, 1)])
    first.close()
    assert journal(tmp_path).read() == {}


@pytest.mark.parametrize("cut", range(1, 13))
def test_a_torn_record_is_ignored_the_others_hold(tmp_path: Path, file: Path, cut: int) -> None:
    first = journal(tmp_path)
    first.start()
    first.mark([(1, 1), (2, 1)])
    os.truncate(file, file.stat().st_size - cut)
    assert journal(tmp_path).read() == {1: 1}
    first.close()


def test_rotation_keeps_what_is_not_in_its_row_yet(tmp_path: Path, file: Path) -> None:
    first = journal(tmp_path, rotate_at=200)
    first.start()
    for number in range(100):
        first.mark([(number, 1)])
    first.forget((number, None) for number in range(98))
    first.forget([(98, 0), (99, 1)])  # an older count than 98's mark; the same as 99's
    first.rotate()
    assert file.stat().st_size < 100
    first.mark([(500, 4)])
    assert journal(tmp_path).read() == {98: 1, 500: 4}
    first.close()
    assert file.exists()  # 98 is not in its row: kept for the next start


def test_a_journal_without_open_marks_is_removed_at_close(tmp_path: Path, file: Path) -> None:
    first = journal(tmp_path)
    first.start()
    first.mark([(1, 1)])
    first.forget([(1, 1)])
    first.close()
    assert not file.exists()


def test_a_full_disk_fails_the_hand_over_and_leaves_no_torn_record(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = journal(tmp_path)
    first.start()
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: write(handle, data[:5]))
        with pytest.raises(StoreError, match="no space left"):
            first.mark([(7, 1)])
    first.mark([(8, 1)])
    assert journal(tmp_path).read() == {8: 1}
    first.close()
    assert file.exists()
