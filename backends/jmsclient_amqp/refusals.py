"""Why a peer refused or ended something, as an error of this library.

Pure: the condition's name decides which error, its text goes into it, and the fix where there is one. Source: AMQP 1.0 sections
2.8.15 to 2.8.18.
"""

from __future__ import annotations

from jmsclient.errors import (
    ConfigurationError,
    ConnectionLostError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsClientError,
    ResourceAllocationError,
    UnsupportedFeatureError,
)
from jmsclient_amqp.engine.library import Condition

_FORBIDDEN = ("amqp:unauthorized-access", "amqp:not-allowed")
_NO_RIGHT = "this user has not the right to do that there"


def of_another_kind(condition: Condition | None) -> bool:
    """The destination exists, and is not what naming it so would make."""
    return condition is not None and condition.name == "amqp:precondition-failed"


def link_refused(what: str, condition: Condition | None, *, selector: bool = False) -> JmsClientError:
    """A link was not attached, or was taken away: `what` names it, such as "a consumer of queue:///orders"."""
    if condition is None:
        return InvalidDestinationError(f"the broker refused {what} and gave no reason")
    text = f"the broker refused {what}: {condition}"
    name = condition.name
    if name == "amqp:not-found":
        return InvalidDestinationError(f"{text}; make the destination at the broker, or allow it to make one by itself")
    if name in _FORBIDDEN:
        return ConfigurationError(f"{text}; {_NO_RIGHT}")
    if name == "amqp:invalid-field" and selector:
        return InvalidSelectorError(text)
    if name == "amqp:not-implemented":
        return UnsupportedFeatureError(text)
    if name == "amqp:resource-limit-exceeded":
        return ResourceAllocationError(text)
    return InvalidDestinationError(text)


def link_lost(what: str, condition: Condition | None) -> JmsClientError:
    """A link that worked was closed by the peer."""
    return ConnectionLostError(f"the broker closed {what} {_reason(condition)}")


def session_ended(condition: Condition | None) -> JmsClientError:
    """A session was ended by the peer."""
    return ConnectionLostError(f"the broker ended the session {_reason(condition)}")


def _reason(condition: Condition | None) -> str:
    if condition is None:
        return "without a reason"
    return f"({condition}); {_NO_RIGHT}" if condition.name in _FORBIDDEN else f"({condition})"


def not_opened(peer: str, condition: Condition | None, client_id: str | None) -> JmsClientError:
    """The connection was closed instead of opened. `client_id` where the user gave one."""
    if condition is not None and condition.name == "amqp:invalid-field" and client_id is not None:
        return ConnectionLostError(  # it may be free again soon: it is worth another try
            f"{peer} does not take the client id {client_id!r} ({condition}): another connection has it; close that, "
            "or take another id"
        )
    if condition is not None and condition.name == "amqp:not-found":
        return ConfigurationError(f"{peer} has no such virtual host ({condition}): name one that it has with ?vhost=NAME")
    return connection_ended(peer, condition)


def connection_ended(peer: str, condition: Condition | None) -> JmsClientError:
    """The connection was closed, or its protocol broke."""
    if condition is None:
        return ConnectionLostError(f"{peer} closed the connection")
    if condition.name == "amqp:connection:framing-error" and "SASL" in condition.description:
        return ConfigurationError(f"{peer} lets nobody in like that, and asks to log in again: give a user name and a password")
    if condition.name == "amqp:resource-limit-exceeded" and "idle" in condition.description:
        return ConnectionLostError(f"{peer} said nothing for longer than the idle time-out ({condition})")
    if condition.name in _FORBIDDEN:
        return ConfigurationError(f"{peer} does not let this client in ({condition}): check user name, password and rights")
    return ConnectionLostError(f"the connection to {peer} ended: {condition}")


def not_accepted(condition: Condition | None) -> str:
    """What a rejected send says."""
    return "rejected it without a reason" if condition is None else f"rejected it ({condition})"
