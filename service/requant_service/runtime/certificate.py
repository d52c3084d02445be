"""The TLS certificate and its key, read at the start and again on SIGHUP.

Files that cannot be used when they are read again change nothing. Connections keep the certificate that they began
with.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from requant_service.runtime.settings import SettingError

_log = logging.getLogger("uvicorn.error")

_MAX_BYTES = 1 << 20
_ENCRYPTED = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")


@dataclass(frozen=True, slots=True)
class CertificateContexts:
    """A server's TLS contexts with a certificate: for HTTP/1.1, and for HTTP/2."""

    context: ssl.SSLContext
    h2_context: ssl.SSLContext


def read_certificate(certificate: Path, key: Path) -> CertificateContexts:
    """Read a certificate and its key. Raise SettingError that names the file that cannot be used."""
    chain = _content("tls_certificate", certificate)
    if b"-----BEGIN CERTIFICATE-----" not in chain:
        raise SettingError("tls_certificate", f"{certificate} holds no certificate in PEM form")
    text = _content("tls_key", key)
    if any(mark in text for mark in _ENCRYPTED):
        raise SettingError("tls_key", f"{key} is encrypted; expected a private key without a password")
    if b"PRIVATE KEY-----" not in text:
        raise SettingError("tls_key", f"{key} holds no private key in PEM form")
    return CertificateContexts(_context(certificate, key, "http/1.1"), _context(certificate, key, "h2"))


def _context(certificate: Path, key: Path, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([protocol])
    try:
        # The password: OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingError("tls_key", f"{key} is not the key of {certificate}") from None
        raise SettingError("tls_certificate", f"{certificate} and {key} cannot be used: {error.reason}") from None
    return context


def _content(setting: str, path: Path) -> bytes:
    try:
        if not path.is_file():
            # To open a pipe would wait for its other end.
            raise SettingError(setting, f"{path} does not exist or is not a regular file")
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SettingError(setting, error) from None
    if len(content) > _MAX_BYTES:
        raise SettingError(setting, f"{path} has more than {_MAX_BYTES} bytes")
    return content


class Certificate:
    """The certificate as it was when it was last read: `current`. Raises what `read_certificate` raises.

    `context` is that of the listening socket, which stays, `h2_context` that of the gRPC port. Each handshake goes on
    with the context of the current certificate: in a context that loads a second certificate the first one stays, for
    clients that prefer its kind.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self.current = read_certificate(certificate, key)
        listening = read_certificate(certificate, key)
        self.context, self.h2_context = listening.context, listening.h2_context
        self.context.sni_callback = self._use_current
        self.h2_context.sni_callback = self._use_current_h2

    def _use_current(self, connection: ssl.SSLSocket | ssl.SSLObject, *_: object) -> None:
        connection.context = self.current.context

    def _use_current_h2(self, connection: ssl.SSLSocket | ssl.SSLObject, *_: object) -> None:
        connection.context = self.current.h2_context

    def reread(self) -> None:
        """Read the files again. If they cannot be used, keep the certificate and log why."""
        try:
            self.current = read_certificate(self._certificate, self._key)
        except SettingError as error:
            _log.error("Certificate not reloaded, the old one stays in use: %s: %s.", error.setting, error)
        else:
            _log.info("Certificate reloaded.")
