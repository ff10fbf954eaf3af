"""The loop of a session's dispatcher: the one thread that calls its listeners, one message at a time (JM 6.2.5, 6.2.12).

Must not know how messages are handed over or settled. Rules RA-12, RA-18, RA-24, IF-12, IF-17.
"""

from __future__ import annotations

import logging
from _thread import get_ident
from typing import TYPE_CHECKING

from jmsclient.clock import Bell, SystemBell
from jmsclient.errors import JmsClientError
from jmsclient.events import emit

if TYPE_CHECKING:
    from jmsclient.jms.session import Session

LOOK_INTERVAL = 0.002
"""Seconds between two looks whether a call that came before the listener has left the session."""
PAUSE_AFTER_ERROR = 1.0
"""Seconds between two tries where the provider refuses."""


def dispatch_until_closed(session: Session, bell: Bell) -> None:
    """Run on the dispatcher's thread: hand messages over in turn between the consumers, until the session is closed.
    `bell` is rung where anything has changed."""
    pause = SystemBell()
    me = get_ident()
    while not session.closed:
        if not session.started or session.owner != me:
            bell.wait()
        elif session.inside:  # a call that came before the listener was set is still inside
            pause.wait(LOOK_INTERVAL)
        else:
            try:
                if not _turn(session):
                    bell.wait()
            except JmsClientError as error:
                if session.closed or session.failed:
                    return
                emit("session", "dispatch_failed", f"{type(error).__name__}: {error}", level=logging.ERROR)
                pause.wait(PAUSE_AFTER_ERROR)


def _turn(session: Session) -> bool:
    """One message from each consumer that listens. False where none of them has any."""
    listening = [consumer for consumer in session.consumers if consumer.listening]
    handed_over = [consumer.dispatch() for consumer in listening]
    if any(handed_over):
        return True
    waiting = [consumer.seek() for consumer in listening]  # each asks, whatever the others find
    return any(waiting)
