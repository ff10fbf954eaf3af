"""URLs taken apart, backends found, and no secret in any text (O09)."""

from __future__ import annotations

import traceback
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from jmsclient.errors import ConfigurationError
from jmsclient.transport import registry
from jmsclient.transport.registry import find_backend, parse_url, register, unregister

PASSWORD = "p@s:s/w#r%d+ x%41"
ENCODED = "p%40s%3As%2Fw%23r%25d%2B%20x%2541"


@pytest.mark.parametrize("scheme", ["amqp", "amqps", "stomp", "stomp+ssl", "redis", "rediss"])
def test_o09_user_and_password_are_decoded_once(scheme: str) -> None:
    endpoint = parse_url(f"{scheme}://us%3Aer:{ENCODED}@broker:5672/vhost?x=1")
    assert (endpoint.username, endpoint.password) == ("us:er", PASSWORD)
    assert endpoint.address == "//broker:5672/vhost"
    assert endpoint.parameters == {"x": "1"}
    for text in (str(endpoint), repr(endpoint)):
        assert PASSWORD not in text
        assert ENCODED not in text
        assert "broker" in text
    assert "us:er" in repr(endpoint)


@pytest.mark.parametrize(
    "secret", [PASSWORD, "hu/sh", "hu@sh", "hu?sh", "hu#sh", "hu sh", "hu%sh", "hu%FFsh", "a@b/c", "a?b=c", "[hush"], ids=repr
)
@pytest.mark.parametrize("user", ["user", "us:er"])
def test_o09_a_raw_password_is_refused_with_a_hint_that_does_not_show_it(user: str, secret: str) -> None:
    with pytest.raises(ConfigurationError, match="percent-encode") as caught:
        parse_url(f"amqp://{user}:{secret}@broker:5672")
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_o09_a_wrong_parameter_does_not_show_its_value() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url("embedded:?store=x&hush")
    assert "hush" not in "".join(str(one) for one in (caught.value, caught.value.__cause__, caught.value.__context__))
    assert "hush" not in repr(parse_url("amqps://h?keyPassword=hush"))


def test_o09_a_colon_in_the_password_belongs_to_it() -> None:
    assert parse_url("redis://:a:b+c@h").password == "a:b+c"
    assert parse_url("redis://:a:b+c@h").username is None


def test_arguments_win_over_the_url() -> None:
    endpoint = parse_url("amqp://a:b@h", username="u", password="p", client_id="c")
    assert (endpoint.username, endpoint.password, endpoint.client_id) == ("u", "p", "c")


@pytest.mark.parametrize(
    ("url", "scheme", "address", "parameters"),
    [
        ("embedded:", "embedded", "", {}),
        ("embedded:shop", "embedded", "shop", {}),
        (" Embedded:shop ", "embedded", "shop", {}),
        ("embedded:?store=shop.db", "embedded", "", {"store": "shop.db"}),
        ("embedded:shop?store=/tmp/a%20b+c@d.db", "embedded", "shop", {"store": "/tmp/a b+c@d.db"}),
        ("amqp://[::1]:5672", "amqp", "//[::1]:5672", {}),
        ("amqp://h:5672/topic://t", "amqp", "//h:5672/topic://t", {}),
        ("stomp+ssl://h?a=&b=1%3D2", "stomp+ssl", "//h", {"a": "", "b": "1=2"}),
    ],
)
def test_urls_are_taken_apart(url: str, scheme: str, address: str, parameters: dict[str, str]) -> None:
    endpoint = parse_url(url)
    assert (endpoint.scheme, endpoint.address, dict(endpoint.parameters)) == (scheme, address, parameters)
    assert str(endpoint) == f"{scheme}:{address}"


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("", "begins with a scheme"),
        ("broker", "begins with a scheme"),
        ("//broker:5672", "begins with a scheme"),
        ("1x:y", "begins with a scheme"),
        (None, "not a NoneType"),
        ("amqp:user:hush@broker", "write the URL as amqp://host:port"),
        ("failover:(amqp://u:hush@a,amqp://u:hush@b)", "one address"),
        ("embedded:?store", "name=value"),
        ("embedded:?=x", "name=value"),
        ("embedded:?store=a&store=b", "'store' twice"),
    ],
)
def test_malformed_urls_say_what_to_write(url: Any, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as caught:
        parse_url(url)
    assert "hush" not in str(caught.value)


def test_a_registered_backend_is_found_until_it_is_unregistered() -> None:
    backend: Any = object()
    register("mine-x", backend)
    assert find_backend("mine-x") is backend
    unregister("mine-x")
    unregister("mine-x")
    with pytest.raises(ConfigurationError, match=r"unknown scheme 'mine-x'; there is: .*embedded"):
        find_backend("mine-x")


def test_a_known_scheme_without_a_backend_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"no backend for stomp\+ssl: yet; there is: .*embedded"):
        find_backend("stomp+ssl")


def test_a_backend_that_cannot_be_imported_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("amqp", "no_such_module_of_ours:Backend", "jmsclient.backends")
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [broken])
    monkeypatch.setattr(registry, "_registered", {})
    with pytest.raises(ConfigurationError, match=r"amqps: is not installed .*pip install 'jmsclient\[amqp\]'"):
        find_backend("amqps")


def test_a_backend_serves_all_its_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("amqp", f"{__name__}:TwoSchemes", "jmsclient.backends")
    monkeypatch.setattr(EntryPoint, "load", lambda self: TwoSchemes)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point])
    monkeypatch.setattr(registry, "_registered", {})
    assert isinstance(find_backend("amqps"), TwoSchemes)
    assert find_backend("amqp") is find_backend("amqps")


class TwoSchemes:
    schemes = ("amqp", "amqps")
