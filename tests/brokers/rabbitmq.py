"""RabbitMQ as the distribution packages it, with its AMQP 1.0 plug-in: a node of its own, with an own port mapper."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .launching import Broker, NotAvailable, free_port, listening, need


class RabbitMQ(Broker):
    name = "rabbitmq"

    def prepare(self) -> None:
        front = need("rabbitmq-server")
        # The front script changes user and ignores our folders; the real one is the target beside it.
        self._binaries = Path(front).resolve().parent
        if not (self._binaries / "rabbitmq-server").exists():
            raise NotAvailable("this rabbitmq-server is not laid out as expected")
        self._mapper_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None
        (self.folder / "log").mkdir()
        self._write("env.conf", "")
        self._write("enabled_plugins", "[rabbitmq_amqp1_0].\n")
        self._write(
            "rabbitmq.conf",
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "auth_mechanisms.1 = PLAIN\n"
            f"default_user = {self.user}\n"
            f"default_pass = {self.password}\n"
            "loopback_users = none\n"
            "amqp1_0.default_vhost = /\n"
            "disk_free_limit.absolute = 50MB\n",
        )

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            **os.environ,
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_MAX_PORTS": "4096",
            "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
            "RABBITMQ_NODENAME": f"jmsclient{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_HOME_DIR": str(folder),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "node.pid"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",
        }

    def start(self) -> None:
        (self.folder / "node.pid").unlink(missing_ok=True)
        for log in (self.folder / "log").glob("jmsclient*.log"):
            log.unlink()  # it says "complete" of the start before, and a node that was just killed may still listen
        mapper = shutil.which("epmd")
        if mapper is None:
            raise NotAvailable("epmd is not installed")
        if self._mapper is None:
            words = [mapper, "-address", "127.0.0.1", "-port", str(self._mapper_port)]
            self._mapper = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        super().start()

    def stop(self) -> None:
        super().stop()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait(10)
            self._mapper = None

    def evaluate(self, expression: str) -> str:
        """What an Erlang expression gives on the node, by its own control program."""
        words = [str(self._binaries / "rabbitmqctl"), "eval", expression]
        node = f"jmsclient{self.port}@localhost"
        environment = {**self.environment(), "RABBITMQ_NODENAME": node}
        done = subprocess.run(words, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, f"{expression}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def store_declarations(self) -> None:
        """It answers that a queue is made before it has written that: killed within milliseconds it forgets the queue now and then
        (1 of 12 times), and with it what it had written, and confirmed, of the messages."""
        self.evaluate("mnesia:sync_log().")

    def declare_quorum_queue(self, name: str, **arguments: int | str) -> None:
        """Over AMQP 1.0 this version makes classic queues only."""
        given = {"x-queue-type": "quorum", **{key.replace("_", "-"): value for key, value in arguments.items()}}
        table = ",".join(
            f'{{<<"{key}">>,long,{value}}}' if isinstance(value, int) else f'{{<<"{key}">>,longstr,<<"{value}">>}}'
            for key, value in given.items()
        )
        resource = f'rabbit_misc:r(<<"/">>,queue,<<"{name}">>)'
        self.evaluate(f'{{new,_}}=rabbit_amqqueue:declare({resource},true,false,[{table}],none,<<"{self.user}">>),ok.')

    def command(self) -> Sequence[str]:
        return [str(self._binaries / "rabbitmq-server")]

    def ready(self) -> bool:
        logs = list((self.folder / "log").glob("jmsclient*.log"))
        return any("Server startup complete" in log.read_text(errors="replace") for log in logs) and listening(self.port)
