"""The short way to an envelope makes the same bytes as the long one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jmsclient.envelope import _encode_any, _is_common, decode, encode
from jmsclient.message import MessageKind, PlainContent

TEXTS = st.text(st.characters(), max_size=20)  # surrogates too


@given(
    body=st.one_of(TEXTS, st.binary(max_size=20)),
    message_id=TEXTS,
    destination=TEXTS,
    persistent=st.booleans(),
    priority=st.integers(0, 9),
    timestamp=st.floats(),
)
@example(body="x", message_id='"\\\u2028\x00é', destination="queue:///Q", persistent=True, priority=4, timestamp=1.7e9)
@example(body="x", message_id="i", destination="d", persistent=True, priority=4, timestamp=float("inf"))
def test_both_ways_make_the_same_bytes(
    body: str | bytes, message_id: str, destination: str, persistent: bool, priority: int, timestamp: float
) -> None:
    content = PlainContent(
        kind=MessageKind.TEXT if isinstance(body, str) else MessageKind.BYTES,
        body=body,
        message_id=message_id,
        destination=destination,
        persistent=persistent,
        priority=priority,
        timestamp=timestamp,
    )
    assert encode(content) == _encode_any(content)
    assert decode(encode(content)).body() == body


@pytest.mark.parametrize(
    "special",
    [
        {"body": None},
        {"properties": {"n": 1}},
        {"correlation_id": "c"},
        {"reply_to": "queue:///R"},
        {"type": "t"},
        {"expiration": 1.0},
        {"delivery_time": 1.0},
        {"message_id": None},
        {"destination": None},
        {"timestamp": None},
        {"timestamp": 5},
        {"kind": MessageKind.MAP, "body": {"a": 1}},
    ],
    ids=lambda special: next(iter(special)),
)
def test_what_is_special_goes_the_long_way(special: dict[str, object]) -> None:
    usual: dict[str, object] = {"kind": MessageKind.TEXT, "body": "x", "message_id": "i", "destination": "d", "timestamp": 1.5}
    assert _is_common(PlainContent(**usual))  # type: ignore[arg-type]
    content = PlainContent(**{**usual, **special})  # type: ignore[arg-type]
    assert not _is_common(content)
    assert encode(content) == _encode_any(content)
