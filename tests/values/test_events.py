"""Events: a log record and a call to each listener, and no listener can hurt the one who tells."""

from __future__ import annotations

import logging
import threading

import pytest

from jmsclient.events import Event, emit, subscribe


def test_an_event_reaches_log_and_listener_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []
    end = subscribe(heard.append)
    with caplog.at_level(logging.INFO, "jmsclient"):
        emit("trigger", "lease_lost", "another owner has it", level=logging.WARNING, trigger="t", fencing=7)
    end()
    emit("trigger", "later", "nobody hears this")
    (event,) = heard
    assert (event.name, event.area, event.text, event.level) == (
        "lease_lost",
        "trigger",
        "another owner has it",
        logging.WARNING,
    )
    assert event.fields == {"trigger": "t", "fencing": 7}
    record = caplog.records[0]
    assert (record.name, record.getMessage(), record.levelno) == ("jmsclient.trigger", "another owner has it", logging.WARNING)
    assert (record.event, record.jms_trigger, record.jms_fencing) == ("lease_lost", "t", 7)  # type: ignore[attr-defined]


def test_a_percent_sign_in_the_text_is_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "jmsclient"):
        emit("buffer", "full", "100 % of %s")
    assert caplog.records[0].getMessage() == "100 % of %s"


def test_listeners_hear_what_the_log_level_hides() -> None:
    heard: list[Event] = []
    end = subscribe(heard.append)
    emit("buffer", "purged", "gone", level=logging.DEBUG)
    end()
    assert [event.name for event in heard] == ["purged"]


def test_a_listener_that_fails_is_logged_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("broken listener")

    heard: list[Event] = []
    ends = [subscribe(fail), subscribe(heard.append)]
    emit("buffer", "purged", "gone")
    for end in ends:
        end()
    assert [event.name for event in heard] == ["purged"]
    assert "an event listener failed on purged" in caplog.text


def test_subscribing_twice_is_hearing_twice_and_ending_twice_ends_once() -> None:
    heard: list[Event] = []
    first, second = subscribe(heard.append), subscribe(heard.append)
    first()
    first()
    emit("a", "one", "told once")
    second()
    emit("a", "two", "told to nobody")
    assert [event.name for event in heard] == ["one"]


def test_threads_that_subscribe_together_lose_nobody() -> None:
    heard: list[Event] = []
    ends: list[object] = []
    threads = [threading.Thread(target=lambda: ends.append(subscribe(heard.append))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emit("a", "one", "to all")
    for end in ends:
        end()  # type: ignore[operator]
    assert len(heard) == 20
