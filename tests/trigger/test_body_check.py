"""An id that another body has used, an entry that another version wrote: parked under a key of their own (TR-47, TR-34)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jmsclient import ConfigurationError, Message, Status, TriggerOptions, Worker
from jmsclient.history import Claim, DocumentHistory, State, open_history
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.trigger import carrying_out

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]
CHECKED = TriggerOptions(body_check=True)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.real)])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentHistory]:
    url = f"sqlite:{tmp_path / 'history.db'}" if request.param == "sqlite" else request.getfixturevalue("redis_url")
    with open_history(url, namespace=tmp_path.name) as opened:
        yield opened


def one(body: Any, **properties: Any) -> Message:
    return Message(body, properties={"uuid": "1", **properties})


def test_tr47_the_same_id_with_another_body_is_parked_under_a_key_of_its_own(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying_out, "LOOK_INTERVAL", 0.03)
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, options=CHECKED)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        counters = worker.triggers[Q].pipeline.counters
        backend.deliver(Q, [one("tea"), one("tea"), one("coffee"), one("coffee"), one("milk")])
        until(lambda: len(backend.settlements) == 5)
        assert (counters.new, counters.duplicate, counters.id_reused, counters.in_doubt) == (1, 1, 3, 3)
        listed = history.in_doubt(Q)
        assert [(p.reason, p.source, p.copies) for p in listed] == [("id_reused", "id_reused", 1), ("id_reused", "id_reused", 0)]
        assert all(p.id.startswith("1#") for p in listed)
        history.decide(Q, listed[0].id, Status.NEW, "ada")
        until(lambda: counters.completed == 2)
        backend.deliver(Q, one("coffee"))  # what was decided and done is a Duplicate now
        until(lambda: len(backend.settlements) == 6)
        assert counters.duplicate == 2
    assert ran == ["tea", "coffee"]
    assert verbs(backend) == [Verb.ACCEPT] * 6
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert entry.state is State.COMPLETED


def test_tr47_parts_of_a_message_chosen_by_a_function(backend: ScriptedBackend, history: DocumentHistory, until: Until) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, options=TriggerOptions(body_check=lambda message: str(message.properties["part"])))
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        counters = worker.triggers[Q].pipeline.counters
        backend.deliver(Q, [one("a", part="x"), one("other body", part="x"), one("a", part="y"), one("fails")])
        until(lambda: len(backend.settlements) == 4)
        assert (counters.duplicate, counters.id_reused, counters.failed) == (1, 1, 1)
    assert ran == ["a"]


def test_an_entry_of_an_unknown_version_is_left_alone_and_its_copy_parked_without_a_loop(
    backend: ScriptedBackend, tmp_path: Path, until: Until
) -> None:
    import sqlite3

    path = tmp_path / "history.db"
    with open_history(f"sqlite:{path}") as history:
        history.complete(Q, "1", source="uuid", token="newer")
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE entries SET version = 99")
        connection.close()
        worker = Worker(backend.url, history=history)
        worker.trigger(Q)(lambda: pytest.fail("it must not run"))
        with worker:
            backend.deliver(Q, [one("tea"), one("tea")])
            until(lambda: len(backend.settlements) == 2)
            counters = worker.triggers[Q].pipeline.counters
            assert (counters.in_progress, counters.parked) == (0, 2)
        (parked,) = history.in_doubt(Q)
        assert (parked.reason, parked.copies) == ("unknown_version", 1)
        entry = history.lookup(Q, "1", source="uuid")
        assert entry is not None
        assert entry.version == 99
    assert verbs(backend) == [Verb.ACCEPT] * 2


def test_tr34_redeliver_counts_so_that_the_providers_limit_ends_it(backend: ScriptedBackend, until: Until) -> None:
    history = open_history("memory:")
    history.exchange([Claim(trigger=Q, id="1", source="uuid", token="gone", lease=0.0)])
    worker = Worker(backend.url, history=history)
    worker.trigger(Q, in_doubt="redeliver")(lambda: pytest.fail("it must not run"))
    with worker:
        backend.deliver(Q, one("tea"))
        until(lambda: len(backend.settlements) >= 3)
        history.complete(Q, "1", source="uuid", token="gone")
        until(lambda: worker.triggers[Q].pipeline.counters.duplicate == 1)
    assert set(verbs(backend)[:-1]) == {Verb.RETRY}


def test_a_body_check_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="body_check"):
        TriggerOptions(body_check="sha256")  # type: ignore[arg-type]
