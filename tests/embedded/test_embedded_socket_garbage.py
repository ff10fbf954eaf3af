"""Whatever comes in at the socket ends that one link, with one line in the log, and nothing else."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jmsclient.envelope import encode as encode_message
from jmsclient.transport.contract import ACCEPT
from jmsclient_embedded.attach import calls, listening
from jmsclient_embedded.attach.asked import QUESTIONS
from jmsclient_embedded.attach.frames import FRAME_LIMIT, HELLO_LIMIT, encode
from jmsclient_embedded.invariants import check

from .attached import Attached, Heard, Raw, fresh_name, holding, threads_named, wait_until
from .conftest import Client, Connect, content, in_thread

FUZZ = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def holder(store: Path) -> Iterator[Client]:
    with holding(store) as client:
        yield client


def assert_sound(holder: Client, store: Path) -> None:
    """The books balance, and whoever comes next is served."""
    check(holder.broker)
    attached = Attached(store)
    (sent,) = attached.send("a", queue="sound")
    receiver, arrivals = attached.take(1, "sound")
    assert arrivals[0].content.message_id == sent
    receiver.settle(arrivals, ACCEPT)
    attached.transport.close(None)


@FUZZ
@given(data=st.binary(min_size=1, max_size=300), greet=st.booleans())
def test_garbage(holder: Client, store: Path, data: bytes, greet: bool) -> None:
    with Raw(store, greet=greet) as raw, contextlib.suppress(OSError):
        raw.socket.sendall(data)
        raw.socket.shutdown(1)
        assert raw.closed_by_peer()
    check(holder.broker)


@pytest.mark.parametrize("greet", [True, False])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" * 4, id="another protocol"),
        pytest.param(struct.pack(">II", FRAME_LIMIT + 1, 2) + b"{}", id="an oversized frame"),
        pytest.param(struct.pack(">II", 6, 2) + b"[]", id="no object"),
        pytest.param(encode({"tell": "no such thing", "with": {}}), id="unknown"),
        pytest.param(encode({"tell": "settle", "with": {"nonsense": 1}}), id="wrong words"),
        pytest.param(encode({}), id="nothing"),
    ],
)
def test_what_is_not_understood_is_one_line_and_the_end_of_that_link(holder: Client, store: Path, data: bytes, greet: bool) -> None:
    other = Attached(store)
    with Heard() as heard, Raw(store, greet=greet) as raw:
        raw.socket.sendall(data)
        assert raw.closed_by_peer()
        wait_until(lambda: heard.named("client_not_understood"))
    assert len(heard.events) == 1
    assert len(heard.events[0].text) < 500
    other.send("the others go on")
    assert_sound(holder, store)


def test_a_stranger_may_not_say_much_before_hello(holder: Client, store: Path) -> None:
    with Raw(store, greet=False) as raw:
        raw.socket.sendall(struct.pack(">II", HELLO_LIMIT + 1, 2))
        assert raw.closed_by_peer()


def test_a_truncated_frame_gives_back_what_its_client_held(holder: Client, store: Path) -> None:
    holder.send("a")
    with Raw(store) as raw:
        ask(raw, "open_session", session=1, transacted=False)
        opened = ask(raw, "open_receiver", session=1, receiver=2, spec=spec_of("q"))
        assert "value" in opened
        raw.say({"tell": "request", "with": {"receiver": 2, "count": 1}})
        assert raw.hear().header["push"] == "delivered"
        assert holder.shown() == [("receive", 0)]
        raw.socket.sendall(encode({"tell": "request", "with": {"receiver": 2, "count": 1}})[:-3])
    wait_until(lambda: holder.shown() == [("visible", 0)])
    assert_sound(holder, store)


def ask(raw: Raw, what: str, **arguments: Any) -> dict[str, Any]:
    raw.say({"ask": what, "id": 1, "left": 5.0, "with": arguments})
    return raw.hear().header


def spec_of(queue: str) -> dict[str, Any]:
    return {"record": ["ReceiverSpec", {"destination": {"destination": f"queue:///{queue}"}}]}


NUMBERS = st.integers(-1, 3) | st.none() | st.floats() | st.text(max_size=2)
WORDS = st.sampled_from(
    ["session", "receiver", "sender", "count", "tags", "outcome", "seen", "spec", "destination", "method", "name"]
)
VALUES = st.one_of(
    NUMBERS,
    st.lists(NUMBERS, max_size=3),
    st.just(spec_of("q")),
    st.just({"destination": "queue:///q"}),
    st.just({"record": ["Outcome", {"verb": {"choice": ["Verb", "accept"]}}]}),
    st.just({"map": []}),
)
ARGUMENTS = st.dictionaries(
    WORDS | st.sampled_from(["transacted", "room", "confirm", "kind", "positional", "named"]), VALUES, max_size=5
)
FRAMES = st.one_of(
    st.builds(
        lambda what, left, arguments: {"ask": what, "id": 7, "left": left, "with": arguments},
        st.sampled_from(sorted(QUESTIONS)) | st.text(max_size=4),
        st.just(0.05) | NUMBERS,
        ARGUMENTS,
    ),
    st.builds(
        lambda what, arguments: {"tell": what, "with": arguments},
        st.sampled_from(["request", "settle", "seen"]) | st.text(max_size=4),
        ARGUMENTS,
    ),
)
OPENED = [
    {"ask": "open_session", "id": 1, "left": 5, "with": {"session": 1, "transacted": False}},
    {"ask": "open_receiver", "id": 2, "left": 5, "with": {"session": 1, "receiver": 2, "spec": spec_of("q")}},
    {"ask": "open_sender", "id": 3, "left": 5, "with": {"session": 1, "sender": 3, "destination": {"destination": "queue:///q"}}},
    {"tell": "request", "with": {"receiver": 2, "count": 2}},
]
PIECE = encode_message(content("piece", message_id="ID:piece"))


@FUZZ
@given(said=st.lists(st.tuples(FRAMES, st.sampled_from([(), (PIECE,), (PIECE[:9],)])), max_size=6), opened=st.booleans())
def test_well_formed_nonsense(holder: Client, store: Path, said: list[Any], opened: bool) -> None:
    """Every question is answered or ends the link; nothing that the client held stays anywhere."""
    with Raw(store) as raw, contextlib.suppress(OSError):
        for header in OPENED if opened else ():
            raw.say(header)
        for header, pieces in said:
            raw.say(header, *pieces)
        raw.socket.shutdown(1)
        assert raw.closed_by_peer()
    wait_until(lambda: not holder.broker.granting.holders)
    check(holder.broker)


def test_after_all_that_the_next_one_is_served(holder: Client, store: Path) -> None:
    for data in (b"\x00" * 100, b"\xff" * 100, json.dumps({"hello": {}}).encode()):
        with Raw(store, greet=False) as raw:
            raw.socket.sendall(data)
    assert_sound(holder, store)


def test_every_question_is_answered_even_if_it_is_wrong(holder: Client, store: Path) -> None:
    with Raw(store) as raw:
        for what in sorted(QUESTIONS):
            answer = ask(raw, what)
            assert answer["answer"] == 1
            assert answer["error"][0] in ("JmsClientError", "TypeError")
        assert ask(raw, "_session", number=1)["error"][0] == "UnsupportedFeatureError"
        assert ask(raw, "do", frame=1)["error"][0] == "UnsupportedFeatureError"
        assert (
            ask(raw, "administration", method="__init__", positional=[], named={"map": []})["error"][0] == "UnsupportedFeatureError"
        )
    assert_sound(holder, store)


def test_who_asks_without_end_is_cut_off(holder: Client, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_WAITING", 20)
    holder.admin.create_queue("q", messages_maximum=1)
    holder.send("full")
    with Raw(store) as raw, Heard() as heard:
        ask(raw, "open_session", session=1, transacted=False)
        ask(raw, "open_sender", session=1, sender=3, destination={"destination": "queue:///q"})
        with contextlib.suppress(OSError):
            for number in range(30):
                words = {"sender": 3, "room": None, "confirm": None}
                raw.say({"ask": "send", "id": number, "left": None, "with": words}, PIECE)
        assert raw.closed_by_peer()
        wait_until(lambda: heard.named("client_not_understood"))
    wait_until(lambda: holder.admin.statistics("q").blocked_senders == 0)
    wait_until(lambda: not threads_named("-call-"))


def test_a_client_that_does_not_read_holds_up_nobody(holder: Client, store: Path) -> None:
    other = Attached(store)
    other.send(*["x" * 100_000 for _ in range(100)])
    with Raw(store) as raw:
        ask(raw, "open_session", session=1, transacted=False)
        ask(raw, "open_receiver", session=1, receiver=2, spec=spec_of("q"))
        raw.say({"tell": "request", "with": {"receiver": 2, "count": 100}})
        wait_until(lambda: holder.shown() == [("receive", 0)] * 100)
        other.send("a", queue="other")
        assert other.take(1, "other")[1][0].content.body() == "a"
    wait_until(lambda: holder.shown() == [("visible", 0)] * 100)


def test_the_end_of_the_holder_does_not_wait_long_for_a_client_that_reads_nothing(
    connect: Connect, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "DISMISS_TIMEOUT", 0.05)
    holder = connect(f"embedded:{fresh_name()}?store={store}")
    holder.send(*["x" * 100_000 for _ in range(50)])
    with Raw(store) as raw:
        ask(raw, "open_session", session=1, transacted=False)
        ask(raw, "open_receiver", session=1, receiver=2, spec=spec_of("q"))
        raw.say({"tell": "request", "with": {"receiver": 2, "count": 50}})
        wait_until(lambda: holder.shown() == [("receive", 0)] * 50)
        in_thread(lambda: holder.transport.close(None))
        assert holder.broker.ended
    again = connect(f"embedded:{fresh_name()}?store={store}")
    assert again.shown() == [("visible", 0)] * 50
