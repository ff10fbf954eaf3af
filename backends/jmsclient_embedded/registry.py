"""Owns the brokers of this process by name: made on first use, shared, ended when their store is not needed any more.

Must not know what a broker does, nor what those say who attach to it (attach/). Source: api.md, "Connections": `embedded:` is one
broker a process, `embedded:NAME` one a name, living until exit; one with a store ends with its last connection, attached processes
not counted. A broker belongs to one clock, so that a test with a clock of its own never meets another's. Lock order: the
registry's lock is taken before none other.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.errors import ConfigurationError
from jmsclient_embedded.broker import Broker
from jmsclient_embedded.parameters import BrokerParameters, parse_parameters
from jmsclient_embedded.store import Store

if TYPE_CHECKING:
    from jmsclient_embedded.attach.listening import Listening

_Key = tuple[str, Clock]
EXIT_TIMEOUT = 5.0
"""Seconds that the end of the process waits for a store to be closed."""

_lock = threading.Lock()  # guards the five below
_brokers: dict[_Key, Broker] = {}
_parameters: dict[Broker, BrokerParameters] = {}
_users: dict[Broker, int] = {}
_ending: dict[_Key, Broker] = {}
_listening: dict[Broker, Listening] = {}


def open_broker(name: str, parameters: Mapping[str, str] | None = None, clock: Clock = SYSTEM_CLOCK) -> Broker:
    """The broker of a name, made if there is none; each call needs its `release_broker` where there is a store.

    `parameters` as in the URL; those of a broker that is there must be the same, or none. Raises ConfigurationError, StoreError.
    """
    wanted = parse_parameters(parameters or {})
    key = (name or (str(wanted.store) if wanted.store is not None else ""), clock)
    while True:
        with _lock:
            ending = _ending.get(key)
            if ending is None:
                broker, listening = _get(key, name, wanted, given=bool(parameters))
                break
        _end(ending, None)
        with _lock:
            _ending.pop(key, None)
    if listening is not None:
        listening.start()
    return broker


def _get(key: _Key, name: str, wanted: BrokerParameters, *, given: bool) -> tuple[Broker, Listening | None]:
    broker = _brokers.get(key)
    listening = None
    if broker is None:
        store = None if wanted.store is None else Store(wanted.store)
        try:
            broker = Broker(name, wanted.defaults, key[1], store, wanted.startup, wanted.scan_interval)
        except BaseException:
            if store is not None:
                store.close()
            raise
        _brokers[key] = broker
        _parameters[broker] = wanted
        _users[broker] = 0
        if store is not None:
            from jmsclient_embedded.attach.holding import listening_for  # for those with a store; and it needs this module

            listening = listening_for(broker, wanted)
            if listening is not None:
                _listening[broker] = listening
    elif given and _parameters[broker] != wanted:
        raise ConfigurationError(f"embedded:{name} is open in this process with other parameters; use the same, or none")
    _users[broker] += 1
    return broker, listening


def release_broker(broker: Broker, deadline: float | None = None) -> None:
    """One user less; without any, a private broker ends, and one with a store, which lets go of its file."""
    with _lock:
        if broker not in _users:
            return
        _users[broker] -= 1
        lives_on = broker.store is None and not _parameters[broker].private
        if _users[broker] > 0 or lives_on:
            return
        key = _forget(broker)
        _ending[key] = broker
    _end(broker, deadline)
    with _lock:
        if broker.ended and _ending.get(key) is broker:
            del _ending[key]


def close_broker(broker: Broker) -> None:
    """End a broker whoever uses it, for tests and tools: what is in memory only is gone."""
    with _lock:
        if broker in _users:
            _forget(broker)
    _end(broker, None)


def _forget(broker: Broker) -> _Key:
    key = next(key for key, one in _brokers.items() if one is broker)
    del _brokers[key], _users[broker], _parameters[broker]
    return key


def _end(broker: Broker, deadline: float | None) -> None:
    """Who is attached goes first, so that the store hears of all that they gave back. Not under the lock."""
    listening = _listening.get(broker)
    if listening is not None:
        listening.close(broker.clock.left(deadline))
        _listening.pop(broker, None)
    broker.close(deadline)


def _close_stores() -> None:
    with _lock:
        brokers = [*_brokers.values(), *_ending.values()]
    for broker in brokers:
        if broker.store is not None:
            _end(broker, broker.clock.deadline(EXIT_TIMEOUT))


def _forget_after_fork() -> None:
    """In the child: the brokers, their threads and files are the parent's."""
    global _lock
    _lock = threading.Lock()
    for broker in [*_brokers.values(), *_ending.values()]:
        broker.disown()
    for listening in _listening.values():
        listening.disown()
    for registry in (_brokers, _parameters, _users, _ending, _listening):
        registry.clear()


atexit.register(_close_stores)
os.register_at_fork(after_in_child=_forget_after_fork)
