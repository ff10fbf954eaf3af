"""Finding a backend by the scheme of a URL, and taking the URL apart. No secret enters an error (O09)."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.metadata import entry_points
from urllib.parse import unquote

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.errors import ConfigurationError
from jmsclient.transport.contract import Backend, Endpoint
from jmsclient.transport.failover import NAMES, SCHEME, Places, is_failover, split_failover, tries_of

_GROUP = "jmsclient.backends"
_EXTRAS = {
    "amqp": "amqp",
    "amqps": "amqp",
    "stomp": "stomp",
    "stomp+ssl": "stomp",
    "redis": "redis",
    "rediss": "redis",
    "jvm": "jvm",
}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_RAW = re.compile(r"[\s#?/\[\]]|%(?![0-9A-Fa-f]{2})")  # what RFC 3986 wants encoded in user information
_ENCODE = (
    "a reserved character stands raw in the URL: percent-encode it in the user name, the password and after the host, "
    "such as @ as %40, / as %2F, # as %23, ? as %3F, % as %25, a space as %20"
)
_registered: dict[str, Backend] = {}


def register(scheme: str, backend: Backend) -> None:
    """Have URLs with `scheme` served by `backend`, for tests and for programs that bring a backend of their own."""
    _registered[scheme] = backend


def unregister(scheme: str) -> None:
    """Undo `register`; a scheme that is not registered is no error."""
    _registered.pop(scheme, None)


def find_backend(scheme: str) -> Backend:
    """The backend of a scheme. Raises ConfigurationError that says what to install or what schemes there are."""
    if scheme in _registered:
        return _registered[scheme]
    points = {point.name: point for point in entry_points(group=_GROUP)}
    name = _EXTRAS.get(scheme, scheme)
    if name in points:
        try:
            backend: Backend = points[name].load()()
        except ImportError as error:
            raise ConfigurationError(
                f"the backend for {scheme}: is not installed ({error}); run: pip install 'jmsclient[{name}]'"
            ) from error
        for one in (scheme, *backend.schemes):
            _registered.setdefault(one, backend)
        return backend
    if scheme in _EXTRAS:
        raise ConfigurationError(f"this version of jmsclient has no backend for {scheme}: yet; there is: {', '.join(points)}")
    raise ConfigurationError(f"unknown scheme {scheme!r}; there is: {', '.join(sorted({*points, *_registered}))}")


def parse_url(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    client_id: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Endpoint:
    """Take a URL apart: `scheme:address?parameters`, user information and values decoded once. Arguments win over the URL.

    Raises ConfigurationError, which never repeats what could be a password: where a reserved character stands raw in the user
    information, the parts cannot be told from each other.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"a connection URL is a text, not a {type(url).__name__}")
    scheme, colon, rest = url.strip().partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise ConfigurationError("a connection URL begins with a scheme, such as embedded: or amqp://host:5672")
    scheme = scheme.lower()
    slashes = "//" if rest.startswith("//") else ""
    if not slashes and (scheme in _EXTRAS and scheme != "jvm"):
        raise ConfigurationError(f"write the URL as {scheme}://host:port")
    rest, _, query = rest.partition("?")
    if not slashes and "://" in rest:
        raise ConfigurationError(f"{scheme}: takes one address here, not a list of URLs")
    authority, slash, path = rest[len(slashes) :].partition("/")
    if slashes:
        user_information, at, authority = authority.rpartition("@")
        if "@" in user_information + path + query or (at and _RAW.search(user_information)):
            raise ConfigurationError(_ENCODE)
        user, _, secret = user_information.partition(":")
        username = username if username is not None else _decoded(user) or None
        password = password if password is not None else _decoded(secret) or None
    return Endpoint(
        scheme=scheme,
        address=slashes + authority + slash + path,
        parameters=_parameters(scheme, query),
        username=username,
        password=password,
        client_id=client_id,
        clock=clock,
    )


def parse_places(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    client_id: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Places:
    """As `parse_url`, for one URL or `failover:(url,url)?parameters`. A networked one is tried again when it is lost unless it says
    `reconnect=no`; one that may be in this process (`embedded:`) only in a list, or where it says `reconnect=yes`."""

    def one(text: str) -> Endpoint:
        return parse_url(text, username=username, password=password, client_id=client_id, clock=clock)

    if not is_failover(url):
        return places_of(one(url))
    urls, query = split_failover(url)
    parameters = _parameters(SCHEME, query)
    for name in parameters:
        if name not in NAMES:
            raise ConfigurationError(f"failover: has no parameter {name!r}, only {', '.join(NAMES)}; others belong to its URLs")
    endpoints = tuple(one(text) for text in urls)
    if any(name in NAMES for endpoint in endpoints for name in endpoint.parameters):
        raise ConfigurationError(f"{', '.join(NAMES)} are for all places of a failover URL: write them after the last bracket")
    return Places(endpoints=endpoints, tries=tries_of(parameters, on=True))


def places_of(endpoint: Endpoint) -> Places:
    """The one place of a plain URL, without the parameters that are not its backend's."""
    tries = tries_of(endpoint.parameters, on=endpoint.scheme in _EXTRAS)
    if any(name in endpoint.parameters for name in NAMES):
        rest = {name: value for name, value in endpoint.parameters.items() if name not in NAMES}
        endpoint = replace(endpoint, parameters=rest)
    return Places(endpoints=(endpoint,), tries=tries)


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ConfigurationError(_ENCODE) from None  # the cause would show the text


def _parameters(scheme: str, query: str) -> dict[str, str]:
    """The pairs after `?`. A `+` stays a `+`: file names and passwords may hold one."""
    parameters: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        name = _decoded(name)
        if not equals or not name:
            raise ConfigurationError(f"the parameters of the {scheme}: URL are not name=value pairs joined by &")
        if name in parameters:
            raise ConfigurationError(f"the {scheme}: URL gives its parameter {name!r} twice")
        parameters[name] = _decoded(value)
    return parameters
