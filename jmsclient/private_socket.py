"""A Unix socket that only its user can reach, from its first moment.

Source: api.md "Connections"; rule TR-59. What listens on it, and what is said there, is others' business.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path


def listen_privately(path: Path, backlog: int) -> socket.socket:
    """Listen at `path`, mode 0600, in the place of a socket that may be there. Raises OSError where something else is there, or no
    such socket can be made."""
    if os.path.lexists(path) and not stat.S_ISSOCK(path.lstat().st_mode):
        raise OSError(f"{str(path)!r} is there and is no socket; move it away")
    ears = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        _bind(ears, path)
        ears.listen(backlog)
    except BaseException:
        ears.close()
        raise
    return ears


def _bind(ears: socket.socket, path: Path) -> None:
    """Linux gives the file the mode of the socket; elsewhere the umask has to do, which is the whole process's for that moment."""
    try:
        os.fchmod(ears.fileno(), 0o600)
    except OSError:
        before = os.umask(0o177)
        try:
            ears.bind(str(path))
        finally:
            os.umask(before)
    else:
        ears.bind(str(path))
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        path.unlink()
        raise OSError(f"this platform gives {str(path)!r} the mode {mode:o} instead of 600")
