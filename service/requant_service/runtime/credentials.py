"""Bearer tokens, and the TLS certificate with its key: files that are read at the start, and again on SIGHUP.

If they cannot be used then, nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from requant_service.runtime.settings import SettingError

_log = logging.getLogger("uvicorn.error")

SHORTEST_TOKEN = 16
_MAX_BYTES = 1 << 20


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """Return the tokens in a file. Raise OSError, or ValueError if there is none or one cannot be used.

    One token to a line; blank lines and lines that begin with `#` are skipped. With several tokens one can be replaced
    without a gap. A token is 16 or more printable ASCII characters.
    """
    with path.open("rb") as file:
        text = file.read(_MAX_BYTES + 1)
    if len(text) > _MAX_BYTES:
        raise ValueError(f"the file of tokens has more than {_MAX_BYTES} bytes")
    lines = [line.strip() for line in text.splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith(b"#"))
    if not tokens:
        raise ValueError("the file of tokens holds none")
    for number, token in enumerate(tokens, 1):
        if len(token) < SHORTEST_TOKEN or not all(33 <= byte <= 126 for byte in token):
            raise ValueError(
                f"token {number} is not {SHORTEST_TOKEN} or more printable ASCII characters without blanks"
            )
    return tokens


class Tokens:
    """The tokens of a file, as it was when it was last read. Raises what `read_tokens` raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = read_tokens(path)

    def reread(self) -> None:
        """Read the file again. If it cannot be used, keep the tokens and log why."""
        try:
            if not self._path.is_file():
                # Opening a pipe would wait for its other end.
                raise ValueError("the file is gone, or is not a regular file")
            self.known = read_tokens(self._path)
        except (OSError, ValueError) as error:
            _log.error("Tokens not reloaded, the old ones stay valid: %s.", error)
        else:
            _log.info("Tokens reloaded: %d.", len(self.known))


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
    """The certificate as it was when it was last read: `current`. Connections keep the one that they began with.

    Raises what `read_certificate` raises.

    `context` is that of the listening socket, which stays, `h2_context` that of the gRPC port. Each handshake continues
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


@contextmanager
def reread_on_sighup(rereads: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Call all of these on SIGHUP, if this is the event loop of the main thread.

    Without anything to read again, SIGHUP ends the service, as is the system's default.
    """

    def reread() -> None:
        for each in rereads:
            each()

    loop = asyncio.get_running_loop()
    try:
        if rereads:
            loop.add_signal_handler(signal.SIGHUP, reread)
    except (ValueError, RuntimeError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        if rereads:
            loop.remove_signal_handler(signal.SIGHUP)
