"""Why a connection is not opened although the log in went well: a client id in use, no such virtual host, nobody let in. O09.

Each error comes at once and names the cause and what to do.
"""

from __future__ import annotations

import secrets
from typing import Any

import pytest

import jmsclient
from jmsclient.errors import ConfigurationError, ConnectionLostError, JmsClientError
from jmsclient_amqp.primitives import described, listed, symbol, text

from .peer import CLOSE, OPEN, SASL, Conversation, Frame, Peer

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
PATIENCE = 20.0


def refused(url: str, **options: Any) -> JmsClientError:
    with pytest.raises(JmsClientError) as caught:
        jmsclient.connect(f"{url}{'&' if '?' in url else '?'}reconnect=no", request_timeout=PATIENCE, **options)
    return caught.value


@pytest.mark.parametrize(
    ("name", "client_id", "kind", "says"),
    [
        ("amqp:invalid-field", "me", ConnectionLostError, "client id 'me'.*take another id"),
        ("amqp:invalid-field", None, ConnectionLostError, "log of the broker"),
        ("amqp:not-found", None, ConfigurationError, r"\?vhost=NAME"),
        ("amqp:unauthorized-access", None, ConfigurationError, "check user name, password and rights"),
    ],
)
def test_a_connection_that_is_closed_instead_of_opened(
    peer: Peer, name: str, client_id: str | None, kind: type[JmsClientError], says: str
) -> None:
    def close(conversation: Conversation, frame: Frame) -> None:
        conversation.send(0, OPEN, text("peer"))
        conversation.send(0, CLOSE, described(0x1D, listed([symbol(name), text("because")])))

    peer.on[OPEN] = close
    error = refused(peer.url, client_id=client_id)
    assert isinstance(error, kind)
    assert "because" in str(error)
    with pytest.raises(type(error), match=says):
        raise error


def test_a_broker_that_asks_for_another_log_in(peer: Peer) -> None:
    """As one does that lets in who it then finds to be nobody."""
    peer.header = SASL
    error = refused(peer.url)
    assert isinstance(error, ConfigurationError)
    assert "user name and a password" in str(error)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_nobody_is_let_in_without_a_user_name(url: str) -> None:
    where = url.partition("@")[2]
    error = refused(f"amqp://{where}")
    assert isinstance(error, ConfigurationError)
    assert "user name" in str(error)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_client_id_is_of_one_connection_at_a_time(url: str) -> None:
    client_id = f"mine-{secrets.token_hex(4)}"
    with jmsclient.connect(url, client_id=client_id) as first:
        if first.metadata.provider_name == "RabbitMQ":  # it does not look
            jmsclient.connect(url, client_id=client_id).close()
        else:
            error = refused(url, client_id=client_id)
            assert isinstance(error, ConnectionLostError), "a connection that is made again tries on"
            assert client_id in str(error)
    jmsclient.connect(url, client_id=client_id).close()


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("broker", "says"), [("broker_j", "virtual host"), ("rabbitmq", "rights")])
def test_a_virtual_host_that_is_not_there(broker: str, says: str, request: pytest.FixtureRequest) -> None:
    """RabbitMQ wants it written `vhost:NAME`, and takes what is written otherwise for its default one."""
    running: Any = request.getfixturevalue(broker)
    error = refused(f"{running.url}?vhost=vhost:nowhere")
    assert isinstance(error, ConfigurationError)
    assert says in str(error)
    if broker == "rabbitmq":
        jmsclient.connect(f"{running.url}?vhost=vhost:/").close()
        jmsclient.connect(f"{running.url}?vhost=nowhere").close()
