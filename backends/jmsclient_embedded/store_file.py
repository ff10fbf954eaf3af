"""Owns the right to use a store file: what may be opened at all, and that one process holds it at a time.

Must not know of messages or tables. Source: issue on the embedded store, "Bad input": a file that is not ours is left untouched,
a read-only one is refused before anything is written. The lock is `flock` on FILE.lock, which ends with the process, kill -9
included; the file names the process that holds it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from jmsclient.errors import StoreError, StoreFormatError, StoreInUseError

APPLICATION_ID = 0x4A4D5343  # "JMSC", SQLite's application_id of our stores
FORMAT = 3
"""1 knew queues with three settings only; before 3 every message was an envelope."""
HEADER_SIZE = 100


def check_file(path: Path) -> None:
    """Refuse what cannot be a store of ours, looking only. Raises StoreError or StoreFormatError."""
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(f"store {str(path)!r}: the directory {str(folder)!r} does not exist; create it first")
    for place in (folder, path):
        if place.exists() and (not os.access(place, os.W_OK) or not place.stat().st_mode & 0o222):
            raise StoreError(f"store {str(path)!r}: {str(place)!r} is read-only; make it writable or choose another file")
    if not path.exists():
        return
    if not stat.S_ISREG(path.stat().st_mode):
        raise StoreError(f"store {str(path)!r} is not a regular file; choose another name")
    if not path.stat().st_size:
        return
    try:
        application, version = _said_by_its_header(path)
    except sqlite3.DatabaseError as error:
        if not os.access(path, os.R_OK):
            raise StoreError(f"store {str(path)!r} cannot be read: {error}") from error
        raise StoreFormatError(f"store {str(path)!r} is not an SQLite file; it is left as it is, choose another name") from error
    check_format(path, application, version)


def _said_by_its_header(path: Path) -> tuple[int, int]:
    """Its application_id and user_version, without a lock or a change. Raises sqlite3.DatabaseError.

    By SQLite, never by a file of Python's: where this process holds the store already, under another name, closing that would drop
    the locks on it, and any SQLite program that looks at it would remove the write-ahead log when it leaves."""
    if path.stat().st_size < HEADER_SIZE:
        raise sqlite3.DatabaseError("it is shorter than a header")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        return tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))


def check_format(path: Path, application: int, version: int) -> None:
    """Refuse another program's database and a newer format. Raises StoreFormatError."""
    if application != APPLICATION_ID:
        raise StoreFormatError(f"store {str(path)!r} is an SQLite file of another program; it is left as it is")
    if version > FORMAT:
        raise StoreFormatError(
            f"store {str(path)!r} has format {version}, this version of jmsclient knows up to {FORMAT}; use a newer jmsclient"
        )


class StoreLock:
    """FILE.lock, held from `take` to `release`."""

    def __init__(self, path: Path) -> None:
        self._store = path
        self._path = path.with_name(path.name + ".lock")
        self._file = -1

    def take(self) -> None:
        """Raises StoreInUseError naming the process that holds it, StoreError where the file cannot be made."""
        while True:
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                raise StoreError(f"store {str(self._store)!r} cannot be locked: {error}") from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(file)
                raise StoreInUseError(
                    f"store {str(self._store)!r} is in use by process {holder}; stop that process, choose another file, "
                    "or attach to it: add attach=yes to the URL"
                ) from error
            if self._is_the_file(file):
                break
            os.close(file)  # the last holder removed it between our open and our lock
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode("ascii"), 0)
        self._file = file

    def _is_the_file(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Remove the file, then let go of it: whoever opened it meanwhile sees that it is gone and makes a new one."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            self.disown()

    def disown(self) -> None:
        """Close this process's copy of the file only: after a fork the parent still holds the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
