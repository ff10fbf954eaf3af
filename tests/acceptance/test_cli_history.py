"""`jmsclient history show|stats|purge`: what a history knows, told to people and programs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jmsclient.cli.main import main
from jmsclient.history import open_history
from jmsclient.history.contract import stored_id


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("JMSCLIENT_HISTORY", raising=False)
    url = f"sqlite:{tmp_path / 'history.db'}"
    with open_history(url, namespace="shop") as store:
        store.claim("orders", "17", source="uuid", token="a")
        store.complete("orders", "17", source="uuid", token="a")
        store.park("orders", "18", token="b", envelope=b"x", reason="abandoned")
        store.claim("orders", "\x1b[2J", token="c", history_ttl=0.01)
    return url


def test_show_says_what_is_known_of_an_id(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "show", "17", "--trigger", "orders", "--history", history, "--namespace", "shop"]) == 0
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (said["state"], said["outcome"], said["id_source"], said["attempt"]) == ("completed", "done", "uuid", "1")
    assert (
        main(["history", "show", "18", "--trigger", "orders", "--history", history, "--namespace", "shop", "--format", "json"]) == 0
    )
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["state"], entry["reason"], entry["id_source"]) == ("in_doubt", "abandoned", "JMSMessageID")


def test_show_of_what_is_not_known_says_new_and_exits_with_one(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "show", "19\x1b", "--trigger", "orders", "--history", history, "--namespace", "shop"]) == 1
    assert capsys.readouterr().out == "nothing is known of 19\\x1b in trigger orders: it is New\n"


def test_stats_count_by_state_and_purge_says_how_many_it_removed(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    time.sleep(0.05)
    common = ["--history", history, "--namespace", "shop"]
    assert main(["history", "stats", "--format", "json", *common]) == 0
    assert json.loads(capsys.readouterr().out) == {"completed": 1, "in_doubt": 1}
    assert main(["history", "purge", *common]) == 0
    assert capsys.readouterr().out == "removed 1\n"
    assert main(["history", "stats", *common]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["completed", "1"], ["in_doubt", "1"]]
    assert main(["history", "stats", "--history", history, "--namespace", "other"]) == 0
    assert capsys.readouterr().out == "the history is empty\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["stats"], "give --history"),
        (["purge", "--history", "memory:"], "lives in the worker's own process"),
        (["stats", "--history", "sqlite:not-there.db"], "there is no file"),
        (["stats", "--history", "redis://:s3cret@host:port/0"], "the URL cannot be read"),
        (["show", "17", "--history", "sqlite:not-there.db"], "Missing option '--trigger'"),
        (["check"], "Missing argument 'JOURNAL...'"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_two(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JMSCLIENT_HISTORY", raising=False)
    assert main(["history", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert says in said
    assert "s3cret" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "stats", "--history", "redis://127.0.0.1:1/0"]) == 1
    assert "HistoryUnavailableError" in capsys.readouterr().err


def test_a_file_that_is_no_journal_is_refused_and_not_called_clean(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It would hide whatever the journal that was meant would show."""
    journal, other, empty = tmp_path / "journal.jsonl", tmp_path / "history.db", tmp_path / "empty.jsonl"
    journal.write_text('{"run": "a", "time": 1.0, "event": "journal_closed"}\n{"run": "a", "ti')
    other.write_bytes(b"SQLite format 3\x00\xff\n{}\n")
    empty.touch()
    assert main(["history", "check", str(journal), str(other)]) == 2
    assert "history.db' is no journal" in capsys.readouterr().err
    assert main(["history", "check", str(journal), str(empty)]) == 0
    assert "1 lines cannot be read" in capsys.readouterr().out


def test_show_of_a_long_id_is_by_either_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long, url = "x" * 5000, f"sqlite:{tmp_path / 'history.db'}"
    with open_history(url) as history:
        history.claim("orders", long, source="uuid")
    for form in (long, stored_id(long)):
        assert main(["history", "show", form, "--trigger", "orders", "--history", url]) == 0
        assert "processing" in capsys.readouterr().out
