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
from jmsclient import private_socket
from jmsclient.errors import (
    ConfigurationError,
    ConnectionLostError,
    IllegalStateError,
    StoreInUseError,
)
from jmsclient.transport.contract import ACCEPT, Transport
from jmsclient.transport.registry import parse_url
from jmsclient_embedded.attach import listening
from jmsclient_embedded.attach.attaching import attach
from jmsclient_embedded.transport import EmbeddedBackend

from .attached import Attached, Heard, Raw, end, fresh_name, threads_named, wait_until
from .conftest import PATIENCE, Client, Connect, Listener


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
        monkeypatch.setattr(private_socket.os, "fchmod", refuse)
        connect()
        assert stat.S_IMODE(socket_of(store).stat().st_mode) == 0o600
        assert os.umask(0) == 0
    finally:
        os.umask(before)


def test_where_no_private_socket_can_be_there_is_none(connect: Connect, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_socket.os, "fchmod", lambda *_: None)
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


# -- its end ---------------------------------------------------------------------------------------------------------------


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


# -- attach=yes ------------------------------------------------------------------------------------------------------------


def test_attach_opens_the_store_where_nobody_holds_it(url: str, store: Path) -> None:
    with connect_publicly(f"{url}&attach=yes") as connection:
        assert connection.transport.in_process
        assert socket_of(store).exists()
    assert not socket_of(store).exists()


def test_many_that_come_at_once_are_all_let_in(connect: Connect, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the system lets wait at a socket."""
    monkeypatch.setattr(listening, "_BACKLOG", 1)
    connect()
    gate = threading.Barrier(30)
    transports: list[Transport] = []

    def come() -> None:
        gate.wait(PATIENCE)
        url = f"embedded:{fresh_name()}?store={store}&attach=yes"
        transports.append(EmbeddedBackend().connect(parse_url(url), Listener(), deadline=None))

    threads = [threading.Thread(target=come) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert len(transports) == 30
    for transport in transports:
        transport.close(None)


def test_a_link_to_a_store_is_that_store(connect: Connect, store: Path, tmp_path: Path) -> None:
    """Its lock and its socket are found, whichever way leads to it."""
    connect()
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(store)
    with pytest.raises(StoreInUseError):
        connect(f"embedded:{fresh_name()}?store={link}")
    with connect_publicly(f"embedded:{fresh_name()}?store={link}&attach=yes") as connection:
        assert not connection.transport.in_process


@pytest.mark.parametrize("path", ["ring.db", "%00"])
def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "ring.db").symlink_to(tmp_path / "ring.db")
    with pytest.raises(ConfigurationError, match="expected the path of a file"):
        EmbeddedBackend().connect(parse_url(f"embedded:?store={tmp_path}/{path}"), Listener(), deadline=None)


def test_a_wrong_attach_is_refused_by_name() -> None:
    for parameters, said in (("attach=perhaps&store=x", "attach='perhaps'"), ("attach=yes", "store=FILE")):
        with pytest.raises(ConfigurationError, match=said):
            EmbeddedBackend().connect(parse_url(f"embedded:?{parameters}"), Listener(), deadline=None)


def test_another_broker_than_the_one_there_is_is_refused(holder: Client, store: Path) -> None:
    Attached(store, "?redelivery_limit=-1")
    with pytest.raises(ConfigurationError, match="other parameters"):
        Attached(store, "?redelivery_limit=3")
    with pytest.raises(ConfigurationError, match="other parameters"):
        Attached(store, "?consumption_paused=true")
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
    refusals, really_admit = 3, listening.Listening._admit

    def admit(self: listening.Listening, connected: socket.socket) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals < 0:
            really_admit(self, connected)
            return
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
