"""TLS over a socket, by Python's `ssl`: the engine gets a socket that is encrypted already, so how it was built does not matter.

Owns saying what is wrong with a certificate, theirs or ours, and with TLS on a plain port. Source: decision 10; issue section "Bad
input".
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from jmsclient.clock import Clock
from jmsclient.errors import ConfigurationError, ConnectionLostError, RequestTimeoutError
from jmsclient_amqp.settings import Settings

_CERTIFICATE_FIXES: Final = {
    10: "it has expired: the broker's certificate must be renewed",
    9: "it is not valid yet: compare the clocks of both machines",
    62: "it is for another host name: connect with a name that is in it",
    64: "it is for another address: connect with a name or address that is in it",
}
_WANTS_CERTIFICATE: Final = (
    "TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
)  # fmt: skip
_NOT_STRICT: Final = range(80, 95)
"""What only a strict check finds (OpenSSL's X509_V_ERR_…): Python 3.13 and later make one by default."""
_STRICT_FIX: Final = "Python checks it strictly: it, or its authority's certificate, must be issued anew with what is missing"
_UNKNOWN_AUTHORITY: Final = "nobody this machine trusts has signed it: name its authority with ?ca_file=FILE"


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Peer and name are verified, unless told not to. Raises ConfigurationError for files that cannot be read."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file, lambda: settings.key_password or "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        what = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        files = ", ".join(one for one in (settings.ca_file, settings.cert_file, settings.key_file) if one)
        raise ConfigurationError(f"the TLS files ({files}) cannot be used: {what}") from None
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def encrypted(plain: socket.socket, settings: Settings, clock: Clock, deadline: float | None) -> socket.socket:
    """TLS over that socket. Raises ConfigurationError, ConnectionLostError and RequestTimeoutError that say what to do."""
    context = tls_context(settings)
    bound(plain, settings, clock, deadline)
    try:
        return context.wrap_socket(plain, server_hostname=settings.host)
    except ssl.SSLCertVerificationError as error:
        otherwise = _STRICT_FIX if error.verify_code in _NOT_STRICT else _UNKNOWN_AUTHORITY
        fix = _CERTIFICATE_FIXES.get(error.verify_code, otherwise)
        raise ConfigurationError(f"{settings.peer}: its certificate is not accepted ({error.verify_message}); {fix}") from error
    except TimeoutError:
        raise RequestTimeoutError(
            f"{settings.peer} does not answer in TLS; if that port is one without TLS, write the URL as amqp://…"
        ) from None
    except ssl.SSLError as error:
        wanted = certificate_wanted(settings, error)
        if wanted is not None:
            raise wanted from error
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_MESSAGE"):
            raise ConfigurationError(f"{settings.peer} does not speak TLS on that port; for one without, write amqp://…") from error
        raise ConnectionLostError(f"{settings.peer}: no TLS connection: {error.reason or error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{settings.host!r} cannot be checked against a certificate: {error}") from None
    except OSError as error:
        raise ConnectionLostError(
            f"{settings.peer} closed the connection while TLS began ({error.strerror or type(error).__name__}); "
            "if that port is one without TLS, write the URL as amqp://…"
        ) from error


def certificate_wanted(settings: Settings, error: OSError | None) -> ConfigurationError | None:
    """What the broker says against our side of TLS, where it is that: before TLS is through, or right after."""
    if not isinstance(error, ssl.SSLError) or error.reason not in _WANTS_CERTIFICATE:
        return None
    why = error.reason.partition("ALERT_")[2].lower().replace("_", " ")
    if settings.lacks_certificate:
        return ConfigurationError(
            f"{settings.peer} wants a certificate of this client ({why}): name one with ?cert_file=FILE&key_file=FILE"
        )
    return ConfigurationError(
        f"{settings.peer} does not accept the certificate of this client, {settings.cert_file} ({why}): is it one that it knows?"
    )


def bound(connection: socket.socket, settings: Settings, clock: Clock, deadline: float | None) -> None:
    """What is done with it next takes no longer than is left. Raises RequestTimeoutError where nothing is."""
    left = clock.left(deadline)
    if left is not None and left <= 0:
        raise RequestTimeoutError(f"{settings.peer} did not finish the handshake in time")
    connection.settimeout(left)
