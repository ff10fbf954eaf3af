"""Owns the hand-over journal FILE.handed-over: which stored messages the application has seen, and how often.

Must not know of queues. Source: rule IF-11: after kill -9 exactly the messages that were handed over come back with count + 1.
The file is mapped into memory: what is stored there outlives the process (not a power loss) without a call of the system, and a
message pays a store instead of a `write`. Its blocks are written before they are mapped, so that a full disk is an error, and no
signal. Layout: header (`JMHO`, format, 16 bytes of the store's id), then records of two numbers of 8 bytes, little endian: the
sequence, and the count + 1, so that 0 says that there is none (yet). Each is stored whole, the sequence first. The last record of a
sequence holds. Once the count is in the message's row, its record is no longer needed; see `forget`.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterable, Mapping
from mmap import mmap
from pathlib import Path

from jmsclient.errors import StoreError

_HEADER = struct.Struct(">4sI16s")
_RECORD = struct.Struct("<QQ")
_MAGIC = b"JMHO"
_FORMAT = 2
_OLD_FORMAT, _OLD_RECORD = 1, struct.Struct(">QI")  # sequence, count
_FIRST, _STEP = _HEADER.size, _RECORD.size
_GROWTH = 1 << 16  # bytes, a multiple of _STEP
ROTATE_AT = 1 << 20
"""Bytes at which the journal is written anew with what is still needed."""


class HandOverJournal:
    """Thread-safe. Lock order: the broker's lock, then this one."""

    def __init__(self, store: Path, store_id: bytes, *, rotate_at: int = ROTATE_AT) -> None:
        self._path = store.with_name(store.name + ".handed-over")
        self._id = store_id
        self._rotate_at = rotate_at
        self._lock = threading.Lock()  # guards the file and `_open`
        self._open: dict[int, int] = {}
        self._file = -1
        self._map: mmap | bytearray = bytearray()
        self._at = 0  # where the next record goes
        self._end = 0  # of the map

    def read(self) -> dict[int, int]:
        """The counts that an earlier process left, by sequence. A journal of another store is none; a torn record is ignored."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"hand-over journal {str(self._path)!r} cannot be read: {error}") from error
        if data.startswith(self._header(_FORMAT)):
            return {sequence: value - 1 for sequence, value in _records(_RECORD, data) if value}
        return dict(_records(_OLD_RECORD, data)) if data.startswith(self._header(_OLD_FORMAT)) else {}

    def start(self) -> None:
        """Begin an empty journal: what was read is in the rows now. Raises StoreError."""
        with self._lock:
            self._write_anew()

    def mark(self, counts: Iterable[tuple[int, int]]) -> None:
        """These (sequence, count) are about to be seen. When it returns, kill -9 cannot undo it. Raises StoreError."""
        for sequence, count in counts:
            self.mark_one(sequence, count)

    def mark_one(self, sequence: int, count: int) -> None:
        """The same for one. Hot path: a receive pays it."""
        with self._lock:
            at = self._at
            if at == self._end:
                self._grow()
            self._at = at + _STEP  # first: an exception of a signal handler leaves an empty record, not one that is overwritten
            _RECORD.pack_into(self._map, at, sequence, count + 1)
            self._open[sequence] = count

    def forget(self, counts: Mapping[int, int], gone: Iterable[int]) -> None:
        """The rows of `counts` now hold these, later marks of the same message stay; those of `gone` are no more."""
        with self._lock:
            marks = self._open
            for sequence, count in counts.items():
                if marks.get(sequence, count + 1) <= count:
                    del marks[sequence]
            for sequence in gone:
                marks.pop(sequence, None)
            if not marks and self._at > _FIRST:  # begin at the front again: the few pages that are in use stay the same
                self._map[_FIRST : self._at] = bytes(self._at - _FIRST)
                self._at = _FIRST

    def rotate(self) -> None:
        """Write it anew if it has grown. On the store's thread only. Raises StoreError; the old one serves on."""
        if self._at >= self._rotate_at:
            with self._lock:
                self._write_anew()
                self._rotate_at = max(self._rotate_at, 2 * self._at)

    def close(self) -> None:
        """Close it, and remove it where every count is in its row. What is marked later raises StoreError."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._let_go()
            if not self._open:
                self._path.unlink(missing_ok=True)

    def disown(self) -> None:
        """After a fork, in the child: the file is the parent's. Takes no lock: another thread of the parent's may have held it."""
        self._let_go()

    def _let_go(self) -> None:
        self._file, self._map, self._at, self._end = -1, bytearray(), 0, 0

    def _header(self, version: int) -> bytes:
        return _HEADER.pack(_MAGIC, version, self._id)

    def _grow(self) -> None:
        """Room for more. What was written of it when the disk was found full is zeros: no record."""
        try:
            _write(self._file, bytes(_GROWTH), self._end)
            larger = mmap(self._file, self._end + _GROWTH)
        except OSError as error:
            raise StoreError(f"hand-over journal {str(self._path)!r} cannot be written: {error}") from error
        self._map, self._end = larger, self._end + _GROWTH

    def _write_anew(self) -> None:
        data = self._header(_FORMAT) + b"".join([_RECORD.pack(sequence, count + 1) for sequence, count in self._open.items()])
        end = _FIRST + (1 + (len(data) - _FIRST) // _GROWTH) * _GROWTH
        fresh = self._path.with_name(self._path.name + ".new")
        file = -1
        try:
            file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            _write(file, data.ljust(end, b"\0"), 0)
            mapped = mmap(file, end)
            fresh.replace(self._path)
        except OSError as error:
            if file >= 0:
                os.close(file)
                fresh.unlink(missing_ok=True)
            raise StoreError(f"hand-over journal {str(self._path)!r} cannot be written: {error}") from error
        if self._file >= 0:
            os.close(self._file)
        self._file, self._map, self._at, self._end = file, mapped, len(data), end


def _records(record: struct.Struct, data: bytes) -> Iterable[tuple[int, int]]:
    return record.iter_unpack(data[_FIRST : len(data) - (len(data) - _FIRST) % record.size])


def _write(file: int, data: bytes, at: int) -> None:
    """All of it. Raises OSError."""
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], at + done)
