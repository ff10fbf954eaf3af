"""Apache Qpid Broker-J: queues are made when somebody asks for them; a durable store; passwords in clear text on the loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from typing import Any

from .launching import Broker, archive, free_port, listening, need, unpacked

VERSION = "9.2.1"
POOR = "poor"
"""A user with the same password, who has rights to `live.` only."""


class BrokerJ(Broker):
    name = "broker-j"

    def prepare(self) -> None:
        need("java")
        file = archive("org.apache.qpid", "apache-qpid-broker-j", VERSION, "bin", "tar.gz")
        self.home = unpacked(file, f"broker-j-{VERSION}", strip=2)
        self.scram_port = free_port()
        (self.folder / "initial.json").write_text(json.dumps(self._configuration()), encoding="utf-8")

    def _configuration(self) -> dict[str, Any]:
        aliases = [{"name": name, "type": name} for name in ("nameAlias", "defaultAlias", "hostnameAlias")]
        return {
            "name": "jmsclient-tests",
            "modelVersion": "9.0",
            "authenticationproviders": [
                {
                    "name": "scram", "type": "SCRAM-SHA-256",
                    "users": [{"name": self.user, "type": "managed", "password": _stored(self.password)}],
                },
                {
                    "name": "plain", "type": "Plain", "secureOnlyMechanisms": [],
                    "users": [{"name": one, "type": "managed", "password": self.password} for one in (self.user, POOR)],
                },
            ],
            "ports": [
                {
                    "name": "SCRAM", "type": "AMQP", "bindingAddress": "127.0.0.1", "port": str(self.scram_port),
                    "authenticationProvider": "scram", "protocols": ["AMQP_1_0"], "virtualhostaliases": aliases,
                },
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
        if self.logged("VHT-1005") or self.logged("Exception"):  # it says that it is ready even without its virtual host
            raise AssertionError(f"{self.name} is broken:\n{self.log.read_text(errors='replace')[-4000:]}")
        return self.logged("BRK-1004") and listening(self.port)


def _stored(password: str) -> str:
    """As the broker keeps a password for SCRAM: salt, stored key, server key, rounds (RFC 5802)."""
    salt, rounds = b"0123456789abcdef", 4096
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
    keys = [hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key")]
    parts = [salt, hashlib.sha256(keys[0]).digest(), keys[1]]
    salt_text, *key_texts = (base64.b64encode(part).decode() for part in parts)
    return ",".join([salt_text, "", *key_texts, str(rounds)])


def _policy(pattern: str, **attributes: str) -> dict[str, Any]:
    return {"pattern": pattern, "nodeType": "queue", "createdOnPublish": True, "createdOnConsume": True, "attributes": attributes}


_RIGHTS = [
    {"identity": POOR, "objectType": kind, "operation": operation, "attributes": attributes, "outcome": outcome}
    for kind, operation, attributes, outcome in (
        ("QUEUE", "CONSUME", {"NAME": "live.*"}, "ALLOW"),
        ("QUEUE", "CONSUME", {}, "DENY"),
        ("EXCHANGE", "PUBLISH", {"NAME": "", "ROUTING_KEY": "live.*"}, "ALLOW"),
        ("EXCHANGE", "PUBLISH", {}, "DENY"),
    )
]
_HOST: dict[str, Any] = {
    "virtualhostaccesscontrolproviders": [
        {"name": "rights", "type": "RuleBased", "priority": "1", "defaultResult": "ALLOWED", "rules": _RIGHTS}
    ],
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
