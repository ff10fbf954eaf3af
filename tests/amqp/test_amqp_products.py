"""Which row a broker gets, what is offered and overridden, and which engine is accepted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jmsclient.destination import Queue, Topic
from jmsclient.errors import ConfigurationError
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, RETRY_ELSEWHERE, Outcome, Peer, ReceiverSpec, Verb

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)

from jmsclient_amqp import products
from jmsclient_amqp.engine import library
from jmsclient_amqp.outcomes import disposition_of, refused
from jmsclient_amqp.products import TABLE, capabilities_of, product_of
from jmsclient_amqp.subscriptions import LinkNames

NAMES = [
    ("apache-activemq-artemis", "artemis"),
    ("Apache Qpid Broker-J Core", "broker-j"),
    ("ActiveMQ", "activemq"),
    ("RabbitMQ", "rabbitmq"),
    ("something else", "generic"),
    ("", "generic"),
]


@pytest.mark.parametrize(("name", "provider"), NAMES)
def test_if_29_the_open_frame_names_the_row(name: str, provider: str) -> None:
    assert product_of(Peer(product=name, version="1"), None).provider == provider


def test_an_override_names_the_row() -> None:
    peer = Peer(product="fork of something", version="1")
    assert product_of(peer, "Artemis") is products.ARTEMIS
    with pytest.raises(ConfigurationError, match="broker-j"):
        product_of(peer, "nonsense")


def test_what_is_offered_narrows_the_row() -> None:
    assert capabilities_of(products.ARTEMIS, frozenset({"DELAYED_DELIVERY", "SHARED-SUBS"})).delayed_delivery
    assert not capabilities_of(products.ARTEMIS, frozenset()).delayed_delivery
    assert not capabilities_of(products.ARTEMIS, frozenset()).shared_subscriptions
    assert not capabilities_of(products.BROKER_J, frozenset({"DELAYED_DELIVERY"})).delayed_delivery


def test_an_unknown_broker_is_relied_on_for_nothing() -> None:
    capabilities = capabilities_of(products.GENERIC, frozenset({"SHARED-SUBS", "DELAYED_DELIVERY"}))
    refused_there = (
        "transactions",
        "browse",
        "selectors",
        "delayed_delivery",
        "topics",
        "durable_subscriptions",
        "shared_subscriptions",
    )
    assert not any(getattr(capabilities, name) for name in refused_there)
    assert len({row.provider for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("outcome", [ACCEPT, RELEASE, RETRY, RETRY_ELSEWHERE, Outcome(verb=Verb.DEAD_LETTER)])
def test_a_broker_without_modified_never_gets_it(outcome: Outcome) -> None:
    assert disposition_of(outcome, modified=False).code != library.MODIFIED
    assert refused(modified=False).code == library.REJECTED
    assert refused(modified=True).code == library.MODIFIED


# -- subscriptions ------------------------------------------------------------------------------------------------------


def spec(kind: str, name: str = "news") -> ReceiverSpec:
    return ReceiverSpec(destination=Topic("t"), kind=kind, name=name)  # type: ignore[arg-type]


def test_links_of_one_subscription_are_told_apart_as_other_clients_do() -> None:
    ours = LinkNames(has_client_id=True)
    assert [ours.take(spec("shared_durable")) for _ in range(3)] == ["news", "news|2", "news|3"]
    assert [ours.take(spec("shared", "live")) for _ in range(2)] == ["live|volatile1", "live|volatile2"]
    nobodys = LinkNames(has_client_id=False)
    assert [nobodys.take(spec("shared_durable")) for _ in range(2)] == ["news|global", "news|global2"]
    assert nobodys.take(spec("shared")) == "news|global-volatile1"
    ours.give("news|2")
    assert ours.take(spec("shared_durable")) == "news|2"


# -- the engine ---------------------------------------------------------------------------------------------------------


def test_an_engine_of_another_version_is_refused_by_name() -> None:
    with pytest.raises(ImportError, match=r"proton 0\.99 was not tested"):
        library.check_library(SimpleNamespace(PN_VERSION_MAJOR=0, PN_VERSION_MINOR=99))


def test_an_engine_that_lacks_a_function_is_refused_by_name() -> None:
    with pytest.raises(ImportError, match="pn_link_recv"):
        library.check_library(SimpleNamespace(PN_VERSION_MAJOR=0, PN_VERSION_MINOR=40))


def test_a_library_that_was_built_without_tls_or_sasl_serves() -> None:
    """Both are done before the engine sees the socket (decision 10), so none of its functions for them is called."""
    assert [name for name in library._NEEDED if "ssl" in name or "sasl" in name] == []


def test_every_function_that_is_called_is_checked_at_import() -> None:
    """The list in library.py names each `lib.pn_…` of the engine's code."""
    import re
    from pathlib import Path

    called: set[str] = set()
    for path in Path(library.__file__).parent.glob("*.py"):
        called |= set(re.findall(r"lib\.(pn_\w+)", path.read_text(encoding="utf-8")))
    assert called == set(library._NEEDED)


def test_a_queue_and_a_topic_of_one_name_have_two_addresses_where_the_broker_wants_it() -> None:
    naming = products.RABBITMQ_3.naming
    assert (naming.address(Queue("a")), naming.address(Topic("a"))) == ("/queue/a", "/topic/a")
    assert (naming.uri("/queue/a", 1), naming.uri("/topic/a", 0)) == ("queue:///a", "topic:///a")


def test_a_queue_that_is_there_already_has_another_address_where_the_broker_wants_it() -> None:
    naming = product_of(Peer(product="RabbitMQ", version="3.10.8"), None).naming
    assert naming.existing(Queue("q")) == "/amq/queue/q"
    assert naming.existing(Queue("/queue/q")) == "/amq/queue/q"
    assert naming.existing(Topic("q")) is None
    assert naming.uri("/amq/queue/q", 0) == "queue:///q"
    assert product_of(Peer(product="apache-activemq-artemis", version="2.40.0"), None).naming.existing(Queue("q")) is None
