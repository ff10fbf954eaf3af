"""URLs of one place and of several: `failover:(url,url)?parameters`. Api.md "Connections"; O09."""

from __future__ import annotations

import traceback

import pytest

from jmsclient.errors import ConfigurationError
from jmsclient.transport.failover import Tries, split_failover
from jmsclient.transport.registry import parse_places

SECRET = "p%40s%3As%2Fw%23r%25d%2B%20x%2541"


def test_o09_two_places_with_passwords() -> None:
    url = f"failover:(amqp://us%3Aer:{SECRET}@[::1]:5672,amqps://us%3Aer:{SECRET}@two/topic://t)?max_reconnect_attempts=3"
    places = parse_places(url, client_id="me")
    one, two = places.endpoints
    assert (one.username, one.password) == (two.username, two.password) == ("us:er", "p@s:s/w#r%d+ x%41")
    assert one.address == "//[::1]:5672"
    assert two.address == "//two/topic://t"
    assert places.client_id == two.client_id == "me"
    assert str(places) == "failover:(amqp://[::1]:5672,amqps://two/topic://t)"
    for text in (str(places), repr(places)):
        assert SECRET not in text
        assert "p@s:s" not in text
    assert places.tries == Tries(attempts=3)


@pytest.mark.parametrize(
    ("url", "tries"),
    [
        ("amqp://h", Tries()),
        ("amqp://h?reconnect=no", None),
        ("amqp://h?max_reconnect_attempts=7&idle_timeout=9", Tries(attempts=7)),
        ("amqp://h?reconnect=no&max_reconnect_attempts=7", None),
        ("embedded:", None),
        ("embedded:shop?store=F&attach=yes", None),
        ("embedded:shop?store=F&attach=yes&reconnect=yes", Tries()),
        ("FAILOVER:(embedded:shop)", Tries()),
        ("failover:(amqp://h)?reconnect=no", None),
        ("failover://(amqp://h, amqp://i)?initial_reconnect_delay=9", Tries(first=9.0, longest=9.0)),
    ],
)
def test_how_hard_it_is_tried(url: str, tries: Tries | None) -> None:
    places = parse_places(url)
    assert places.tries == tries
    for endpoint in places.endpoints:
        assert not {"reconnect", "max_reconnect_attempts", "initial_reconnect_delay"} & set(endpoint.parameters)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("failover:amqp://u:hush@a", "failover:\\("),
        ("failover:(amqp://u:hush@a", "failover:\\("),
        ("failover:(amqp://u:hush@a)x", "failover:\\("),
        ("failover:()", "between two commas"),
        ("failover:(amqp://u:hush@a,)", "between two commas"),
        ("failover:(failover:(amqp://u:hush@a))", "inside another"),
        ("failover:(amqp://u:hush@a)?idle_timeout=3", "idle_timeout"),
        ("failover:(amqp://u:hush@a?reconnect=no)", "after the last bracket"),
        ("failover:(amqp://u:hu@sh@a)", "percent-encode"),
        ("amqp://u:hush@a?reconnect=maybe", "yes or no"),
        ("amqp://u:hush@a?max_reconnect_attempts=0", "whole number"),
        ("amqp://u:hush@a?max_reconnect_attempts=1.5", "whole number"),
        ("amqp://u:hush@a?max_reconnect_delay=soon", "seconds"),
        ("amqp://u:hush@a?initial_reconnect_delay=-1", "seconds"),
        ("amqp://u:hush@a?initial_reconnect_delay=nan", "seconds"),
    ],
)
def test_o09_what_is_no_list_is_refused_without_a_word_of_a_password(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        parse_places(url)
    assert "hush" not in "".join(traceback.format_exception(raised.value))


def test_the_beginning_of_a_list_is_not_looked_at_twice() -> None:
    assert split_failover("failover:(a:,b:)?x=1") == (["a:", "b:"], "x=1")


def test_delays_double_up_to_the_longest_and_are_spread() -> None:
    tries = Tries(attempts=6, first=1.0, longest=10.0)
    assert list(tries.delays(lambda: 1.0)) == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert list(tries.delays(lambda: 0.0)) == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_as_it_stands_an_hour_is_tried() -> None:
    """TR-54: the outage that a history is kept for."""
    assert 1700 < sum(Tries().delays(lambda: 0.0)) < sum(Tries().delays(lambda: 1.0)) < 3700
