"""FILE.sock: who may come, what the two sides say to each other, and what becomes of everything when one of them goes."""

from __future__ import annotations

import os
import resource
import socket
import stat
import threading
from pathlib import Path

import pytest

from jmsclient import connect as connect_publicly
from jmsclient.destination import Queue
from jmsclient.errors import (
    ConfigurationError,
    ConnectionLostError,
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    MessageFormatError,
    RequestTimeoutError,
    ResourceAllocationError,
    SendError,
    StoreInUseError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsclient.transport.contract import ACCEPT, RETRY, Arrival, Outcome, Receiver, ReceiverSpec, Verb
from jmsclient.transport.registry import parse_url
from jmsclient_embedded.attach import frames, link, listening, pushing, remote
from jmsclient_embedded.attach.attaching import attach
from jmsclient_embedded.transport import EmbeddedBackend

from .attached import Attached, Heard, Raw, fresh_name, threads_named, wait_until
from .conftest import PATIENCE, Client, Connect, Listener, content, in_thread


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def name() -> str:
    return fresh_name()


@pytest.fixture
def url(store: Path, name: str) -> str:
    return f"embedded:{name}?store={store}"


@pytest.fixture
def holder(connect: Connect) -> Client:
    """The connection of the process that holds the store; the books must balance when it is closed."""
    return connect()


def end(client: Client) -> None:
    client.session.close(None)
    client.transport.close(None)


def socket_of(store: Path) -> Path:
    return store.with_name(store.name + ".sock")


# -- the file --------------------------------------------------------------------------------------------------------------


def test_the_socket_is_private_whatever_the_umask_says(connect: Connect, store: Path) -> None:
    before = os.umask(0)
    try:
        connect()
        assert stat.S_IMODE(socket_of(store).stat().st_mode) == 0o600
        assert stat.S_ISSOCK(socket_of(store).stat().st_mode)
    finally:
        os.umask(before)


def test_the_socket_is_private_where_only_the_umask_can_make_it_so(
    connect: Connect, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not on this platform")

    before = os.umask(0)
    try:
        monkeypatch.setattr(listening.os, "fchmod", refuse)
        connect()
        assert stat.S_IMODE(socket_of(store).stat().st_mode) == 0o600
        assert os.umask(0) == 0
    finally:
        os.umask(before)


def test_where_no_private_socket_can_be_there_is_none(connect: Connect, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening.os, "fchmod", lambda *_: None)
    before = os.umask(0)
    try:
        with Heard() as heard:
            connect()
    finally:
        os.umask(before)
    assert [one.fields["path"] for one in heard.named("socket_unavailable")] == [str(socket_of(store))]
    assert not socket_of(store).exists()


def test_the_socket_goes_with_its_broker_and_so_do_its_threads(connect: Connect, store: Path, name: str) -> None:
    holder = connect()
    attached = Attached(store)
    assert threads_named(name, "socket")
    assert threads_named(name, "client-1")
    end(holder)
    assert not socket_of(store).exists()
    assert attached.listener.heard.wait(PATIENCE)
    wait_until(lambda: not threads_named(name), f"{threads_named(name)} are left")
    wait_until(lambda: not threads_named("embedded-attached"))


def test_a_stale_socket_is_replaced(connect: Connect, store: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(socket_of(store)))
    connect().send("a")
    assert Attached(store).take(1)[1][0].content.body() == "a"


def test_a_file_of_the_users_in_its_place_is_left_alone(connect: Connect, store: Path) -> None:
    socket_of(store).write_text("mine")
    with Heard() as heard:
        holder = connect()
    (event,) = heard.named("socket_unavailable")
    assert "move it away" in event.text
    holder.send("the store works all the same")
    end(holder)
    assert socket_of(store).read_text() == "mine"


def test_a_path_that_is_too_long_is_one_warning_and_no_socket(connect: Connect, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with Heard() as heard:
        holder = connect(f"embedded:{fresh_name()}?store={folder / 'shop.db'}")
    (event,) = heard.named("socket_unavailable")
    assert "too long" in event.text
    assert str(folder) in event.text
    holder.send("a")
    assert holder.shown() == [("visible", 0)]
    with pytest.raises(OSError, match="too long"):
        attach(folder / "shop.db", parse_url("embedded:"), Listener())


def test_a_store_is_reopened_at_once_by_the_same_process(connect: Connect, store: Path) -> None:
    for number in range(5):
        holder = connect()
        attached = Attached(store)
        attached.send(str(number))
        end(holder)
        assert attached.listener.heard.wait(PATIENCE)
    assert connect().shown() == [("visible", 0)] * 5


# -- attach=yes ------------------------------------------------------------------------------------------------------------


def test_attach_opens_the_store_where_nobody_holds_it(url: str, store: Path) -> None:
    with connect_publicly(f"{url}&attach=yes") as connection:
        assert connection.transport.in_process
        assert socket_of(store).exists()
    assert not socket_of(store).exists()


def test_a_wrong_attach_is_refused_by_name() -> None:
    for parameters, said in (("attach=perhaps&store=x", "attach='perhaps'"), ("attach=yes", "store=FILE")):
        with pytest.raises(ConfigurationError, match=said):
            EmbeddedBackend().connect(parse_url(f"embedded:?{parameters}"), Listener(), deadline=None)


def test_another_broker_than_the_one_there_is_is_refused(holder: Client, store: Path) -> None:
    Attached(store, "?redelivery_limit=-1")
    with pytest.raises(ConfigurationError, match="other parameters"):
        Attached(store, "?redelivery_limit=3")
    with pytest.raises(ConfigurationError, match="nonsense"):
        Attached(store, "?nonsense=3")


def test_a_client_identifier_is_one_connections_wherever_it_is(holder: Client, store: Path) -> None:
    first = Attached(store, client_id="shop")
    with pytest.raises(IllegalStateError, match="'shop'"):
        Attached(store, client_id="shop")
    first.transport.close(None)
    wait_until(lambda: not holder.broker.client_ids)
    Attached(store, client_id="shop")


def test_another_protocol_is_refused_and_says_what_to_do(holder: Client, store: Path) -> None:
    with Raw(store, greet=False) as raw:
        raw.say({"hello": {"product": "jmsclient-embedded", "protocol": 99}, "parameters": {}, "client_id": None})
        name, (text,) = raw.hear().header["refused"]
        assert name == "StoreInUseError"
        assert "protocol 99" in text
        assert "same version" in text
        assert raw.closed_by_peer()


def test_a_process_with_very_many_files_is_served_too(connect: Connect, store: Path) -> None:
    """`select` would refuse what has a number of 1,024 or more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        holder = connect()
        Attached(store).send("a")
        end(holder)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_free_file_is_one_event_and_passes(connect: Connect, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_PAUSE_AFTER_FAULT", 0.001)
    refusals = 3

    def admit(self: listening.Listening, connected: socket.socket) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals == 0:
            monkeypatch.undo()
        connected.close()
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(listening.Listening, "_admit", admit)
    connect()
    with Heard() as heard:
        for _ in range(3):
            with Raw(store, greet=False) as raw:
                assert raw.closed_by_peer()
        Attached(store).send("a")
    assert len(heard.named("client_not_accepted")) == 1


def test_a_crowd_is_turned_away(holder: Client, store: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_CLIENTS", 2)
    first = Attached(store)
    Attached(store)
    with pytest.raises(StoreInUseError, match="2 processes are attached"):
        Attached(store)
    first.transport.close(None)
    wait_until(lambda: len(threads_named(name, "-read")) < 2)
    Attached(store).send("a")


def test_who_says_nothing_is_cut_off(connect: Connect, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HELLO_TIMEOUT", 0.05)
    connect()
    with Raw(store, greet=False) as silent:
        assert silent.closed_by_peer()
    Attached(store).send("a")


# -- the contract through the socket, where it is more than the conformance checks ----------------------------------------


def test_if_11_a_hand_over_is_in_the_journal_when_it_returns(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("seen", "unseen")
    receiver, arrivals = attached.take(2)
    receiver.handing_over(arrivals[:1])
    journal = holder.broker.store.journal  # type: ignore[union-attr]
    assert list(journal._open.values()) == [1]
    attached.cut()
    wait_until(lambda: sorted(holder.shown()) == [("visible", 0), ("visible", 1)])


def test_if_11_of_a_non_persistent_message_too_the_holder_knows_whether_it_was_seen(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("seen", "unseen", "called off", persistent=False)
    _, arrivals = attached.take(3)
    arrivals[0].handed_over = True
    arrivals[2].handed_over = True
    arrivals[2].handed_over = False
    attached.session.flush(None)
    attached.cut()
    wait_until(lambda: holder.shown() == [("visible", 1), ("visible", 0), ("visible", 0)])


def test_if_11_a_hand_over_that_was_struck_is_none(holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IF-40: an exception from a signal handler while the holder is asked; the application never sees the message."""
    attached = Attached(store)
    attached.send("a")
    receiver, arrivals = attached.take(1)
    with monkeypatch.context() as patched:
        patched.setattr(link.Answer, "wait", _struck)
        with pytest.raises(KeyboardInterrupt):
            receiver.handing_over(arrivals)
    attached.session.flush(None)
    attached.cut()
    wait_until(lambda: holder.shown() == [("visible", 0)])


def _struck(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_holder_that_does_not_answer_is_left_alone_at_the_deadline(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a")
    attached.take(1)
    with holder.broker.steps.lock, pytest.raises(RequestTimeoutError):  # nothing is done there meanwhile
        attached.transport.close(attached.transport.link.clock.deadline(0.02))
    wait_until(lambda: holder.shown() == [("visible", 0)])
    wait_until(lambda: not threads_named("embedded-attached"))
    assert attached.listener.errors == []


def test_if_10_what_a_client_held_is_back_when_its_link_is_cut(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send(*map(str, range(20)))
    attached.take(20)
    assert holder.shown() == [("receive", 0)] * 20
    attached.cut()
    assert attached.listener.heard.wait(PATIENCE)
    wait_until(lambda: holder.shown() == [("visible", 0)] * 20)
    assert len(attached.listener.errors) == 1


def test_the_end_of_the_holder_says_why_and_gives_everything_back(connect: Connect, store: Path) -> None:
    holder = connect()
    attached = Attached(store)
    attached.send("a", "b")
    receiver, arrivals = attached.take(2)
    receiver.handing_over(arrivals[:1])
    arrivals[0].handed_over = True
    end(holder)
    assert attached.listener.heard.wait(PATIENCE)
    (error,) = attached.listener.errors
    assert isinstance(error, ConnectionLostError)
    assert "has closed it" in str(error)
    receiver.settle(arrivals, ACCEPT)
    with pytest.raises(ConnectionLostError):
        attached.send("c")
    assert connect().shown() == [("visible", 1), ("visible", 0)]


def test_an_attached_process_does_not_keep_the_store_open(connect: Connect, store: Path) -> None:
    holder = connect()
    Attached(store)
    end(holder)
    assert not store.with_name("shop.db.lock").exists()


def test_a_transaction_is_one_through_the_socket(holder: Client, store: Path) -> None:
    attached = Attached(store, transacted=True)
    holder.send("old")
    receiver, arrivals = attached.take(1)
    receiver.handing_over(arrivals)
    receiver.settle(arrivals, ACCEPT)
    attached.send("new")
    assert sorted(state for state, _ in holder.shown()) == ["receive+transaction", "send+transaction"]
    attached.session.rollback(redelivery_delay=0.0, deadline=None)
    assert holder.shown() == [("visible", 1)]
    attached.send("new")
    attached.session.commit(None)
    assert holder.shown() == [("visible", 1), ("visible", 0)]


def test_if_28_a_lost_commit_is_in_doubt_and_one_after_the_loss_is_rolled_back(holder: Client, store: Path) -> None:
    attached = Attached(store, transacted=True)
    attached.send("a")
    attached.transport.link.wire.put(lambda: _cut(attached))
    with pytest.raises(TransactionInDoubtError):
        attached.session.commit(None)
    assert attached.listener.heard.wait(PATIENCE)
    with pytest.raises(TransactionRolledBackError):
        attached.session.commit(None)
    wait_until(lambda: holder.shown() == [])


def _cut(attached: Attached) -> bytes:
    attached.cut()
    return b""


def test_a_send_whose_link_is_lost_is_in_doubt(holder: Client, store: Path) -> None:
    attached = Attached(store)
    sender = attached.session.open_sender(Queue("q"), None)
    attached.transport.link.wire.put(lambda: _cut(attached))
    with pytest.raises(SendError) as caught:
        sender.send([content("a", message_id="ID:a")], room_deadline=None, confirm_timeout=PATIENCE)
    assert caught.value.in_doubt == ("ID:a",)


def test_a_send_without_room_waits_and_raises_what_the_holder_raises(holder: Client, store: Path) -> None:
    """IF-31."""
    holder.admin.create_queue("q", messages_maximum=1)
    attached = Attached(store)
    attached.send("a")
    sender = attached.session.open_sender(Queue("q"), None)
    clock = attached.transport.link.clock
    with pytest.raises(ResourceAllocationError):
        sender.send([content("b")], room_deadline=clock.deadline(0.05), confirm_timeout=PATIENCE)
    waiting = threading.Thread(target=lambda: attached.send("c"))
    waiting.start()
    wait_until(lambda: holder.admin.statistics("q").blocked_senders == 1)
    receiver, arrivals = attached.take(1)  # another call of the same client is not held up
    receiver.settle(arrivals, ACCEPT)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    assert [state for state, _ in holder.shown()] == ["visible"]


def test_a_client_that_dies_while_its_send_waits_for_room_waits_no_more(holder: Client, store: Path) -> None:
    holder.admin.create_queue("q", messages_maximum=1)
    holder.send("full")
    attached = Attached(store)

    def send() -> None:
        with pytest.raises(SendError):
            attached.send("a")

    waiting = threading.Thread(target=lambda: in_thread(send))
    waiting.start()
    wait_until(lambda: holder.admin.statistics("q").blocked_senders == 1)
    attached.cut()
    waiting.join(PATIENCE)
    wait_until(lambda: holder.admin.statistics("q").blocked_senders == 0)


def test_large_sends_and_deliveries_go_in_portions(holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SEND_BYTES", 1000)
    monkeypatch.setattr(pushing, "BATCH_BYTES", 1500)
    attached = Attached(store)
    bodies = [str(number) * 300 for number in range(30)]
    attached.send(*bodies)
    receiver, arrivals = attached.take(30)
    assert [one.content.body() for one in arrivals] == bodies
    assert [one.size for one in arrivals] == [len(body) for body in bodies]
    receiver.settle(arrivals, ACCEPT)


def test_a_send_that_fails_in_its_second_portion_says_what_became_of_each(
    holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "SEND_BYTES", 1000)
    holder.admin.create_queue("q", messages_maximum=5)
    attached = Attached(store)
    sender = attached.session.open_sender(Queue("q"), None)
    messages = [content("x" * 300, message_id=f"ID:{number}") for number in range(8)]
    with pytest.raises(SendError) as caught:
        sender.send(messages, room_deadline=attached.transport.link.clock.deadline(0.05), confirm_timeout=PATIENCE)
    ids = [f"ID:{number}" for number in range(8)]
    assert caught.value.confirmed == tuple(ids[:5])
    assert caught.value.unsent == tuple(ids[5:])
    assert holder.shown() == [("visible", 0)] * 5


def test_a_message_too_long_for_a_frame_is_not_sent(holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attached = Attached(store)
    monkeypatch.setattr(frames, "FRAME_LIMIT", 100_000)
    with pytest.raises(MessageFormatError, match="at most 100000"):
        attached.send("x" * 100_000)
    attached.send("a")
    assert holder.shown() == [("visible", 0)]


def test_a_message_too_long_for_a_frame_closes_the_receiver_that_asks_for_it(
    holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not come again and again, and the others of the client go on."""
    attached = Attached(store)
    holder.send("x" * 100_000)
    errors: list[Exception | None] = []
    heard = threading.Event()
    monkeypatch.setattr(frames, "FRAME_LIMIT", 100_000)
    receiver, sink = attached.receiver()

    def closed(error: Exception | None) -> None:
        errors.append(error)
        heard.set()

    sink.closed = closed  # type: ignore[method-assign]
    receiver.request(1)
    assert heard.wait(PATIENCE)
    assert isinstance(errors[0], MessageFormatError)
    assert sink.arrivals == []
    attached.send("a", queue="other")
    attached.take(1, "other")
    attached.session.close(None)
    assert holder.shown() == [("visible", 0)]


def test_a_recall_crosses_the_socket(holder: Client, store: Path) -> None:
    """IF-20: a consumption pause takes back what the application has not seen."""
    attached = Attached(store)
    attached.send("a", "b")
    receiver, sink = attached.receiver(demand=2)
    sink.wait(2)
    recalled = threading.Event()
    sink.recall = recalled.set  # type: ignore[method-assign]
    holder.admin.pause_consumption("q")
    assert recalled.wait(PATIENCE)
    receiver.settle(sink.arrivals, Outcome(verb=Verb.RELEASE))
    attached.session.flush(None)
    assert holder.shown() == [("visible", 0)] * 2


def test_browsing_through_the_socket_changes_nothing(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a", "b")
    receiver, sink = attached.receiver(demand=10, kind="browse")
    receiver.drain(None)
    assert sink.bodies == ["a", "b"]
    assert all(arrival.settled for arrival in sink.arrivals)
    receiver.close(None)
    assert holder.shown() == [("visible", 0)] * 2


def test_temporary_destinations_and_subscriptions_belong_to_the_attached_connection(holder: Client, store: Path) -> None:
    attached, other = Attached(store, client_id="shop"), Attached(store)
    temporary = attached.session.create_temporary("queue", None)
    spec = ReceiverSpec(destination=temporary)
    with pytest.raises(InvalidDestinationError):
        other.session.open_receiver(spec, Listener(), None)  # type: ignore[arg-type]
    attached.session.delete_temporary(temporary, None)
    with pytest.raises(InvalidDestinationError, match="news"):
        attached.session.unsubscribe("news", None)


def test_a_sink_may_ask_while_it_is_being_called(holder: Client, store: Path) -> None:
    attached = Attached(store)
    seen: list[str] = []
    receivers: list[Receiver] = []

    def ask(batch: list[Arrival]) -> None:
        receivers[0].handing_over(batch)
        receivers[0].settle(batch, ACCEPT)
        attached.session.flush(None)
        seen.extend(attached.send(*[f"answer to {one.content.body()}" for one in batch], queue="answers"))

    receiver, _ = attached.receiver(on_batch=ask)
    receivers.append(receiver)
    receiver.request(10)
    attached.send("a", "b", "c")
    wait_until(lambda: len(seen) == 3)
    assert holder.shown() == []
    assert holder.shown("answers") == [("visible", 0)] * 3


def test_what_arrives_while_a_receiver_closes_goes_back_unseen(holder: Client, store: Path) -> None:
    attached = Attached(store)
    entered, gate = threading.Event(), threading.Event()

    def block(batch: list[Arrival]) -> None:
        entered.set()
        gate.wait(PATIENCE)

    receiver, sink = attached.receiver(on_batch=block)
    receiver.request(10)
    attached.send("a")
    assert entered.wait(PATIENCE)
    attached.send("b", "c")
    closing = threading.Thread(target=lambda: receiver.close(None))
    closing.start()
    wait_until(lambda: receiver._ended)
    gate.set()
    closing.join(PATIENCE)
    assert sink.bodies == ["a"]
    attached.session.flush(None)
    assert holder.shown() == [("visible", 0), ("visible", 0), ("receive", 0)]


def test_what_waits_gives_up_at_its_deadline_and_the_link_goes_on(holder: Client, store: Path) -> None:
    attached = Attached(store)
    entered, gate = threading.Event(), threading.Event()

    def block(batch: list[Arrival]) -> None:
        entered.set()
        gate.wait(PATIENCE)

    receiver, _ = attached.receiver(on_batch=block, demand=1)
    attached.send("a")
    assert entered.wait(PATIENCE)
    with pytest.raises(RequestTimeoutError):
        receiver.drain(attached.transport.link.clock.deadline(0.02))
    gate.set()
    receiver.drain(None)
    attached.session.flush(None)


def test_many_clients_at_the_same_time_conserve_every_message(holder: Client, store: Path) -> None:
    """IF-7: six clients send and take, two of them are cut now and then."""
    total, lock = 300, threading.Lock()
    taken: list[str] = []

    def sender(number: int) -> None:
        attached = Attached(store)
        for start in range(0, total, 10):
            attached.send(*[f"{number}-{start + one}" for one in range(10)])
        attached.transport.close(None)

    def taker(number: int) -> None:
        rounds = 0
        while len(taken) < 2 * total:
            attached = Attached(store)
            rounds += 1
            receiver, sink = attached.receiver(demand=40)
            wait_until(lambda: sink.arrivals or len(taken) >= 2 * total)  # noqa: B023
            arrivals = sink.arrivals[:20]
            with lock:
                receiver.handing_over(arrivals)
                receiver.settle(arrivals, ACCEPT)
                attached.session.flush(None)
                taken.extend(str(one.content.body()) for one in arrivals)
            if (rounds + number) % 2:
                attached.cut()
            else:
                attached.transport.close(None)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(2) for one in (sender, taker)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(taken) == sorted(f"{number}-{one}" for number in range(2) for one in range(total))
    wait_until(lambda: holder.shown() == [])


# -- administration through the socket ------------------------------------------------------------------------------------


def test_administration_gives_what_the_holders_gives(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a", "b", priority=7)
    there, here = attached.transport.administration(), holder.admin
    assert there.statistics("q") == here.statistics("q")
    assert there.destinations() == here.destinations()
    assert [one.message_id for one in there.messages("q", state="visible")] == [one.message_id for one in here.messages("q")]
    assert there.pause_consumption(Queue("q")) is True
    assert there.pause_consumption("q") is False
    there.create_queue("rest", messages_maximum=5, default_read_ahead="yes", redelivery_delay_maximum=2.0)
    ids = [one.message_id for one in here.messages("q")]
    result = there.move("q", "rest", message_ids=[str(ids[0]), "ID:unknown"])
    assert result.done == (ids[0],)
    assert result.refused == (("ID:unknown", "not there"),)
    assert there.drain("q").done == (ids[1],)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        pytest.param(lambda there: there.statistics("nowhere"), InvalidDestinationError, id="missing"),
        pytest.param(lambda there: there.statistics("topic:nowhere"), InvalidDestinationError, id="malformed"),
        pytest.param(lambda there: there.drain("q"), IllegalStateError, id="wrong state"),
        pytest.param(lambda there: there.messages("q", "n >"), InvalidSelectorError, id="selector"),
        pytest.param(lambda there: there.create_queue("x", messages_maximum=-7), ConfigurationError, id="value"),
        pytest.param(lambda there: there.statistics({"q"}), ConfigurationError, id="no destination at all"),
        pytest.param(lambda there: there.statistics(), TypeError, id="too few"),
        pytest.param(lambda there: there.create_queue("x", nonsense=1), TypeError, id="unknown"),
        pytest.param(lambda there: there.recover_stuck("nobody"), InvalidDestinationError, id="nobody"),
    ],
)
def test_administration_raises_what_the_holders_raises(holder: Client, store: Path, call: object, error: type[Exception]) -> None:
    attached = Attached(store)
    attached.send("a")
    with pytest.raises(error) as caught:
        call(attached.transport.administration())  # type: ignore[operator]
    assert type(caught.value) is error
    assert holder.shown() == [("visible", 0)]


def test_a_paused_destination_refuses_an_attached_send(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a")
    attached.transport.administration().pause_production("q")
    with pytest.raises(DestinationPausedError):
        attached.send("b")


def test_a_dead_letter_is_counted_where_it_was_seen(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("seen", "unseen")
    receiver, arrivals = attached.take(2)
    receiver.handing_over(arrivals[:1])
    receiver.settle(arrivals, Outcome(verb=Verb.DEAD_LETTER, reason="why", properties={"n": 5}))
    attached.session.flush(None)
    dead = attached.take(2, "DLQ")[1]
    assert [one.content.properties()["n"] for one in dead] == [5, 5]


def test_a_retry_is_counted(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a")
    receiver, arrivals = attached.take(1)
    receiver.handing_over(arrivals)
    receiver.settle(arrivals, RETRY)
    attached.session.flush(None)
    assert holder.shown() == [("visible", 1)]
