"""How a history is written down on a Redis server: its keys, its fields, a command's arguments and what an answer says. Pure.

Must know no client and no clock. All keys of one trigger carry one hash tag, so that a group and the list of what is parked stay
in one slot of a cluster (TR-33). The script beside this file is the other half. Source: rules TR-33, TR-34, TR-38 to TR-44, TR-53.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from jmsclient.history.contract import ParkedMessage
from jmsclient.history.entries import (
    KNOWN,
    Alike,
    Claim,
    Command,
    Complete,
    Decide,
    Entry,
    Join,
    Park,
    Release,
    Renew,
    Reply,
    State,
)

PREFIX = "jmsclient"
LONGEST = 1e9
"""Seconds: longer leases and lives are cut to it, about 31 years, so that times stay whole numbers in a script."""
SHOWN = ("s", "t", "f", "l", "a", "c", "u", "o", "r", "w", "h", "n", "v", "k", "q", "z")
COPY = ("p", "r", "d", "n", "w", "a", "e", "k", "q", "z", "s", "l")


MARK = f"{PREFIX}:mark"


class Keys:
    """The keys of one namespace. `slotted`: for a cluster, where the mark and the set of triggers are kept once a trigger, in the
    slot of its entries, because one script call reaches one slot only."""

    def __init__(self, namespace: str, *, slotted: bool = False) -> None:
        self._namespace = escaped(namespace)
        self._slotted = slotted
        self.entries = f"{PREFIX}:entry:{{{self._namespace}:*"
        """A pattern that every entry's key fits."""
        self.all_triggers = f"{PREFIX}:triggers:{{{self._namespace}:*" if slotted else f"{PREFIX}:triggers:{self._namespace}"
        """The set of triggers with parked messages; on a cluster the pattern of such sets."""

    def tag(self, trigger: str) -> str:
        return f"{{{self._namespace}:{escaped(trigger)}}}"

    def entry(self, trigger: str, source: str, id_: str) -> bytes:
        return (self.prefix(trigger, source) + id_).encode("utf-8", "surrogatepass")

    def prefix(self, trigger: str, source: str) -> str:
        """What the keys of its entries begin with; the message's id follows."""
        return _entry_prefix(self._namespace, trigger, source)

    def index(self, trigger: str) -> bytes:
        return _index(self._namespace, trigger)

    def mark(self, trigger: str) -> str:
        return f"{PREFIX}:mark:{self.tag(trigger)}" if self._slotted else MARK

    def triggers(self, trigger: str) -> str:
        return f"{PREFIX}:triggers:{self.tag(trigger)}" if self._slotted else self.all_triggers


def undecided(state: bytes, decided: bool, over: bool) -> bool:
    return (state == b"in_doubt" and not decided) or (state == b"processing" and over)


def to_carry_out(state: bytes, decided: bool, over: bool) -> bool:
    return decided and over


VERBS: dict[type[Command], str] = {
    Claim: "claim",
    Complete: "complete",
    Release: "release",
    Renew: "renew",
    Park: "park",
    Decide: "decide",
    Join: "join",
}

_STATES = {state.value.encode(): state for state in State}


@lru_cache(maxsize=1024)
def escaped(text: str) -> str:
    """Without colons and braces, so that no two names give one key."""
    return quote(text, safe="/", errors="surrogatepass")


@lru_cache(maxsize=1024)
def _index(namespace: str, trigger: str) -> bytes:
    return f"{PREFIX}:parked:{{{namespace}:{escaped(trigger)}}}".encode()


@lru_cache(maxsize=1024)
def _entry_prefix(namespace: str, trigger: str, source: str) -> str:
    """`namespace` is escaped already."""
    return f"{PREFIX}:entry:{{{namespace}:{escaped(trigger)}}}:{escaped(source)}:"


def milliseconds(seconds: float) -> int:
    return math.ceil(min(seconds, LONGEST) * 1000)


def _microseconds(seconds: float | None) -> int | str:
    return "" if seconds is None else int(max(-LONGEST, min(seconds, LONGEST)) * 1_000_000)


def _optional(value: str | bytes | None) -> str | bytes:
    if value is None:
        return ""
    return "=" + value if isinstance(value, str) else b"=" + value


def arguments_of(command: Command) -> tuple[str | bytes | int, ...]:
    """What the verb needs beside token and history_ttl, in the script's order."""
    match command:
        case Claim():
            lease = _microseconds(command.lease)
            owner, body_hash = _optional(command.owner), _optional(command.body_hash)
            return (
                lease,
                int(command.take_over),
                owner,
                body_hash,
                int(command.decided),
                int(command.undeterred),
                int(command.brief),
            )
        case Complete():
            return (command.outcome,)
        case Release():
            to = "" if command.to is None else command.to.value
            return to, _microseconds(command.lease), _optional(command.reason)
        case Renew():
            return (_microseconds(command.lease),)
        case Park():
            return command.reason, command.delivery_count, _optional(command.owner), command.envelope
        case Decide():
            return command.decision, command.by
        case Join():
            expires = _microseconds(command.expires)
            return command.prefix, command.line, command.needed, expires, command.frame
    raise TypeError(f"not a history command: {command!r}")


def replies_of(answers: Sequence[Any], now: int) -> list[Reply]:
    """What the script answered to commands that are alike; `now`: the server's time."""
    first = answers[0]
    if isinstance(first, int) and answers.count(first) == len(answers):  # as most groups: claimed or completed in one go
        return [_reply_of(first, now)] * len(answers)
    return [_reply_of(answer, now) for answer in answers]


def _reply_of(answer: Any, now: int) -> Reply:
    if isinstance(answer, int):  # what happens to almost every message
        return KNOWN if answer == 0 else Reply(True, None, "", abs(answer), cautious=answer < 0)
    done, lost, fencing_token, attempt, token, fields, *cautious = answer
    entry = None if fields is None else _entry(fields, now)
    return Reply(done == 1, entry, token.decode(), fencing_token, attempt, lost == 1, cautious == [1])


def entry_looked_up(fields: Any, left: int, now: int) -> Entry | None:
    if isinstance(fields, Exception):  # another program's value under our key
        return Entry(state=State.UNKNOWN, version=0)
    if fields[0] is None:
        return None
    state, fence, lease, started, updated, outcome = (fields[place] for place in (0, 2, 3, 5, 6, 7))
    fields[2], fields[6] = fence or started, updated or started  # left out of a new entry
    if state == b"completed":
        fields[3], fields[7] = b"0", outcome or b"done"
    elif not lease:  # no deadline: locked as long as the key lives (TR-41)
        fields[3] = b"%d" % (now + left * 1000 if left >= 0 else 2**53)
    return _entry(fields, now)


def _entry(fields: Sequence[Any], now: int) -> Entry:
    state, token, fence, lease, attempt, started, updated, outcome, reason, owner, body_hash, copies, version, *decision = fields
    decided, by, at = decision
    return Entry(
        state=_STATES.get(state, State.UNKNOWN),
        token=_text(token) or "",
        fencing_token=int(fence or 0),
        lease_left=0.0 if lease == b"0" else max(0, int(lease) - now) / 1_000_000,
        attempt=int(attempt or 1),
        outcome=_text(outcome),
        reason=_text(reason),
        owner=_text(owner),
        body_hash=body_hash,
        copies=int(copies or 0),
        started=_age(started, now),
        updated=_age(updated, now),
        version=int(version or 0),
        decision=_text(decided),
        decided_by=_text(by),
        decided=_age(at, now) if decided else 0.0,
    )


def _age(since: bytes | None, now: int) -> float:
    """Seconds."""
    age = now - int(since) if since else 0
    return age / 1_000_000 if age > 0 else 0.0


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def parked_of(key: bytes, values: Sequence[Any], now: int) -> ParkedMessage:
    parked_at, reason, delivery_count, copies, owner, attempt, envelope, decision, by, decided_at = values
    tag, _, place = key.decode("utf-8", "surrogatepass").partition("}:")
    source, _, id_ = place.partition(":")
    return ParkedMessage(
        trigger=unquote(tag.rpartition(":")[2], errors="surrogatepass"),
        id=id_,
        source=unquote(source, errors="surrogatepass"),
        reason=_text(reason) or "",
        delivery_count=int(delivery_count or -1),
        age=max(0, now - int(parked_at or now)) / 1_000_000,
        copies=int(copies or 0),
        owner=_text(owner),
        attempt=int(attempt or 1),
        envelope=envelope or b"",
        decision=_text(decision),
        decided_by=_text(by),
        decided=max(0, now - int(decided_at or now)) / 1_000_000,
    )


Setting = tuple[str | bytes | int, ...]


class KnownSettings:
    """What lasting commands come to: how their keys begin, and their setting. Thread-safe: plain stores of whole values."""

    MOST = 1000

    def __init__(self) -> None:
        self._known: dict[int, tuple[Command, str, Setting]] = {}  # with the command, so that no other gets its identity

    def of(self, asked: Alike, keys: Keys, trigger: int) -> tuple[str, Setting]:
        """`trigger`: its number in the call."""
        like = asked.like
        found = self._known.get(id(like))
        if found is not None and trigger == 1:
            return found[1], found[2]
        setting = (VERBS[type(like)], trigger, milliseconds(like.history_ttl), *arguments_of(like))
        prefix = keys.prefix(like.trigger, like.source)
        if asked.lasting and trigger == 1:
            if len(self._known) >= self.MOST:
                self._known.clear()
            self._known[id(like)] = (like, prefix, setting)
        return prefix, setting


class ScriptCall:
    """The commands of one script call: their keys and arguments. What is alike (verb, lease, owner, lives) is sent once: arguments
    cost more than the rest of a call."""

    __slots__ = ("_entries", "_keys", "_runs", "_settings", "_triggers", "mark", "triggers_key")

    def __init__(self, keys: Keys, asked: Sequence[Alike], known: KnownSettings) -> None:
        """Of at least one command; on a cluster of one trigger's."""
        self._keys = keys
        self.mark = keys.mark(asked[0].like.trigger)
        self.triggers_key = keys.triggers(asked[0].like.trigger)
        self._triggers: dict[str, int] = {}
        self._settings: list[Setting] = []
        self._entries: list[str | bytes] = []
        self._runs: list[tuple[int, list[str]]] = []
        numbers: dict[int, int] = {}
        for one in asked:
            like = one.like
            number = numbers.get(id(like))
            trigger = self._triggers.setdefault(like.trigger, len(self._triggers) + 1)
            prefix, setting = known.of(one, keys, trigger)
            if number is None:
                self._settings.append(setting)
                number = numbers[id(like)] = len(self._settings)
            self._runs.append((number, one.tokens))
            if "".join(one.ids).isascii():  # as nearly all: the client packs texts faster than bytes
                self._entries += [prefix + id_ for id_ in one.ids]
            else:
                raw = prefix.encode()
                self._entries += [raw + id_.encode("utf-8", "surrogatepass") for id_ in one.ids]

    def question(self, verb: str, script: str | bytes, run_id: str, *, touch: bool) -> tuple[Any, ...]:
        """The call. After its keys come the number of indexes among them, `run_id`, and `touch`: to write in any case, so that a
        WAIT after it covers what was read; then the settings, each after how many it has; then the runs: which setting, how many
        tokens, and they."""
        triggers, entries, settings = self._triggers, self._entries, self._settings
        found: list[Any] = [verb, script, 2 + len(triggers) + len(entries), self.triggers_key, self.mark]
        for trigger in triggers:
            found.append(self._keys.index(trigger))  # noqa: PERF401  a comprehension costs more, once a group
        found += entries
        found += (len(triggers), run_id, int(touch), len(settings))
        for setting in settings:
            found.append(len(setting))
            found += setting
        for number, tokens in self._runs:
            found += (number, len(tokens))
            found += tokens
        return tuple(found)
