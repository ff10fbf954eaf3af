"""The state machines whole: all steps in memory; with a store also the end of the process.

Each step does something to the broker and then the same to the model (model_machine.py compares them). A step for which there is
nothing to do it with does nothing, or makes something first.
"""

from __future__ import annotations

import shutil

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from jmsclient.transport.contract import Outcome, Verb
from jmsclient_embedded.registry import close_broker

from .conftest import hand
from .model_cast import Cast
from .model_machine import PATIENCE, nothing
from .model_managing import ManagingSteps
from .model_sending import NUMBER


class Steps(ManagingSteps):
    """Sends, receives, settlements, ends, pauses, clock steps and management."""

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        if self.model.topics:
            self.books()


class StoredSteps(Steps):
    """With a store: the process ends, cleanly or not, and another one begins."""

    stored = True

    @rule()
    def close_and_open(self) -> None:
        """All connections are closed; what is stored is there again."""
        for transport in self.cast.transports:
            transport.close(None)
        self.model_sessions_end()
        self.begin_anew()

    @rule(number=NUMBER, seen=st.booleans(), released=st.booleans())
    def crash(self, number: int, seen: bool, released: bool) -> None:
        """kill -9: the files are as they are (IF-11). Before it something may be handed over, and given back all the same."""
        reader = self.holding(number)
        if reader is not None and seen:
            held = reader.held()
            arrivals = [one.arrival for one in held if one.arrival is not None]
            hand(reader.real, arrivals)
            if released:
                reader.real.settle(arrivals, Outcome(verb=Verb.RELEASE, delay=60.0))
                self.then(lambda: self.model.settle(held, Verb.RELEASE, 60.0))
        self.then(nothing)
        assert self.folder is not None
        assert self.path is not None
        copied = self.path.with_name(f"crash-{next(self.ids)}.db")
        for file in self.path.parent.glob(f"{self.path.name}*"):
            if not file.name.endswith((".lock", ".sock", "-shm")):
                shutil.copy(file, copied.with_name(file.name.replace(self.path.name, copied.name)))
        for transport in self.cast.transports:
            transport.close(None)
        for one in self.cast.blocked:
            one.result.exception(PATIENCE)
        self.path = copied
        for room in set(self.model.rooms.values()):
            room.waiters.clear()
        self.begin_anew()

    def model_sessions_end(self) -> None:
        for connection in (0, 1):
            for actor in [one for one in self.cast.actors if one.model.connection == connection]:
                self.model.close_session(actor.model)
                self.model.settle_down()
        self.finish_blocked()

    def begin_anew(self) -> None:
        close_broker(self.broker)
        self.cast = Cast()
        self.connect()
        self.model.restart()
        self.then(nothing)
