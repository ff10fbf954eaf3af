"""An authority of the tests' own, and keys for a broker and for a client, as PEM and as PKCS12."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .launching import need

STORE_PASSWORD = "changeit"


def make_certificates(folder: Path, user: str) -> Path:
    """`ca.pem`, `server.p12` and `trust.p12` for a broker on localhost, `client.pem` and `client.key` for a user. Raises
    NotAvailable."""
    openssl, keytool = need("openssl"), need("keytool")
    folder.mkdir(parents=True, exist_ok=True)

    def run(*words: str) -> None:
        subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=100)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    signs = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]  # as Python 3.13 wants it of an authority
    run(openssl, "req", "-x509", *key, *signs, "-days", "30", "-subj", "/CN=tests", "-keyout", "ca.key", "-out", "ca.pem")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n"
    (folder / "names.ext").write_text(names, encoding="ascii")
    for name, subject in (("server", "localhost"), ("client", user)):
        run(openssl, "req", *key, "-subj", f"/CN={subject}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        run(
            openssl, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
            "-extfile", "names.ext", "-out", f"{name}.pem",
        )  # fmt: skip
    run(
        openssl, "pkcs12", "-export", "-in", "server.pem", "-inkey", "server.key", "-certfile", "ca.pem", "-name", "server",
        "-passout", f"pass:{STORE_PASSWORD}", "-out", "server.p12",
    )  # fmt: skip
    run(
        keytool, "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", "trust.p12", "-storetype", "PKCS12",
        "-storepass", STORE_PASSWORD,
    )  # fmt: skip
    return folder
