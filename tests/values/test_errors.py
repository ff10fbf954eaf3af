"""The tree of errors: one root, each picklable, each in words (errors.py)."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from jmsclient import errors
from jmsclient.errors import CloseTimeout, ConfigurationError, JmsClientError, SendError, TransientError

EVERY = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, BaseException)]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_is_in_the_tree_and_survives_pickle_and_copy(kind: type[JmsClientError]) -> None:
    assert issubclass(kind, JmsClientError)
    error = kind("the queue is gone")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert again.args == error.args
    assert "the queue is gone" in str(error)


def test_send_error_keeps_the_three_kinds_of_ids() -> None:
    error = pickle.loads(pickle.dumps(SendError("broken", confirmed=["a"], in_doubt=["b", "c"], unsent=[])))
    assert (error.confirmed, error.in_doubt, error.unsent) == (("a",), ("b", "c"), ())
    assert str(error) == "broken (1 confirmed, 2 in doubt, 0 unsent)"


def test_ra_19_close_timeout_says_what_is_left() -> None:
    error = pickle.loads(pickle.dumps(CloseTimeout("not done", left=3, listener_running=True)))
    assert (error.left, error.listener_running, str(error)) == (3, True, "not done")


def test_a_transient_error_may_say_when() -> None:
    error = pickle.loads(pickle.dumps(TransientError("busy", retry_after=2.5)))
    assert (error.retry_after, str(error)) == (2.5, "busy")
    assert str(TransientError()) == ""


def test_if_1_configuration_errors_are_value_errors_too() -> None:
    assert issubclass(ConfigurationError, ValueError)
