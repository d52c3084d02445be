"""TLS certificates for tests, each its own issuer, made by the command `openssl`."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class TestCertificate:
    """The files of a certificate and of its key."""

    __test__ = False

    certificate: Path
    key: Path

    def client_context(self) -> ssl.SSLContext:
        """What a client needs that trusts this certificate and no other."""
        return ssl.create_default_context(cafile=str(self.certificate))


def make_certificate(folder: Path, *, kind: str = "ec", password: str | None = None) -> TestCertificate:
    """Make a certificate for localhost in a new folder. `kind`: `ec` or `rsa`."""
    folder.mkdir()
    made = TestCertificate(folder / "certificate.pem", folder / "key.pem")
    key = ["-newkey", "rsa:2048"] if kind == "rsa" else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    key += ["-noenc"] if password is None else ["-passout", f"pass:{password}"]
    command = ["openssl", "req", "-x509", "-days", "2", "-subj", "/CN=localhost", "-addext", _NAMES, *key]
    command += ["-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return made
