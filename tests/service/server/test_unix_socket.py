"""The service on a unix socket: what it makes of the path that it is given, and the same answers as on TCP."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import uvicorn

from requant_service.runtime.listening import UnixSocket
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings
from requant_service.server.servers import ListeningServer, MonitoringServer
from tests.conftest import free_port, started
from tests.service.server.test_read_timeouts import echo

QUANTIZE = "/v1/npy/quantize?profile=onnx&output_type=%21quant.uniform%3Ci32%3Af32%2C0.5%3E"


def connected(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(30)
    try:
        found.connect(str(path))
    except OSError:
        found.close()
        raise
    return found


def left_by_an_ended_process(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(path))
        ended.listen()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_mode_is_the_same_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path, before = tmp_path / "socket", os.umask(umask)
    try:
        made = UnixSocket(path)
    finally:
        os.umask(before)
    assert stat.filemode(path.stat().st_mode) == "srw-rw----"
    with pytest.raises(ConnectionRefusedError):  # before anybody listens
        connected(path)
    made.socket.close()
    made.unlink()
    assert not path.exists()
    made.unlink()


def test_a_socket_that_nobody_listens_on_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    left_by_an_ended_process(path)
    made = UnixSocket(path)
    made.socket.listen()
    connected(path).close()
    made.socket.close()


def test_another_file_in_its_place_is_not_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    made = UnixSocket(path)
    made.socket.close()
    path.rename(tmp_path / "moved")
    path.write_text("another's")
    made.unlink()
    assert path.read_text() == "another's"


def file(path: Path) -> None:
    path.write_text("content")


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_a_socket(path: Path) -> None:
    left_by_an_ended_process(path.with_name("other"))
    path.symlink_to("other")


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


@pytest.mark.parametrize("make", [file, folder, pipe, link_to_a_socket, link_to_nothing])
def test_what_is_no_socket_stays(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "socket"
    make(path)
    before = path.lstat()
    with pytest.raises(FileExistsError, match="is not a socket"):
        UnixSocket(path)
    assert path.lstat() == before


@pytest.mark.parametrize("backlog", [0, 10])
def test_a_socket_that_a_process_listens_on_stays(tmp_path: Path, backlog: int) -> None:
    """Also while no more connections fit in its queue."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(backlog)
        with connected(path):
            for _ in range(2):
                with pytest.raises(OSError, match="another process listens there") as caught:
                    UnixSocket(path)
                assert caught.value.errno == errno.EADDRINUSE
    assert path.is_socket()


@pytest.mark.parametrize(("name", "says"), [("a" * 200, "too long"), ("nowhere/socket", "No such file")])
def test_a_path_that_cannot_be_made(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(OSError, match=says):
        UnixSocket(tmp_path / name)


def reason_to_end(caplog: pytest.LogCaptureFixture, server: ListeningServer) -> str:
    """What a server logs that cannot listen."""

    async def start() -> None:
        if not server.config.loaded:
            server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup()

    with pytest.raises(SystemExit) as caught:
        asyncio.run(start())
    assert caught.value.code == 3
    return caplog.records[-1].getMessage()


def test_a_service_that_cannot_listen_names_the_setting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    config = uvicorn.Config(echo, uds=str(path), lifespan="off", log_config=None)
    said = reason_to_end(caplog, ListeningServer(config, Runtime(Settings())))
    assert said == f"uds: cannot listen on {path}: it exists and is not a socket."
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = uvicorn.Config(echo, port=port, lifespan="off", log_config=None)
        for setting, server in (
            ("port", ListeningServer(config, Runtime(Settings()))),
            ("metrics_port", MonitoringServer(echo, Runtime(Settings()), port, log_config=None)),
        ):
            assert reason_to_end(caplog, server).startswith(f"{setting}: cannot listen on http://127.0.0.1:{port}: ")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a running service listens."""
    folder = tmp_path_factory.mktemp("uds")
    path = folder / "socket"
    left_by_an_ended_process(path)
    port = free_port()
    arguments = ["--uds", str(path), "--head-seconds", "1", "--drain-seconds", "0", "--metrics-port", str(port)]
    with started(folder / "log", *arguments, probes=f"http://127.0.0.1:{port}") as (server, process):
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        yield path
        with connected(path) as waiting:
            process.terminate()
            assert process.wait(timeout=30) == 0
            assert waiting.recv(1 << 16)[:12] in (b"", b"HTTP/1.1 408")
    assert not path.exists()


def test_16_mb_in_each_direction(path: Path) -> None:
    x = np.arange((16 << 18) - 64, dtype=np.float32)
    np.save(file := io.BytesIO(), x)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=60) as client:
        reply = client.post(QUANTIZE, content=file.getvalue(), headers={"Content-Type": "application/octet-stream"})
    assert reply.status_code == 200
    assert (np.load(io.BytesIO(reply.content)) == 2 * x.astype(np.int32)).all()


@pytest.mark.exhaustive
def test_limits_and_timeouts_are_those_of_tcp(path: Path) -> None:
    long_path = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"a" * 40_000)
    for sent, status in ((long_path, b"431"), (b"GET /v1/info HT", b"408"), (b"HTTP\r\n", b"400")):
        with connected(path) as connection:
            connection.sendall(sent)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 " + status)
