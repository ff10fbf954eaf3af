"""Owns the hand-over journal FILE.handed-over: which stored messages the application has seen, and how often.

Must not know of queues. Source: rule IF-11: after kill -9 exactly the messages that were handed over come back with count + 1.
One `os.write` a batch puts the records into the page cache, which outlives the process (not a power loss); no fsync.
Layout: header (`JMHO`, format 1, 16 bytes of the store's id), then records (sequence u64, count u32), big endian. The last
record of a sequence holds. Once the count is in the message's row, its record is no longer needed; see `forget`.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from jmsclient.errors import StoreError

_HEADER = struct.Struct(">4sI16s")
_RECORD = struct.Struct(">QI")
_MAGIC = b"JMHO"
_FORMAT = 1
ROTATE_AT = 1 << 20
"""Bytes at which the journal is written anew with what is still needed."""


class HandOverJournal:
    """Thread-safe. Lock order: the broker's lock, then this one."""

    def __init__(self, store: Path, store_id: bytes, *, rotate_at: int = ROTATE_AT) -> None:
        self._path = store.with_name(store.name + ".handed-over")
        self._header = _HEADER.pack(_MAGIC, _FORMAT, store_id)
        self._rotate_at = rotate_at
        self._lock = threading.Lock()  # guards the file and `_open`
        self._open: dict[int, int] = {}
        self._file = -1
        self._size = 0

    def read(self) -> dict[int, int]:
        """The counts that an earlier process left, by sequence. A journal of another store is none; a torn record is ignored."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"hand-over journal {str(self._path)!r} cannot be read: {error}") from error
        if not data.startswith(self._header):
            return {}
        end = len(data) - (len(data) - _HEADER.size) % _RECORD.size
        return dict(_RECORD.iter_unpack(data[_HEADER.size : end]))

    def start(self) -> None:
        """Begin an empty journal: what was read is in the rows now."""
        with self._lock:
            self._write_anew()

    def mark(self, counts: Sequence[tuple[int, int]]) -> None:
        """These (sequence, count) are about to be seen. When it returns, kill -9 cannot undo it. Raises StoreError."""
        with self._lock:
            self._open.update(counts)
            data = _RECORD.pack(*counts[0]) if len(counts) == 1 else b"".join([_RECORD.pack(*one) for one in counts])
            written = 0
            try:
                written = os.write(self._file, data)
            except OSError as error:
                raise StoreError(f"hand-over journal {str(self._path)!r} cannot be written: {error}") from error
            finally:
                if 0 < written < len(data):  # a torn record would shift all that follow
                    os.ftruncate(self._file, self._size)
            if written < len(data):
                raise StoreError(f"hand-over journal {str(self._path)!r} cannot be written: no space left")
            self._size += written

    def forget(self, counts: Iterable[tuple[int, int | None]]) -> None:
        """The rows of these now hold `count` (None: are gone); later marks of the same message stay."""
        with self._lock:
            for sequence, count in counts:
                marked = self._open.get(sequence)
                if marked is not None and (count is None or marked <= count):
                    del self._open[sequence]

    def rotate(self) -> None:
        """Write it anew if it has grown. On the broker's thread only."""
        if self._size >= self._rotate_at:
            with self._lock:
                self._write_anew()
                self._rotate_at = max(self._rotate_at, 2 * self._size)

    def close(self) -> None:
        """Close it, and remove it where every count is in its row."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            if not self._open:
                self._path.unlink(missing_ok=True)

    def _write_anew(self) -> None:
        data = self._header + b"".join([_RECORD.pack(*one) for one in self._open.items()])
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            os.write(file, data)
            fresh.replace(self._path)
        except OSError as error:
            raise StoreError(f"hand-over journal {str(self._path)!r} cannot be written: {error}") from error
        if self._file >= 0:
            os.close(self._file)
        self._file = file
        self._size = len(data)
