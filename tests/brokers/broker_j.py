"""Apache Qpid Broker-J: queues are made when somebody asks for them; a durable store; passwords in clear text on the loopback."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from .launching import Broker, archive, listening, need, unpacked

VERSION = "9.2.1"


class BrokerJ(Broker):
    name = "broker-j"

    def prepare(self) -> None:
        need("java")
        file = archive("org.apache.qpid", "apache-qpid-broker-j", VERSION, "bin", "tar.gz")
        self.home = unpacked(file, f"broker-j-{VERSION}", strip=2)
        (self.folder / "initial.json").write_text(json.dumps(self._configuration()), encoding="utf-8")

    def _configuration(self) -> dict[str, Any]:
        aliases = [{"name": name, "type": name} for name in ("nameAlias", "defaultAlias", "hostnameAlias")]
        return {
            "name": "jmsclient-tests",
            "modelVersion": "9.0",
            "authenticationproviders": [
                {
                    "name": "plain", "type": "Plain", "secureOnlyMechanisms": [],
                    "users": [{"name": self.user, "type": "managed", "password": self.password}],
                },
            ],
            "ports": [
                {
                    "name": "AMQP", "type": "AMQP", "bindingAddress": "127.0.0.1", "port": str(self.port),
                    "authenticationProvider": "plain", "protocols": ["AMQP_1_0"], "virtualhostaliases": aliases,
                },
            ],
            "brokerloggers": [
                {
                    "name": "stdout", "type": "Console",
                    "brokerloginclusionrules": [
                        {"name": "root", "type": "NameAndLevel", "level": "WARN", "loggerName": "ROOT"},
                        {"name": "oper", "type": "NameAndLevel", "level": "INFO", "loggerName": "qpid.message.*"},
                    ],
                },
            ],
            "virtualhostnodes": [
                {
                    "name": "default", "type": "JSON", "defaultVirtualHostNode": "true",
                    "virtualHostInitialConfiguration": json.dumps(_HOST),
                },
            ],
        }  # fmt: skip

    def environment(self) -> dict[str, str]:
        memory = "-Xmx256m -XX:MaxDirectMemorySize=256m -XX:TieredStopAtLevel=1"
        return {
            **os.environ,
            "QPID_WORK": str(self.folder),
            "QPID_HOME": str(self.home),
            "QPID_OPTS": "",
            "QPID_JAVA_MEM": memory,
            "QPID_JAVA_GC": "-XX:+UseSerialGC",
        }

    def command(self) -> Sequence[str]:
        return [str(self.home / "bin" / "qpid-server"), "-icp", str(self.folder / "initial.json")]

    def ready(self) -> bool:
        broken = self.logged("VHT-1005") or self.logged("Exception")  # it says that it is ready even without its virtual host
        return self.logged("BRK-1004") and not broken and listening(self.port)


def _policy(pattern: str, **attributes: str) -> dict[str, Any]:
    return {"pattern": pattern, "nodeType": "queue", "createdOnPublish": True, "createdOnConsume": True, "attributes": attributes}


_HOST: dict[str, Any] = {
    "type": "BDB",
    "housekeepingCheckPeriod": "500",
    "queues": [{"name": "DLQ", "durable": True}],
    "exchanges": [{"name": f"topic.{number}", "type": "fanout", "durable": True} for number in range(20)],
    "nodeAutoCreationPolicies": [
        _policy(r"max3\..*", maximumDeliveryAttempts="3", alternateBinding='{"destination":"DLQ"}'),
        _policy(r"delay\..*", holdOnPublishEnabled="true"),
        _policy(r"(q|conformance|live|taken|full)\..*"),
    ],
}
