"""The TLS certificate: which files are refused, and what a handshake gets before and after they are read again."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from requant_service.runtime.credentials import Certificate
from requant_service.runtime.settings import SettingError
from tests.support.certificates import TestCertificate, make_certificate


@pytest.fixture
def files(tmp_path: Path) -> TestCertificate:
    return make_certificate(tmp_path / "first")


def issuer_seen(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """The certificate that a client gets in a handshake, as DER. Both sides in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for side in (theirs, ours) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = theirs.getpeercert(binary_form=True)
    assert found is not None
    return found


def der(files: TestCertificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(files.certificate.read_text())


def without_certificate(files: TestCertificate) -> None:
    files.certificate.unlink()


def certificate_is_a_folder(files: TestCertificate) -> None:
    files.certificate.unlink()
    files.certificate.mkdir()


def certificate_is_a_key(files: TestCertificate) -> None:
    files.certificate.write_text(files.key.read_text())


def certificate_is_cut(files: TestCertificate) -> None:
    files.certificate.write_text(files.certificate.read_text()[:200])


def certificate_is_endless(files: TestCertificate) -> None:
    files.certificate.write_text(files.certificate.read_text() + "\n" * 2_000_000)


def without_key(files: TestCertificate) -> None:
    files.key.unlink()


def key_is_a_certificate(files: TestCertificate) -> None:
    files.key.write_text(files.certificate.read_text())


def key_is_of_another(files: TestCertificate) -> None:
    files.key.write_text(make_certificate(files.key.parent / "other").key.read_text())


def key_is_encrypted(files: TestCertificate) -> None:
    files.key.write_text(make_certificate(files.key.parent / "other", password="secret").key.read_text())


CHANGES = [
    (without_certificate, "tls_certificate", "does not exist"),
    (certificate_is_a_folder, "tls_certificate", "not a regular file"),
    (certificate_is_a_key, "tls_certificate", "no certificate"),
    (certificate_is_cut, "tls_certificate", "cannot be used"),
    (certificate_is_endless, "tls_certificate", "more than"),
    (without_key, "tls_key", "does not exist"),
    (key_is_a_certificate, "tls_key", "no private key"),
    (key_is_of_another, "tls_key", "is not the key of"),
    (key_is_encrypted, "tls_key", "is encrypted"),
]


@pytest.mark.parametrize(("change", "setting", "says"), CHANGES)
def test_files_that_cannot_be_used(
    files: TestCertificate,
    change: Callable[[TestCertificate], None],
    setting: str,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    running, before = Certificate(files.certificate, files.key), der(files)
    client = files.client_context()
    change(files)
    with pytest.raises(SettingError, match=says) as caught:
        Certificate(files.certificate, files.key)
    assert caught.value.setting == setting
    with caplog.at_level(logging.INFO):
        running.reread()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"Certificate not reloaded, the old one stays in use: {setting}: ")
    assert "-----BEGIN" not in record.getMessage()
    assert issuer_seen(running.context, client) == before


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_a_new_certificate_takes_the_place_of_the_old_one(files: TestCertificate, kind: str, tmp_path: Path) -> None:
    """Also one with another kind of key, for a client that would rather have the old kind."""
    running = Certificate(files.certificate, files.key)
    new = make_certificate(tmp_path / "new", kind=kind)
    new.certificate.replace(files.certificate)
    new.key.replace(files.key)
    client = files.client_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    if kind == "rsa":
        client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256")
    running.reread()
    assert issuer_seen(running.context, client) == der(files)


def test_tls_1_2_is_the_oldest_version(files: TestCertificate) -> None:
    """Of the context that a handshake begins with, and of that with which it goes on."""
    running = Certificate(files.certificate, files.key)
    for context in (running.context, running.current.context):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
