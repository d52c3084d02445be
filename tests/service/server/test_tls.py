"""The service behind TLS: the same answers, limits and timeouts as on plain TCP, and the metrics port beside it."""

from __future__ import annotations

import http.client
import io
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.conftest import Server, free_port, started
from tests.support.cases import EXHAUSTIVE
from tests.support.certificates import TestCertificate, make_certificate

TOKEN = "a-token-for-the-service"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
HEAD_SECONDS = 1.0
QUANTIZE = "/v1/npy/quantize?profile=onnx&output_type=%21quant.uniform%3Ci32%3Af32%2C0.5%3E"


@dataclass(frozen=True)
class Secured:
    """A running service with TLS, a file of tokens and a metrics port."""

    server: Server
    process: subprocess.Popen[bytes]
    files: TestCertificate
    metrics_port: int
    grpc_port: int
    log: Path

    @property
    def monitoring(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}"

    def connect(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        context = context or self.files.client_context()
        return context.wrap_socket(self.server.connect(), server_hostname="localhost")

    def client(self, **headers: str) -> httpx.Client:
        trusted = self.files.client_context()
        return httpx.Client(base_url=self.server.url, verify=trusted, headers=headers, timeout=60)

    def grpc_health(self, credentials: grpc.ChannelCredentials | None) -> int:
        """What gRPC's health service says, with TLS or without. Raise RpcError."""
        address = f"localhost:{self.grpc_port}"
        channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
        with channel:
            status: int = HealthStub(channel).Check(HealthCheckRequest(), timeout=30).status
            return status

    def trusted(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.files.certificate.read_bytes())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    files, log = make_certificate(folder / "files"), folder / "log"
    metrics_port, grpc_port = free_port(), free_port()
    (folder / "tokens").write_text(TOKEN)
    arguments = ["--tls-certificate", str(files.certificate), "--tls-key", str(files.key)]
    arguments += ["--metrics-port", str(metrics_port), "--tokens-file", str(folder / "tokens"), "--docs-public", "true"]
    arguments += ["--head-seconds", str(HEAD_SECONDS), "--drain-seconds", "0", "--grpc-port", str(grpc_port)]
    with started(log, *arguments) as (server, process):
        yield Secured(server, process, files, metrics_port, grpc_port, log)


def until_closed(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    with connection:
        try:
            while data := connection.recv(1 << 16):
                found += data
        except OSError:  # a reset, or TLS that just ends
            pass
    return found


def npy(elements: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float32]], bytes]:
    x = np.arange(elements, dtype=np.float32)
    np.save(file := io.BytesIO(), x)
    return x, file.getvalue()


def test_many_mb_in_each_direction(secured: Secured) -> None:
    megabytes = 64 if EXHAUSTIVE else 8
    x, body = npy((megabytes << 18) - 64)
    with secured.client(**HEADERS) as client:
        reply = client.post(QUANTIZE, content=body, headers={"Content-Type": "application/octet-stream"})
    assert reply.status_code == 200
    assert len(reply.content) > (megabytes - 1) << 20
    assert (np.load(io.BytesIO(reply.content)) == 2 * x.astype(np.int32)).all()


@pytest.mark.exhaustive
def test_a_refusal_is_read_by_one_who_sends_everything_first(secured: Secured) -> None:
    with secured.connect() as connection:
        connection.sendall(
            b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000)
        )
        reply = until_closed(connection)
    assert reply.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close\r\n" in reply


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(secured: Secured, version: ssl.TLSVersion) -> None:
    context = secured.files.client_context()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with secured.connect(context) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", marks=pytest.mark.exhaustive),
        pytest.param(b"\x16\x03\x01", marks=pytest.mark.exhaustive),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_a_handshake_that_is_none_is_cut_off(secured: Secured, sent: bytes) -> None:
    connection = secured.server.connect()
    began = time.monotonic()
    connection.sendall(sent)
    assert b"HTTP" not in until_closed(connection)
    assert time.monotonic() - began < HEAD_SECONDS + 4


@pytest.mark.exhaustive
def test_read_timeouts_begin_after_the_handshake(secured: Secured) -> None:
    with secured.connect() as connection:
        connection.sendall(b"GET /v1/info HT")
        assert until_closed(connection).startswith(b"HTTP/1.1 408 ")


@pytest.mark.exhaustive
def test_tokens_and_what_is_open_without(secured: Secured) -> None:
    with secured.client() as client:
        open_paths = ["/healthz", "/v2/health/live", "/v2/health/ready", "/docs", "/openapi.json"]
        assert [client.get(path).status_code for path in open_paths] == [200] * 5
        assert client.get("/docs/assets/swagger-ui.css").status_code == 200
        assert [client.get(path).status_code for path in ("/v1/info", "/v2", "/docs/assets/x", "/docs/")] == [401] * 4
    with secured.client(**HEADERS) as client:
        assert [client.get(path).status_code for path in ("/v1/info", "/metrics")] == [200, 404]


def test_the_metrics_port(secured: Secured) -> None:
    with httpx.Client(base_url=secured.monitoring) as client:
        assert [client.get(path).status_code for path in ("/healthz", "/v2/health/live", "/v2/health/ready")] == [
            200
        ] * 3
        assert "requant_ready 1.0" in client.get("/metrics").text.splitlines()
        assert [client.get(path).status_code for path in ("/v1/info", "/v2", "/docs", "/")] == [404] * 4
        assert client.post("/metrics").status_code == 405
        assert client.get("/healthz", headers={"x": "a" * 20_000}).status_code == 431
        date = parsedate_to_datetime(client.get("/healthz").headers["date"])
        assert abs(time.time() - date.timestamp()) < 60


def test_grpc_takes_tls_alone(secured: Secured) -> None:
    assert secured.grpc_health(secured.trusted()) == HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError):
        secured.grpc_health(None)


def test_certificate_and_tokens_are_read_again_on_sighup(secured: Secured, tmp_path: Path) -> None:
    with secured.client(**HEADERS) as kept:
        assert kept.get("/v1/info").status_code == 200
        new = make_certificate(tmp_path / "new", kind="rsa")
        new.certificate.replace(secured.files.certificate)
        new.key.replace(secured.files.key)
        secured.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while "Certificate reloaded." not in secured.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "Tokens reloaded: 1." in secured.log.read_text()
        # The connection that is there stays; a new one has the new certificate.
        assert kept.get("/v1/info").status_code == 200
    with secured.client(**HEADERS) as client:
        assert client.get("/v1/info").status_code == 200
    assert secured.grpc_health(secured.trusted()) == HealthCheckResponse.SERVING


@pytest.mark.exhaustive
def test_the_end_waits_for_no_connection_that_is_idle_and_for_the_last_request(tmp_path: Path) -> None:
    files, metrics_port = make_certificate(tmp_path / "files"), free_port()
    arguments = ["--tls-certificate", str(files.certificate), "--tls-key", str(files.key)]
    arguments += ["--metrics-port", str(metrics_port), "--drain-seconds", "0"]
    context = files.client_context()
    with started(tmp_path / "log", *arguments) as (server, process):

        def connected() -> ssl.SSLSocket:
            return context.wrap_socket(server.connect(), server_hostname="localhost")

        idle, busy, monitoring = connected(), connected(), socket.create_connection(("127.0.0.1", metrics_port))
        with idle, busy, monitoring:
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_status(idle) == 200
            _, body = npy(16)
            busy.sendall(
                f"POST {QUANTIZE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body[:-1]
            )
            # Its head is there when a later connection is served.
            httpx.get(f"{server.url}/healthz", verify=context)
            process.terminate()
            wait_until_refused(server.port)
            assert httpx.get(f"http://127.0.0.1:{metrics_port}/metrics").status_code == 200
            assert process.poll() is None
            busy.sendall(body[-1:])
            assert read_status(busy) == 200
            assert process.wait(timeout=10) == 0
            assert idle.recv(1) == b""


def read_status(connection: ssl.SSLSocket) -> int:
    """Read a whole response."""
    with http.client.HTTPResponse(connection) as reply:
        reply.begin()
        reply.read()
        return reply.status


def wait_until_refused(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.02)
    pytest.fail("it still listens")
