"""The pipeline on a scripted backend: what is run, settled and written, for each decision.

TR-28, TR-32, TR-34, TR-35, TR-37, TR-39, TR-40, TR-45, TR-46, TR-49, TR-50, TR-55, TR-62, TR-66, TR-67; cases D01, D05, O01.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jmsclient import Delivery, IllegalStateError, Message, Status, Worker
from jmsclient.errors import ConfigurationError
from jmsclient.events import Event
from jmsclient.history import DocumentHistory, Reply, State, open_history
from jmsclient.history.entries import Claim, Command, Complete
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.trigger.delivery import ResolverRequest
from jmsclient.trigger.identity import history_id

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]
When = Callable[[Callable[[], Any], Callable[[], Any]], None]


@pytest.fixture
def history() -> DocumentHistory:
    return open_history("memory:")


def counters(worker: Worker) -> Any:
    return worker.triggers[Q].pipeline.counters


def test_tr34_new_is_run_completed_and_accepted_and_its_copy_is_not_run(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    def book(body: str, delivery: Delivery) -> None:
        assert delivery.status is Status.NEW
        assert delivery.fencing_token > 0
        ran.append(body)

    with worker:
        backend.deliver(Q, [Message("a", properties={"uuid": "1"}), Message("again", properties={"uuid": "1"})])
        backend.deliver(Q, [Message("b", properties={"uuid": "2"})])
        until(lambda: len(backend.settlements) == 3)
        assert counters(worker).duplicate == 1
    assert ran == ["a", "b"]
    assert verbs(backend) == [Verb.ACCEPT] * 3
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert entry.state is State.COMPLETED


def test_tr37_completed_is_in_the_history_before_the_message_is_accepted(backend: ScriptedBackend, until: Until) -> None:
    log: list[str] = []
    inner = open_history("memory:")

    class Spy(DocumentHistory):
        def exchange(self, commands: Sequence[Command]) -> list[Reply]:
            log.extend(f"{type(one).__name__}:{len(backend.settlements)}" for one in commands)
            return inner.exchange(commands)

        lookup_many = inner.lookup_many
        in_doubt = inner.in_doubt
        purge_expired = inner.purge_expired
        statistics = inner.statistics
        close = inner.close

    worker = Worker(backend.url, history=Spy())

    @worker.trigger(Q)
    def book(body: str) -> None:
        log.append("handler")

    with worker:
        backend.deliver(Q, "a")
        until(lambda: len(backend.settlements) == 1)
    assert log == ["Claim:0", "handler", "Complete:0"]


def test_tr28_a_handler_cannot_acknowledge(backend: ScriptedBackend, until: Until) -> None:
    refused: list[Exception] = []
    worker = Worker(backend.url)

    @worker.trigger(Q)
    def book(message: Message) -> None:
        try:
            message.acknowledge()
        except IllegalStateError as error:
            refused.append(error)

    with worker:
        backend.deliver(Q, "a")
        until(lambda: len(backend.settlements) == 1)
    assert "the trigger acknowledges" in str(refused[0])


@pytest.mark.parametrize(
    ("on_error", "verb"), [("dead_letter", Verb.DEAD_LETTER), ("redeliver", Verb.RETRY), ("acknowledge", Verb.ACCEPT)]
)
@pytest.mark.parametrize("with_history", [True, False])
def test_tr45_a_failed_handler_ends_as_on_error_says(
    backend: ScriptedBackend, until: Until, on_error: Any, verb: Verb, with_history: bool
) -> None:
    history = open_history("memory:") if with_history else None
    failing = threading.Event()
    failing.set()
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, on_error=on_error)
    def book(body: str) -> None:
        if failing.is_set():
            failing.clear()
            raise ValueError("bad iban\nsecond line")

    with worker:
        backend.deliver(Q, [Message("a", properties={"uuid": "1"})])
        until(lambda: len(backend.settlements) >= 1)
        first = backend.settlements[0]
        assert first.outcome.verb is verb
        if on_error == "dead_letter":
            assert first.outcome.properties["JMS_jmsclient_error_type"] == "ValueError"
            assert first.outcome.properties["JMS_jmsclient_error_text"] == "bad iban second line"
        if on_error == "redeliver" and with_history:  # TR-46: our own redelivery is New, attempt 2
            until(lambda: len(backend.settlements) == 2)
            assert verbs(backend) == [Verb.RETRY, Verb.ACCEPT]
    if history is not None:
        entry = history.lookup(Q, "1", source="uuid")
        assert entry is not None
        wanted = {"dead_letter": State.FAILED, "redeliver": State.COMPLETED, "acknowledge": State.COMPLETED}
        assert entry.state is wanted[on_error]


def test_tr45_an_error_destination_gets_a_full_copy_and_the_entry_is_completed(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, error_destination="queue:///errors")
    def book(body: str) -> None:
        raise KeyError("k")

    with worker:
        backend.deliver(Q, [Message("a", properties={"uuid": "1", "n": 2}, correlation_id="c")])
        until(lambda: len(backend.settlements) == 1)
    (copy,) = backend.waiting("queue:///errors")
    assert copy.body() == "a"
    assert copy.header("correlation_id") == "c"
    assert copy.properties()["n"] == 2
    assert copy.properties()["JMS_jmsclient_original_destination"] == Q
    assert verbs(backend) == [Verb.ACCEPT]
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert (entry.state, entry.outcome) == (State.COMPLETED, "failed")


@pytest.mark.parametrize("answer", list(Status))
def test_tr55_the_resolver_decides_about_an_abandoned_message(
    backend: ScriptedBackend, until: Until, answer: Status, tmp_path: Any
) -> None:
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    history.claim(Q, "1", source="uuid", lease=0.0)
    ran: list[int] = []
    asked: list[ResolverRequest] = []

    def resolver(request: ResolverRequest) -> tuple[Status, str]:
        asked.append(request)
        return answer, "because"

    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, resolver=resolver)
    def book(delivery: Delivery) -> None:
        ran.append(delivery.attempt)

    with worker:
        backend.deliver(Q, [Message("a", properties={"uuid": "1"})], delivery_count=2)
        until(lambda: len(backend.settlements) == 1)
        again = [Message("a", properties={"uuid": "1"})]
        backend.deliver(Q, again)
        until(lambda: len(backend.settlements) == 2)
    assert verbs(backend) == [Verb.ACCEPT] * 2
    assert len(asked) == 1  # the next copy finds the answer in the history
    assert asked[0].entry is not None
    assert (asked[0].id, asked[0].source, asked[0].delivery_count) == ("1", "uuid", 2)
    assert ran == ([2] if answer is Status.NEW else [])
    parked = history.in_doubt(Q)
    history.close()
    if answer is Status.IN_DOUBT:
        assert (parked[0].id, parked[0].reason, parked[0].copies) == ("1", "resolver", 1)
    else:
        assert parked == []


def test_tr34_in_doubt_is_parked_once_with_a_full_copy(backend: ScriptedBackend, until: Until, tmp_path: Any) -> None:
    from jmsclient.envelope import decode

    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    history.claim(Q, "1", source="uuid", lease=0.0)
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    def book(body: str) -> None:
        raise AssertionError("an In Doubt message is not run")

    with worker:
        backend.deliver(Q, [Message("whole", properties={"uuid": "1", "k": "v"}, correlation_id="c") for _ in range(3)])
        until(lambda: len(backend.settlements) == 3)
        assert counters(worker).in_doubt == 1
    (parked,) = history.in_doubt(Q)
    history.close()
    content = decode(parked.envelope)
    assert (content.body(), content.properties()["k"], content.header("correlation_id")) == ("whole", "v", "c")
    assert (parked.reason, parked.copies) == ("abandoned", 2)


def test_tr35_a_copy_in_progress_is_held_and_then_a_duplicate(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    """TR-67: the scripted backend cannot delay a release, so the client holds it, unsettled."""
    claim = history.claim(Q, "1", source="uuid", lease=2.0)
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, concurrency=2)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(Q, [Message("copy", properties={"uuid": "1"}), Message("other", properties={"uuid": "2"})])
        until(lambda: ran == ["other"])  # held ones delay no other message
        assert counters(worker).in_progress == 1
        history.complete(Q, "1", source="uuid", token=claim.token)
        until(lambda: len(backend.settlements) == 2)
    assert ran == ["other"]
    assert verbs(backend) == [Verb.ACCEPT] * 2


def test_tr62_a_serial_trigger_waits_behind_its_held_head(backend: ScriptedBackend, history: DocumentHistory, until: Until) -> None:
    history.claim(Q, "1", source="uuid", token="other", lease=0.3)
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, options=None, resolver=lambda request: Status.NEW)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(Q, [Message("first", properties={"uuid": "1"}), Message("second", properties={"uuid": "2"})])
        until(lambda: len(backend.settlements) == 2)
    assert ran == ["first", "second"]


def test_tr39_a_lost_lease_is_neither_completed_nor_accepted(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    worker = Worker(backend.url, history=history)
    taken_over = threading.Event()

    @worker.trigger(Q, lease=30.0)
    def book(body: str) -> None:
        if not taken_over.is_set():
            entry = history.lookup(Q, "1", source="uuid")
            assert entry is not None
            history.release(Q, "1", source="uuid", token=entry.token)
            history.claim(Q, "1", source="uuid", token="somebody else", lease=0.2)
            history.complete(Q, "1", source="uuid", token="somebody else")
            taken_over.set()

    with worker:
        backend.deliver(Q, [Message("a", properties={"uuid": "1"})])
        until(lambda: len(backend.settlements) == 2)
    assert verbs(backend) == [Verb.RETRY, Verb.ACCEPT]  # given back (TR-66), then a Duplicate
    assert [one.name for one in events if one.name == "lease_lost"] == ["lease_lost"]


def test_tr40_a_lease_is_renewed_while_the_handler_runs(
    backend: ScriptedBackend, until: Until, by_hand: Callable[[Worker], Worker], leased: Any
) -> None:
    release = threading.Event()
    worker = by_hand(Worker(backend.url, history=leased))

    @worker.trigger(Q, lease=30.0, concurrency=2)
    def book(body: str) -> None:
        assert release.wait(60)

    with worker:
        backend.deliver(Q, [Message("a", properties={"uuid": "1"})])
        until(lambda: leased.lookup(Q, "1", source="uuid") is not None)
        leased.outlast(30.0)
        assert leased.lookup(Q, "1", source="uuid").lease_alive
        release.set()
        until(lambda: len(backend.settlements) == 1)
    assert verbs(backend) == [Verb.ACCEPT]


def test_tr49_without_its_history_a_trigger_suspends_and_resumes_by_itself(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event], switchable: Callable[..., Any]
) -> None:
    failing = switchable(history)
    failing.off = Claim
    ran: list[int] = []
    worker = Worker(backend.url, history=failing)

    @worker.trigger(Q)
    def book(delivery: Delivery) -> None:
        ran.append(delivery.delivery_count)

    with worker:
        backend.deliver(Q, ["a", "b"])
        until(lambda: worker.triggers[Q].pipeline.suspended == "history_unavailable")
        assert ran == []
        until(lambda: len(backend.waiting(Q)) == 2)  # given back, uncounted
        failing.off = None
        until(lambda: len(ran) == 2)
    assert ran == [1, 1]
    assert Verb.RETRY not in verbs(backend)
    assert [one.name for one in events if one.name in ("suspended", "resumed")] == ["suspended", "resumed"]


def test_tr50_a_completion_that_cannot_be_written_is_tried_until_the_lease_ends_then_given_back(
    backend: ScriptedBackend,
    history: DocumentHistory,
    until: Until,
    events: list[Event],
    switchable: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jmsclient.trigger.outage.FIRST_PROBE", 0.1)
    failing = switchable(history)
    failing.off = Complete
    worker = Worker(backend.url, history=failing)

    @worker.trigger(Q, lease=0.5, in_doubt="acknowledge")
    def book(body: str) -> None:
        pass

    with worker:
        backend.deliver(Q, [Message("a", properties={"uuid": "1"})])
        until(lambda: Verb.RETRY in verbs(backend))
        assert "completed_not_recorded" in [one.name for one in events]
        failing.off = None
        until(lambda: counters(worker).in_doubt == 1)  # In Doubt, never New


def test_tr32_the_id_is_the_uuid_property_or_the_message_id() -> None:
    def of(**properties: Any) -> Any:
        message = Message("x", properties=properties)
        message.content.message_id = "ID:1"
        return history_id(message.content)

    assert of(uuid="u") == ("u", "uuid")
    assert of(uuid=7) == ("7", "uuid")
    assert of(uuid="") == ("ID:1", "JMSMessageID")
    assert of(uuid=" ") == ("ID:1", "JMSMessageID")
    assert of(uuid=True) == ("ID:1", "JMSMessageID")
    assert of() == ("ID:1", "JMSMessageID")
    assert of(uuid="x" * 201)[0].startswith("sha256:")
    assert of(uuid="sha256:abc")[0] != "sha256:abc"
    assert history_id(Message("x").content) is None


def test_a_handler_sends_after_it_returned_and_nothing_when_it_raises(backend: ScriptedBackend, until: Until) -> None:
    worker = Worker(backend.url)

    @worker.trigger(Q, on_error="acknowledge")
    def book(body: str, delivery: Delivery) -> None:
        delivery.send("queue:///invoices", {"order": body}, properties={"k": 1})
        if body == "bad":
            raise ValueError(body)

    with worker:
        backend.deliver(Q, ["good", "bad"])
        until(lambda: len(backend.settlements) == 2)
    (invoice,) = backend.waiting("queue:///invoices")
    assert invoice.body() == {"order": "good"}


def test_o01_stopping_runs_nothing_new_and_gives_back_what_is_buffered(backend: ScriptedBackend, until: Until) -> None:
    started, go_on = threading.Event(), threading.Event()
    ran: list[str] = []
    worker = Worker(backend.url)

    @worker.trigger(Q)
    def book(body: str) -> None:
        ran.append(body)
        started.set()
        assert go_on.wait(60)

    worker.start()
    backend.deliver(Q, ["1", "2", "3", "4"])
    assert started.wait(30)
    until(lambda: worker.triggers[Q].pipeline._intake.buffered == 3)
    worker.request_stop(10.0)
    go_on.set()
    report = worker.stop(10.0)
    assert report.clean
    assert ran == ["1"]
    (one,) = report.triggers
    assert (one.finished, one.released, one.unfinished) == (1, 3, 0)
    assert [content.body() for content in backend.waiting(Q)] == ["2", "3", "4"]


def test_o01_a_handler_that_outlasts_the_grace_is_not_acknowledged(backend: ScriptedBackend) -> None:
    started, go_on = threading.Event(), threading.Event()
    worker = Worker(backend.url)

    @worker.trigger(Q)
    def book(body: str) -> None:
        started.set()
        go_on.wait(60)

    worker.start()
    backend.deliver(Q, "1")
    assert started.wait(30)
    report = worker.stop(0.1)
    go_on.set()
    assert not report.clean
    assert report.triggers[0].unfinished == 1
    assert [content.body() for content in backend.waiting(Q)] == ["1"]


def test_a_lost_link_ends_the_run_with_an_error(backend: ScriptedBackend, when: When) -> None:
    from jmsclient.errors import ConnectionLostError

    worker = Worker(backend.url)

    @worker.trigger(Q)
    def book(body: str) -> None: ...

    when(lambda: worker.triggers and worker.triggers[Q].running, backend.lose_link)
    with pytest.raises(ConnectionLostError):
        worker.run()


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"lease": -1}, ConfigurationError, "lease=-1"),
        ({"lease": float("nan")}, ConfigurationError, "lease=nan"),
        ({"lease": 10, "history_ttl": 5}, ConfigurationError, "lease must be shorter"),
        ({"concurrency": 0}, ConfigurationError, "concurrency=0"),
        ({"on_error": "explode"}, ConfigurationError, "dead_letter, redeliver, acknowledge"),
        ({"in_doubt": "park"}, ConfigurationError, "must be durable"),
    ],
)
def test_bad_settings_are_refused_by_name(
    backend: ScriptedBackend, settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    worker = Worker(backend.url)

    @worker.trigger(Q, **settings)
    def book(body: str) -> None: ...

    with pytest.raises(error, match=text):
        worker.start()


def test_bad_handlers_and_destinations_are_refused_when_declared(backend: ScriptedBackend) -> None:
    worker = Worker(backend.url)
    with pytest.raises(ConfigurationError, match="parameter 'body' is not annotated; expected"):

        @worker.trigger(Q)
        def untyped(body) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(ConfigurationError, match="unknown property 'color'"):
        worker.trigger("queue:///orders?color=red")
    with pytest.raises(ConfigurationError, match="no trigger"):
        worker.start()


def test_o02_a_second_request_shortens_the_grace_and_nothing_lengthens_it(backend: ScriptedBackend) -> None:
    started, go_on = threading.Event(), threading.Event()
    worker = Worker(backend.url)

    @worker.trigger(Q)
    def book(body: str) -> None:
        started.set()
        go_on.wait(60)

    worker.start()
    backend.deliver(Q, "1")
    assert started.wait(30)
    worker.request_stop(0.0)
    report = worker.stop(60.0)  # the drain was ended already: it does not wait for the handler
    go_on.set()
    assert report.triggers[0].unfinished == 1


def test_tr58_beyond_the_delivery_limit_a_message_is_dead_lettered_unrun_and_a_duplicate_stays_one(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    """TR-58."""
    claim = history.claim(Q, "done", source="uuid")
    history.complete(Q, "done", source="uuid", token=claim.token)
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_deliveries=2)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(Q, [Message("limit", properties={"uuid": "limit"})], delivery_count=2)
        backend.deliver(Q, [Message("beyond", properties={"uuid": "beyond"})], delivery_count=3)
        backend.deliver(Q, [Message("done", properties={"uuid": "done"})], delivery_count=3)
        until(lambda: len(backend.settlements) == 3)
    assert ran == ["limit"]
    assert verbs(backend) == [Verb.ACCEPT, Verb.DEAD_LETTER, Verb.ACCEPT]
