"""Destinations and their URI (RA-2)."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsclient.destination import (
    Destination,
    Persistence,
    Queue,
    ReadAheadAllowed,
    ReadAheadClosePolicy,
    Topic,
    parse_destination,
)
from jmsclient.errors import InvalidDestinationError

ALLOWED = {
    ReadAheadAllowed.YES: ["YES", "yes", "ENABLED", "Enabled", "1", 1, ReadAheadAllowed.YES],
    ReadAheadAllowed.NO: ["NO", "no", "DISABLED", "disabled", "0", 0],
    ReadAheadAllowed.AS_DEST: ["AS_DEST", "as_q_def", "AS_TOPIC_DEF", "-1", -1],
}
POLICY = {
    ReadAheadClosePolicy.DELIVER_CURRENT: ["DELIVER_CURRENT", "deliver_current", "1", 1],
    ReadAheadClosePolicy.DELIVER_ALL: ["DELIVER_ALL", "Deliver_All", "2", 2],
}
PERSISTENCE = {
    Persistence.APP: ["APP", "app", "-2", -2],
    Persistence.QDEF: ["QDEF", "-1", -1],
    Persistence.NON: ["NON", "1", 1],
    Persistence.PERS: ["pers", "2", 2],
}


def rows(words: dict[Any, list[Any]]) -> list[tuple[Any, Any]]:
    return [(given, member) for member, spellings in words.items() for given in spellings]


@pytest.mark.parametrize(("given", "member"), rows(ALLOWED), ids=repr)
@pytest.mark.parametrize("key", ["readAheadAllowed", "READAHEADALLOWED", "raald", "RAALD"])
def test_ra_2_read_ahead_allowed_by_name_admin_name_and_number(key: str, given: Any, member: Any) -> None:
    assert Queue("Q", read_ahead_allowed=given).read_ahead_allowed is member
    assert parse_destination(f"queue:///Q?{key}={given}").read_ahead_allowed is member


@pytest.mark.parametrize(("given", "member"), rows(POLICY), ids=repr)
@pytest.mark.parametrize("key", ["readAheadClosePolicy", "RACP", "racp"])
def test_ra_2_close_policy_by_name_admin_name_and_number(key: str, given: Any, member: Any) -> None:
    assert Topic("T", read_ahead_close_policy=given).read_ahead_close_policy is member
    assert parse_destination(f"topic:///T?{key}={given}").read_ahead_close_policy is member


@pytest.mark.parametrize(("given", "member"), rows(PERSISTENCE), ids=repr)
def test_ra_2_persistence_by_name_and_number(given: Any, member: Any) -> None:
    assert Queue("Q", persistence=given).persistence is member
    assert parse_destination(f"queue:///Q?persistence={given}").persistence is member


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("read_ahead_allowed", "maybe", "readAheadAllowed='maybe'.*AS_DEST.*YES.*ENABLED.*-1, 0, 1"),
        ("read_ahead_allowed", 2, "readAheadAllowed=2"),
        ("read_ahead_allowed", True, "readAheadAllowed=True"),
        ("read_ahead_allowed", None, "readAheadAllowed=None"),
        ("read_ahead_allowed", ReadAheadClosePolicy.DELIVER_CURRENT, "readAheadAllowed=.*DELIVER_CURRENT"),
        ("read_ahead_close_policy", "DELIVER_NONE", "readAheadClosePolicy='DELIVER_NONE'.*DELIVER_CURRENT, DELIVER_ALL"),
        ("read_ahead_close_policy", 0, "readAheadClosePolicy=0"),
        ("persistence", "3", "persistence='3'.*APP, QDEF, NON, PERS"),
    ],
)
def test_ra_2_any_other_value_is_an_error_that_names_the_property_and_what_it_may_be(option: str, value: Any, named: str) -> None:
    with pytest.raises(InvalidDestinationError, match=named):
        Queue("Q", **{option: value})


@pytest.mark.parametrize("text", ["queue:///Q", "queue://Q", "queue://QM/Q", "Q", "QUEUE:///Q", " Q "])
def test_ra_2_spellings_of_one_queue(text: str) -> None:
    assert parse_destination(text) == Queue("Q")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "name is missing"),
        ("queue:///", "name is missing"),
        ("queue://QM/", "name is missing"),
        ("queue:Q", "write it as queue:///NAME"),
        ("kafka:///Q", "expected queue:///NAME"),
        ("queue:///Q?colour=red", "unknown property 'colour'"),
        ("queue:///Q?", "unknown property ''"),
        ("queue:///Q?readAheadAllowed", "has no value"),
        ("queue:///Q?readAheadAllowed=", "has no value"),
        ("queue:///Q?readAheadAllowed=YES&raald=NO", "given twice"),
        ("queue:///Q%01", "control characters"),
        ("queue:///%FF", "percent-encoded UTF-8"),
        ("queue:///%20", "expected a name"),
    ],
)
def test_ra_2_malformed_destinations_say_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(InvalidDestinationError, match=what):
        parse_destination(text)


@pytest.mark.parametrize("value", [None, 7, b"Q", ["Q"]], ids=repr)
def test_what_is_no_destination_at_all(value: Any) -> None:
    with pytest.raises(InvalidDestinationError):
        parse_destination(value)
    with pytest.raises(InvalidDestinationError):
        Queue(value)


names = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1).filter(str.strip)
destinations: st.SearchStrategy[Destination] = st.builds(
    lambda kind, name, allowed, policy, persistence: kind(
        name, read_ahead_allowed=allowed, read_ahead_close_policy=policy, persistence=persistence
    ),
    st.sampled_from([Queue, Topic]),
    names,
    st.sampled_from(ReadAheadAllowed),
    st.sampled_from(ReadAheadClosePolicy),
    st.sampled_from(Persistence),
)


@given(destinations)
def test_ra_2_the_uri_gives_the_destination_back(destination: Destination) -> None:
    again = parse_destination(str(destination))
    assert again == destination
    assert hash(again) == hash(destination)
    assert parse_destination(destination.address).name == destination.name
    assert pickle.loads(pickle.dumps(destination)) == copy.deepcopy(destination) == destination


def test_a_destination_is_a_value() -> None:
    queue = Queue("Q", read_ahead_allowed="yes")
    assert parse_destination(queue) is queue
    assert queue != Topic("Q", read_ahead_allowed="yes")
    assert queue.address == "queue:///Q"
    assert str(queue) == "queue:///Q?readAheadAllowed=YES"
    with pytest.raises(AttributeError):
        queue.name = "other"  # type: ignore[misc]
