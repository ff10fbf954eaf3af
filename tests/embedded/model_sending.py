"""What is there at the beginning, and the steps of the state machine that send (T1 to T7, IF-31, O07)."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from jmsclient.destination import Queue
from jmsclient.errors import (
    DestinationPausedError,
    ResourceAllocationError,
    SendError,
)

from .model_cast import Blocked
from .model_machine import TOPIC, BrokerMachine, nothing
from .reference_broker import DEFINED, Room, TopicModel, Waiter, settings_of

QUEUES = st.sampled_from(DEFINED)
NUMBER = st.integers(0, 7)
COLOURS = st.sampled_from(["red", "blue"])
SOMETIMES = st.sampled_from([False, False, False, True])
PAUSES = st.sampled_from(["production", "insertion", "consumption"])
WHERE = st.sampled_from([Queue("q1"), Queue("q2"), Queue("q3"), TOPIC, None])
MAXIMA = st.sampled_from([-1, -1, 3, 5, 0])

SETTINGS = st.fixed_dictionaries(
    {
        "redelivery_limit": st.sampled_from([-1, 0, 1, 2]),
        "redelivery_delay": st.sampled_from([-1.0, -1.0, 0.0, 2.0]),
        "redelivery_multiplier": st.sampled_from([1.0, 2.0]),
        "redelivery_delay_maximum": st.sampled_from([None, 3.0]),
        "error_destination": st.sampled_from(["DLQ", "DLQ", None]),
        "unit_of_order": st.sampled_from([None, None, "unit"]),
    }
)
OVERRIDES = st.fixed_dictionaries(
    {
        "priority_override": st.sampled_from([-1, -1, 7]),
        "time_to_live_override": st.sampled_from([-1.0, -1.0, 0.0, 6.0]),
        "time_to_deliver_override": st.sampled_from([-1.0, -1.0, -1.0, 2.0]),
        "delivery_mode_override": st.sampled_from([None, None, None, "persistent", "non_persistent"]),
    }
)


class SendingSteps(BrokerMachine):
    """See the module."""

    @initialize(
        one=SETTINGS,
        two=SETTINGS,
        three=SETTINGS,
        overrides=OVERRIDES,
        policy=st.sampled_from(["discard", "log", "redirect"]),
        maxima=st.tuples(MAXIMA, st.sampled_from([-1, -1, 40])),
        fifo=st.booleans(),
    )
    def begin(
        self,
        one: dict[str, object],
        two: dict[str, object],
        three: dict[str, object],
        overrides: dict[str, object],
        policy: str,
        maxima: tuple[int, int],
        fifo: bool,
    ) -> None:
        """q1 may have its expired ones redirected and sends overridden; q2 and q3 share a quota; t is a topic."""
        messages, size = maxima
        self.admin.create_quota("room", messages_maximum=messages, bytes_maximum=size, policy="fifo" if fifo else "preemptive")
        given = {
            "q1": {**one, **overrides, "expiration_policy": policy},
            "q2": {**two, "quota": "room"},
            "q3": {**three, "quota": "room"},
        }
        room = self.room = Room(messages, size, fifo)
        for name, settings in given.items():
            self.admin.create_queue(name, **settings)  # type: ignore[arg-type]
            place = self.model.place(name, settings_of(**settings))
            if name != "q1":
                self.model.rooms[place] = room
                room.members.append(place)
        self.admin.create_topic(TOPIC.name, redelivery_limit=1)
        self.model.topics[TOPIC.name] = TopicModel()
        self.quiet()

    # -- sending ----------------------------------------------------------------------------------------------------------

    @rule(
        number=NUMBER,
        queue=QUEUES,
        transacted=SOMETIMES,
        how_many=st.integers(1, 3),
        persistent=st.booleans(),
        priority=st.sampled_from([4, 4, 4, 9]),
        life=st.sampled_from([None, None, None, 1.5, 4.0, 40.0]),
        delay=st.sampled_from([None, None, None, 1.0, 5.0]),
        colour=COLOURS,
        size=st.integers(0, 12),
        wait=st.sampled_from([0.0, 3.0, None]),
        elsewhere=st.booleans(),
    )
    def send(
        self,
        number: int,
        queue: str,
        transacted: bool,
        how_many: int,
        persistent: bool,
        priority: int,
        life: float | None,
        delay: float | None,
        colour: str,
        size: int,
        wait: float | None,
        elsewhere: bool,
    ) -> None:
        """T1 to T7, IF-31, O07."""
        given = {"priority": priority, "life": life, "delay": delay, "colour": colour, "size": size}
        parts = [{**given, "persistent": persistent ^ (index == 1)} for index in range(how_many)]
        self.put(number, queue, parts, transacted=transacted, wait=wait, elsewhere=elsewhere)

    def put(
        self, number: int, queue: str, parts: list[dict[str, Any]], *, transacted: bool, wait: float | None, elsewhere: bool
    ) -> None:
        """Send one message for each of `parts`, in one call."""
        contents = [self.content(**part) for part in parts]
        actor = self.actor(number, transacted=transacted)
        place = self.model.place(queue)
        messages = [self.message(one, place.settings) for one in contents]
        verdict = self.model.verdict(queue, messages, may_wait=wait != 0.0)
        if verdict == "waits" and len(self.cast.blocked) >= (1 if self.stored else 4):
            return  # which of two is stored first is left open; and there are only so many threads
        sender = actor.real.open_sender(Queue(queue), None)
        deadline = None if wait is None else self.clock.monotonic() + wait

        def call() -> None:
            sender.send(contents, room_deadline=deadline, confirm_timeout=None)

        if verdict == "waits":
            result = self.block(call)
            actor.busy = True
            waiter = Waiter(place, actor.model, [], deadline)
            self.cast.blocked.append(Blocked(waiter, actor, result))
            blocked = self.cast.blocked[-1]

            def wait_too() -> None:
                blocked.waiter = self.model.send(queue, messages, actor.model, deadline, may_wait=True)

            self.then(wait_too)
            return
        errors = {
            "paused": DestinationPausedError,
            "never": ResourceAllocationError,
            "full": ResourceAllocationError,
            "part": SendError,
        }
        if verdict in errors:
            self.refused(lambda: self.do(call, elsewhere=elsewhere), errors[verdict], f"IF-31, T3: a send that is {verdict}")
        else:
            self.do(call, elsewhere=elsewhere)
        if verdict in ("enters", "part"):
            self.then(lambda: self.model.send(queue, messages, actor.model, deadline, may_wait=False))
        else:
            self.then(nothing)

    @rule(number=NUMBER, transacted=SOMETIMES, how_many=st.integers(1, 3), persistent=st.booleans(), colour=COLOURS)
    def publish(self, number: int, transacted: bool, how_many: int, persistent: bool, colour: str) -> None:
        """A copy for each subscription."""
        contents = [
            self.content(persistent=persistent, priority=4, life=None, delay=None, colour=colour, size=3) for _ in range(how_many)
        ]
        actor = self.actor(number, transacted=transacted)
        sender = actor.real.open_sender(TOPIC, None)
        messages = [self.message(one, settings_of()) for one in contents]
        flags = self.topic().flags | self.model.server
        if flags & {"production", "insertion"}:
            self.refused(
                lambda: sender.send(contents, room_deadline=None, confirm_timeout=None), DestinationPausedError, "the pause table"
            )
            self.then(nothing)
        else:
            sender.send(contents, room_deadline=None, confirm_timeout=None)
            self.then(lambda: self.model.publish(TOPIC.name, messages, actor.model))
