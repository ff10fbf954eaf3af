"""TLS and SASL with real brokers: who gets in how, and that the certificate is looked at."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

import jmsclient
from jmsclient import Connection
from jmsclient.errors import ConfigurationError

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the first test of a broker may have to fetch it


def exchange(connection: Connection) -> Any:
    session = connection.create_session()
    session.create_producer("queue:///live.log.in").send("x" * 100_000)
    message = session.create_consumer("queue:///live.log.in").receive(10.0)
    return None if message is None else message.body


def user(broker: Any) -> str:
    return f"{broker.user}:{quote(broker.password, safe='')}@"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_plain_over_tls_by_name_and_by_address(artemis: Any, host: str) -> None:
    url = f"amqps://{user(artemis)}{host}:{artemis.tls_port}?ca_file={artemis.certificates / 'ca.pem'}"
    with jmsclient.connect(url) as connection:
        assert exchange(connection) == "x" * 100_000


def test_external_with_a_client_certificate(artemis: Any) -> None:
    folder = artemis.certificates
    url = f"amqps://localhost:{artemis.tls_port}?ca_file={folder / 'ca.pem'}&cert_file={folder / 'client.pem'}"
    with jmsclient.connect(f"{url}&key_file={folder / 'client.key'}&sasl=EXTERNAL") as connection:
        assert exchange(connection) == "x" * 100_000


def test_an_authority_that_is_not_trusted(artemis: Any) -> None:
    with pytest.raises(ConfigurationError, match="ca_file"):
        jmsclient.connect(f"amqps://{user(artemis)}localhost:{artemis.tls_port}")


def test_tls_on_the_plain_port_and_the_reverse(artemis: Any) -> None:
    with pytest.raises(jmsclient.errors.JmsClientError, match="amqp://"):
        jmsclient.connect(f"amqps://{user(artemis)}localhost:{artemis.port}", request_timeout=2.0)
    with pytest.raises(jmsclient.errors.JmsClientError, match="amqps://"):
        jmsclient.connect(f"amqp://{user(artemis)}localhost:{artemis.tls_port}", request_timeout=2.0)


def test_scram(broker_j: Any) -> None:
    with jmsclient.connect(f"amqp://{user(broker_j)}127.0.0.1:{broker_j.scram_port}?sasl=SCRAM-SHA-256") as connection:
        assert exchange(connection) == "x" * 100_000
    with pytest.raises(ConfigurationError, match="user name and password"):
        jmsclient.connect(f"amqp://{broker_j.user}:wrong@127.0.0.1:{broker_j.scram_port}?sasl=SCRAM-SHA-256")
