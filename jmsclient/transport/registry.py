"""Finding a backend by the scheme of a URL, and taking the URL apart. No secret enters an error (O09)."""

from __future__ import annotations

from importlib.metadata import entry_points
from urllib.parse import parse_qsl, unquote

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.errors import ConfigurationError
from jmsclient.transport.contract import Backend, Endpoint

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
    """Take a URL apart: `scheme:address?parameters`, user information decoded once. Arguments win over the URL."""
    scheme, colon, rest = url.strip().partition(":")
    if not colon or not scheme.replace("+", "").replace("-", "").isalnum():
        raise ConfigurationError("a connection URL begins with a scheme, such as embedded: or amqp://host:5672")
    rest, _, query = rest.partition("?")
    slashes = "//" if rest.startswith("//") else ""
    authority, slash, path = rest[len(slashes) :].partition("/")
    if slashes and "@" in authority:
        user_information, _, authority = authority.rpartition("@")
        if "@" in user_information:
            raise ConfigurationError("the user name or password in the URL holds a raw @; percent-encode it as %40")
        user, _, secret = user_information.partition(":")
        username = username if username is not None else unquote(user) or None
        password = password if password is not None else unquote(secret) or None
    try:
        parameters = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError as error:
        raise ConfigurationError(f"the parameters of the {scheme}: URL are not key=value pairs") from error
    return Endpoint(
        scheme=scheme.lower(),
        address=slashes + authority + slash + path,
        parameters=parameters,
        username=username,
        password=password,
        client_id=client_id,
        clock=clock,
    )
