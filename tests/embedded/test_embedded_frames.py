"""Frames and values: what is said is what is heard, and whatever else comes is a ProtocolError, never another."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jmsclient import errors
from jmsclient.destination import Queue, Topic
from jmsclient.errors import CloseTimeout, ConfigurationError, JmsClientError, MessageFormatError, SendError, TransientError
from jmsclient.options import DefaultReadAhead
from jmsclient.transport.administration import DestinationStatistics, ManagementResult, MessageInfo, PendingByKind
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import ACCEPT, Outcome, ReceiverSpec, Verb
from jmsclient_embedded.attach import frames
from jmsclient_embedded.attach.frames import FrameReader, ProtocolError, encode
from jmsclient_embedded.attach.values import error_from_json, error_to_json, from_json, plain_content, to_json

from .conftest import content

HEADERS = st.dictionaries(
    st.text(max_size=5).filter(lambda name: name != "pieces"), st.none() | st.integers() | st.text(max_size=9), max_size=4
)
PIECES = st.lists(st.binary(max_size=40), max_size=4)


@given(st.lists(st.tuples(HEADERS, PIECES), max_size=5), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_frames_arrive_as_they_were_sent_however_the_stream_is_cut(said: list[Any], cuts: list[int]) -> None:
    stream = b"".join(encode(header, pieces) for header, pieces in said)
    reader, heard, at = FrameReader(), [], 0
    for cut in cuts * (len(stream) // sum(cuts) + 1):
        heard += list(reader.feed(stream[at : at + cut]))
        at += cut
    heard += list(reader.feed(stream[at:]))
    assert [({**one.header, "pieces": None}, one.pieces) for one in heard] == [
        ({**header, "pieces": None}, pieces) for header, pieces in said
    ]
    assert not reader.incomplete


@given(st.binary(max_size=200))
def test_garbage_is_a_protocol_error_and_nothing_else(data: bytes) -> None:
    try:
        heard = list(FrameReader(1000).feed(data))
    except ProtocolError:
        return
    assert all(isinstance(one.header, dict) for one in heard)


@given(st.binary(max_size=80), st.integers(0, 90))
def test_a_header_that_lies_is_a_protocol_error(header: bytes, claimed: int) -> None:
    frame = struct.pack(">II", 4 + len(header), claimed) + header
    try:
        (heard,) = FrameReader().feed(frame)
    except ProtocolError:
        return
    assert isinstance(heard.header, dict)


def test_the_start_of_a_frame_is_incomplete() -> None:
    reader = FrameReader()
    assert list(reader.feed(encode({"a": 1})[:-1])) == []
    assert reader.incomplete


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">II", 1 << 30, 2) + b"{}", id="too long"),
        pytest.param(struct.pack(">II", 6, 3) + b"{}", id="header longer than the frame"),
        pytest.param(struct.pack(">II", 6, 2) + b"[]", id="no object"),
        pytest.param(struct.pack(">II", 6, 2) + b"\xff\xff", id="no text"),
        pytest.param(struct.pack(">II", 0, 0), id="shorter than its lengths"),
        pytest.param(encode({"pieces": [1]}), id="pieces that are not there"),
        pytest.param(encode({"pieces": [-1, 1]}), id="a piece of less than nothing"),
        pytest.param(encode({"pieces": "1"}), id="pieces that are none"),
        pytest.param(encode({"pieces": [True]}, ()), id="a length that is none"),
    ],
)
def test_broken_frames(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(FrameReader().feed(data + b"x" * 64))


def test_a_nesting_without_end_is_refused() -> None:
    text = b"[" * 100_000
    with pytest.raises(ProtocolError):
        list(FrameReader().feed(struct.pack(">II", 4 + len(text), len(text)) + text))


def test_a_claimed_length_allocates_nothing() -> None:
    reader = FrameReader()
    assert list(reader.feed(struct.pack(">II", frames.FRAME_LIMIT, 2) + b"{}")) == []
    assert reader._data.__alloc__() < 1000


def test_a_frame_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_LIMIT", 100)
    with pytest.raises(MessageFormatError, match="at most 100"):
        encode({}, [b"x" * 100])


# -- values ----------------------------------------------------------------------------------------------------------------

VALUES = [
    None,
    True,
    7,
    0.5,
    math.inf,
    "größe \ud800",
    [1, [None]],
    (1, ("a",)),
    {"a": 1, 2: (3,)},
    Queue("a b", read_ahead_allowed="yes"),
    Topic("prices"),
    DefaultReadAhead.DISABLED,
    ACCEPT,
    Outcome(verb=Verb.DEAD_LETTER, delay=1.5, reason="why", properties={"n": 5, "ok": True}),
    ReceiverSpec(destination=Topic("t"), kind="shared_durable", name="s", selector="n > 1", no_local=True),
    Capabilities(transactions=True, drain="yes", hold_limit=3.0),
    DestinationStatistics(messages_current=3, pending_by_kind=PendingByKind(unborn=2), production_paused=True),
    [
        MessageInfo(
            message_id=None,
            destination="queue:///q",
            state="visible",
            owner=None,
            age=0.5,
            delivery_count=0,
            priority=4,
            persistent=True,
            size=9,
        )
    ],
    ManagementResult(done=("a", None), refused=(("b", "receive"),)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_equal(value: object) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


def test_what_has_no_form_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="type set"):
        to_json({1, 2})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["record", "choice", "tuple", "map", "destination", "error", "__class__"]) | st.text(max_size=4),
            inner | st.tuples(st.sampled_from(["Outcome", "ReceiverSpec", "Verb", "os"]), inner).map(list),
            max_size=2,
        )
    ),
    max_leaves=12,
)


@example({"choice": []})
@example({"record": ["Outcome", []]})
@example({"tuple": 1})
@example(["SendError", [1, 2, 3, 4, 5, 6]])
@given(JSON)
def test_any_json_is_a_value_or_a_protocol_error(data: Any) -> None:
    for read in (from_json, error_from_json):
        with contextlib.suppress(ProtocolError):
            read(data)


@pytest.mark.parametrize(
    "error",
    [
        SendError("no", confirmed=["a"], in_doubt=["b"], unsent=["c"]),
        CloseTimeout("late", left=3, listener_running=True),
        TransientError("later", retry_after=2.0),
        TypeError("no such argument"),
        *[one("why") for one in vars(errors).values() if isinstance(one, type) and issubclass(one, JmsClientError)],
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_come_back_as_they_were_raised(error: Exception) -> None:
    again = error_from_json(json.loads(json.dumps(error_to_json(error))))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {name: getattr(again, name) for name in vars(error)} == vars(error)


def test_a_foreign_error_keeps_its_name_in_the_text() -> None:
    again = error_from_json(error_to_json(ZeroDivisionError("division by zero")))
    assert type(again) is JmsClientError
    assert str(again) == "ZeroDivisionError: division by zero"


def test_a_message_is_the_same_after_the_journey() -> None:
    sent = content("tea", properties={"n": 5}, priority=7, expiration=5.0, delivery_time=3.0, correlation_id="c", persistent=False)
    again = plain_content(sent)
    names = ("message_id", "priority", "expiration", "delivery_time", "correlation_id", "persistent", "reply_to", "type", "size")
    assert {name: getattr(again, name) for name in names} == {name: getattr(sent, name) for name in names}
    assert (again.body(), dict(again.properties()), again.kind) == ("tea", {"n": 5}, sent.kind)
