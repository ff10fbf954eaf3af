"""Bad input: one line that names what was given and what to do, exit code 2, nothing written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import CommandLine

STORE = "embedded:?store=shop.db"
WORKER = """
from jmsclient import Worker
worker = Worker({url!r}, history={history!r})
plain = {{}}

@worker.trigger({destination!r})
def book(body: str) -> None:
    pass
"""


def refused(done: object, *said: str) -> None:
    code, out, err = done.returncode, done.stdout, done.stderr  # type: ignore[attr-defined]
    assert code == 2, out + err
    assert out == ""
    assert err.startswith("jmsclient: ")
    assert err.count("\n") == 1, err
    for text in said:
        assert text in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["nothing"], ["'nothing'", "--help"], id="no such command"),
        pytest.param(["send", "orders", "x", "--cuont", "3"], ["--cuont", "--count"], id="unknown flag"),
        pytest.param(["send", "orders", "x"], ["--url", "JMSCLIENT_URL"], id="no url"),
        pytest.param(["send", "orders", "x", "--url", "embedded:"], ["'embedded:'", "store"], id="embedded without a store"),
        pytest.param(["send", "orders", "x", "--url", "embedded:shop"], ["'embedded:shop'", "store"], id="named, without a store"),
        pytest.param(["send", "orders", "x", "--url", "nats://h:1"], ["'nats'", "embedded"], id="unknown scheme"),
        pytest.param(["send", "orders", "x", "--url", "jvm:u:secret@h"], ["jvm"], id="backend that is not there"),
        pytest.param(["send", "orders", "x", "--url", "shop.db"], ["embedded:"], id="no scheme"),
        pytest.param(
            ["send", "queue:orders", "x", "--url", STORE], ["'queue:orders'", "queue:///NAME"], id="malformed destination"
        ),
        pytest.param(
            ["send", "queue:///orders?readahead=YES", "x", "--url", STORE],
            ["'readahead'", "readAheadAllowed"],
            id="unknown property",
        ),
        pytest.param(
            ["send", "queue:///orders?readAheadAllowed=MAYBE", "x", "--url", STORE], ["MAYBE", "AS_DEST"], id="RA-2 bad value"
        ),
        pytest.param(["send", "orders", "x", "--url", STORE, "--time-to-live", "-1"], ["'-1'", "seconds"], id="IF-1 negative time"),
        pytest.param(["send", "orders", "x", "--url", STORE, "--time-to-live", "nan"], ["'nan'", "seconds"], id="IF-1 NaN"),
        pytest.param(
            ["send", "orders", "x", "--url", STORE, "--delivery-delay", "soon"], ["'soon'", "seconds"], id="IF-1 no number"
        ),
        pytest.param(["send", "orders", "x", "--url", STORE, "--property", "uuid"], ["'uuid'", "NAME=VALUE"], id="property"),
        pytest.param(["send", "orders", "x", "--url", STORE, "--property", "n:int=x"], ["'n:int=x'", "int"], id="property value"),
        pytest.param(
            ["send", "orders", "x", "--url", STORE, "--property", "my key=1"], ["'my key'", "identifier"], id="property name"
        ),
        pytest.param(["send", "orders", "x", "--url", STORE, "--priority", "10"], ["10", "0<=x<=9"], id="priority"),
        pytest.param(["send", "orders", "[1]", "--url", STORE, "--kind", "map"], ["list", "object"], id="map that is none"),
        pytest.param(["send", "orders", "{", "--url", STORE, "--kind", "map"], ["JSON"], id="no JSON"),
        pytest.param(["in-doubt", "list"], ["--history"], id="no history"),
        pytest.param(["in-doubt", "list", "--history", "mongo://x"], ["mongo"], id="history of an unknown kind"),
        pytest.param(["in-doubt", "list", "--history", "memory:"], ["memory:"], id="history in memory"),
        pytest.param(["in-doubt", "list", "--history", "sqlite:gone.db"], ["gone.db"], id="history that is not there"),
        pytest.param(["run", "app"], ["'app'", "MODULE:WORKER"], id="no worker named"),
        pytest.param(["run", "gone:worker"], ["'gone'", "--app-dir"], id="missing module"),
        pytest.param(["run", "app:gone"], ["'gone'", "its workers: worker"], id="missing attribute"),
        pytest.param(["run", "app:plain"], ["dict", "jmsclient.Worker"], id="no Worker"),
        pytest.param(["run", "app:worker", "--concurrency", "0"], ["0", "--concurrency"], id="concurrency"),
        pytest.param(["run", "app:worker", "--log-level", "loud"], ["loud", "warning"], id="log level"),
        pytest.param(["run", "app:worker", "--app-dir", "gone"], ["'gone'", "folder"], id="app dir"),
        pytest.param(["run", "app:worker", "--url", "embedded:?stroe=shop.db"], ["stroe"], id="unknown url parameter"),
        pytest.param(
            ["run", "app:worker", "--url", "embedded:?store=/proc/shop.db"], ["/proc/shop.db"], id="store that is read-only"
        ),
        pytest.param(["run", "app:worker", "--url", "embedded:?store=app.py"], ["app.py", "SQLite"], id="store that is not SQLite"),
        pytest.param(["run", "syntax:worker"], ["syntax.py", "line 1"], id="module with a syntax error"),
        pytest.param(["run", "broken:worker"], ["ZeroDivisionError", "broken.py", "line 2"], id="module that fails"),
        pytest.param(["run", "nested:worker"], ["no_such_dependency"], id="module with a missing dependency"),
        pytest.param(["run", "malformed:worker"], ["queue:orders"], id="worker with a malformed destination"),
        pytest.param(["run", "unknown_history:worker"], ["mongo"], id="worker with a history of an unknown kind"),
        pytest.param(["run", "empty:worker"], ["trigger"], id="worker without a trigger"),
    ],
)
def test_one_line_exit_code_2_and_nothing_written(jmsclient: CommandLine, arguments: list[str], said: list[str]) -> None:
    jmsclient.write("app.py", WORKER.format(url="embedded:", history=None, destination="orders"))
    jmsclient.write("malformed.py", WORKER.format(url="embedded:", history=None, destination="queue:orders"))
    jmsclient.write("unknown_history.py", WORKER.format(url=STORE, history="mongo://x", destination="orders"))
    jmsclient.write("empty.py", "from jmsclient import Worker\nworker = Worker('embedded:')\n")
    jmsclient.write("syntax.py", "worker = = 1\n")
    jmsclient.write("broken.py", "\nworker = 1 / 0\n")
    jmsclient.write("nested.py", "import no_such_dependency\n")
    before = jmsclient.files()
    app = (jmsclient.folder / "app.py").read_bytes()
    done = jmsclient(*arguments)
    refused(done, *said)
    assert "secret" not in done.stderr
    assert jmsclient.files() == before
    assert (jmsclient.folder / "app.py").read_bytes() == app


def test_two_workers_on_one_store(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", WORKER.format(url=STORE, history=None, destination="orders"))
    first = jmsclient.start("run", "app:worker")
    first.wait_for("runs queue:///orders")
    refused(jmsclient("run", "app:worker"), "shop.db", "process")
    assert first.process.poll() is None


def test_no_command_shows_what_there_is(jmsclient: CommandLine) -> None:
    done = jmsclient()
    assert done.returncode == 2
    assert "in-doubt" in done.stderr


def test_version(jmsclient: CommandLine) -> None:
    done = jmsclient("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("jmsclient, version ")
