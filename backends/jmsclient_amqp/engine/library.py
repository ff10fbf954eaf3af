"""Proton's C functions as its Python package brings them: which version, and whether all are there.

Owns the range of versions this backend was tested with, and small conversions. The functions are proton's public C interface;
the name of the module that has them is no promise of anybody, so everything is checked here, once, at import. Raises
ImportError, which the core turns into what to install. Source: the headers of proton-c 0.40.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from cproton_ffi import ffi, lib

from jmsclient_amqp.primitives import read

TESTED = ((0, 40),)
_NEEDED = [
    "pn_collector",
    "pn_collector_free",
    "pn_collector_peek",
    "pn_collector_pop",
    "pn_condition_get_description",
    "pn_condition_get_name",
    "pn_condition_is_set",
    "pn_condition_set_description",
    "pn_condition_set_name",
    "pn_connection",
    "pn_connection_close",
    "pn_connection_collect",
    "pn_connection_desired_capabilities",
    "pn_connection_open",
    "pn_connection_properties",
    "pn_connection_release",
    "pn_connection_remote_condition",
    "pn_connection_remote_offered_capabilities",
    "pn_connection_remote_properties",
    "pn_connection_set_container",
    "pn_connection_set_hostname",
    "pn_connection_state",
    "pn_data_clear",
    "pn_data_decode",
    "pn_data_encode",
    "pn_data_encoded_size",
    "pn_decref",
    "pn_delivery",
    "pn_delivery_aborted",
    "pn_delivery_local",
    "pn_delivery_partial",
    "pn_delivery_remote",
    "pn_delivery_remote_state",
    "pn_delivery_settle",
    "pn_delivery_settled",
    "pn_delivery_update",
    "pn_disposition_condition",
    "pn_disposition_data",
    "pn_disposition_set_failed",
    "pn_disposition_set_undeliverable",
    "pn_event_link",
    "pn_event_type",
    "pn_link_advance",
    "pn_link_close",
    "pn_link_condition",
    "pn_link_credit",
    "pn_link_current",
    "pn_link_detach",
    "pn_link_drain",
    "pn_link_drained",
    "pn_link_flow",
    "pn_link_free",
    "pn_link_open",
    "pn_link_queued",
    "pn_link_recv",
    "pn_link_remote_condition",
    "pn_link_remote_source",
    "pn_link_remote_target",
    "pn_link_send",
    "pn_link_set_rcv_settle_mode",
    "pn_link_set_snd_settle_mode",
    "pn_link_source",
    "pn_link_state",
    "pn_link_target",
    "pn_receiver",
    "pn_sender",
    "pn_session",
    "pn_session_close",
    "pn_session_free",
    "pn_session_open",
    "pn_session_remote_condition",
    "pn_session_set_incoming_capacity",
    "pn_session_state",
    "pn_terminus_capabilities",
    "pn_terminus_filter",
    "pn_terminus_get_address",
    "pn_terminus_get_type",
    "pn_terminus_outcomes",
    "pn_terminus_properties",
    "pn_terminus_set_address",
    "pn_terminus_set_distribution_mode",
    "pn_terminus_set_durability",
    "pn_terminus_set_dynamic",
    "pn_terminus_set_expiry_policy",
    "pn_terminus_set_type",
    "pn_transport",
    "pn_transport_bind",
    "pn_transport_close_tail",
    "pn_transport_condition",
    "pn_transport_peek",
    "pn_transport_pending",
    "pn_transport_pop",
    "pn_transport_push",
    "pn_transport_set_idle_timeout",
    "pn_transport_set_max_frame",
    "pn_transport_tick",
    "pn_transport_unbind",
]


NULL = ffi.NULL


def check_library(library: Any) -> None:
    """Raises ImportError for a version that was not tested, or a function that is missing."""
    version = (library.PN_VERSION_MAJOR, library.PN_VERSION_MINOR)
    if version not in TESTED:
        tested = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
        raise ImportError(
            f"proton {version[0]}.{version[1]} was not tested with this version of jmsclient; install proton {tested}"
        )
    missing = [name for name in _NEEDED if not hasattr(library, name)]
    if missing:
        raise ImportError(f"the installed proton lacks {', '.join(missing)}")


check_library(lib)

ACCEPTED: Final[int] = lib.PN_ACCEPTED
REJECTED: Final[int] = lib.PN_REJECTED
RELEASED: Final[int] = lib.PN_RELEASED
MODIFIED: Final[int] = lib.PN_MODIFIED
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34
REMOTE_OPEN: Final[int] = lib.PN_REMOTE_ACTIVE | lib.PN_REMOTE_CLOSED
REMOTE_CLOSED: Final[int] = lib.PN_REMOTE_CLOSED
UNSPECIFIED: Final[int] = lib.PN_UNSPECIFIED


class Condition(NamedTuple):
    """Why a peer ended something: `amqp:not-found`, and what it said."""

    name: str
    description: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.description}" if self.description else self.name


class EngineError(Exception):
    """The protocol broke: nothing more can be done with this connection."""

    def __init__(self, condition: Condition) -> None:
        super().__init__(str(condition))
        self.condition = condition


def text_of(pointer: Any) -> str:
    """A C string of the peer's."""
    return "" if pointer == NULL else ffi.string(pointer).decode("utf-8", "replace")


def condition_of(pointer: Any) -> Condition | None:
    """A condition, where one is set."""
    if pointer == NULL or not lib.pn_condition_is_set(pointer):
        return None
    return Condition(text_of(lib.pn_condition_get_name(pointer)), text_of(lib.pn_condition_get_description(pointer)))


def fill(data: Any, encoded: bytes | None) -> None:
    """Put one encoded AMQP value into a `pn_data_t`; None leaves it empty."""
    if encoded is not None:
        lib.pn_data_clear(data)
        done = lib.pn_data_decode(data, ffi.from_buffer(encoded), len(encoded))
        assert done == len(encoded), (done, encoded)


def value_of(data: Any) -> Any:
    """The value that a `pn_data_t` of the peer's holds; None where it is empty. Raises MessageFormatError."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return None
    buffer = bytearray(size)
    written = lib.pn_data_encode(data, ffi.from_buffer(buffer), size)
    return read(bytes(buffer[:written]))[0] if written > 0 else None


def symbols_of(data: Any) -> frozenset[str]:
    """One symbol or an array of them."""
    found = value_of(data)
    return frozenset(str(one) for one in (found if isinstance(found, list) else [found]) if one is not None)
