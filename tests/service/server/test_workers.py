"""A service of several worker processes is one service: for its clients, for its operator, and for the system."""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import numpy as np
import pytest

from tests.conftest import ROOT, Server, free_port, started
from tests.support.cases import EXHAUSTIVE
from tests.support.oip_wire import Input, infer, read
from tests.support.processes import children, is_running, open_sockets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

WORKERS = 3
I8 = "!quant.uniform<i8:f32, 0.5:3>"
BODY = {
    "input": {"type": "tensor<4xf32>", "values": [1.5, -2.0, 3.25, 400.0]},
    "output_type": I8,
    "profile": "onnx",
}
SHARED = "/v2/systemsharedmemory"


def settle(condition: Any, seconds: float = 10.0) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, subprocess.Popen[bytes]]]:
    options = ("--workers", str(WORKERS), "--shared-memory", "true", "--drain-seconds", "0")
    with started(tmp_path_factory.mktemp("workers") / "log", *options) as made:
        yield made


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def is_ready(url: str) -> bool:
    """Return whether the service is ready. A worker that has just been killed may have had the question."""
    try:
        return httpx.get(f"{url}/healthz", verify=False).status_code == 200
    except httpx.TransportError:
        return False


def quantized(url: str) -> list[int]:
    reply = httpx.post(f"{url}/v1/quantize", json=BODY, verify=False)
    assert reply.status_code == 200, reply.text
    values: list[int] = reply.json()["output"]["values"]
    return values


def counted(text: str, name: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


class TestConnections:
    def test_each_worker_gets_as_many_as_the_others(self, service: tuple[Server, subprocess.Popen[bytes]]) -> None:
        server, process = service
        workers = children(process.pid)
        assert len(workers) == WORKERS
        settle(lambda: len({open_sockets(each) for each in workers}) == 1)
        for count in (3, 9, 8, 32):
            before = {each: open_sockets(each) for each in workers}
            connections = [server.connect() for _ in range(count)]
            for each in connections:
                each.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert each.recv(100).startswith(b"HTTP/1.1 200")
            shares = sorted(open_sockets(each) - before[each] for each in workers)
            assert shares[-1] - shares[0] <= 1
            assert sum(shares) == count
            for each in connections:
                each.close()
            settle(lambda was=before: {each: open_sockets(each) for each in workers} == was)

    def test_any_answers_the_same(self, service: tuple[Server, subprocess.Popen[bytes]]) -> None:
        assert {tuple(quantized(service[0].url)) for _ in range(2 * WORKERS)} == {(6, -1, 9, 127)}

    def test_metrics_are_one_set(self, service: tuple[Server, subprocess.Popen[bytes]]) -> None:
        url = service[0].url
        name = 'requant_requests_total{code="200",method="POST",route="/v1/quantize"}'
        for _ in range(WORKERS):
            before = counted(httpx.get(f"{url}/metrics", verify=False).text, name)
            for _ in range(2 * WORKERS):
                quantized(url)
            text = httpx.get(f"{url}/metrics", verify=False).text
            assert counted(text, name) == before + 2 * WORKERS
        assert counted(text, "requant_ready ") == 1
        assert counted(text, "requant_workers ") == WORKERS
        assert counted(text, "requant_inflight_requests ") == 1


class TestSharedMemory:
    @pytest.fixture
    def key(self) -> Iterator[str]:
        path = Path("/dev/shm") / f"requant-test-{uuid4().hex}"
        path.write_bytes(np.arange(1024, dtype="<f4").tobytes())
        yield path.name
        path.unlink(missing_ok=True)

    def use(self, server: Server, region: str, offset: int = 0) -> httpx.Response:
        """Use a region, over a new connection."""
        document = {
            "parameters": {"output_type": I8},
            "inputs": [
                {
                    "name": "x",
                    "datatype": "FP32",
                    "shape": [4],
                    "parameters": {
                        "shared_memory_region": region,
                        "shared_memory_offset": offset,
                        "shared_memory_byte_size": 16,
                    },
                }
            ],
        }
        return httpx.post(f"{server.url}/v2/models/quantize/infer", json=document, verify=False)

    def test_a_region_is_known_to_all_from_its_registration_to_its_end(
        self, service: tuple[Server, subprocess.Popen[bytes]], key: str
    ) -> None:
        server, _ = service
        for turn in range(2 * WORKERS):
            body = {"key": key, "offset": 64 * turn, "byte_size": 64}
            made = httpx.post(f"{server.url}{SHARED}/region/r/register", json=body, verify=False)
            assert made.status_code == 200, made.text
            again = httpx.post(f"{server.url}{SHARED}/region/r/register", json=body, verify=False)
            assert again.json()["code"] == "shared_memory"
            for _ in range(WORKERS):
                used = self.use(server, "r")
                assert used.status_code == 200, used.text
                # The region of this turn, never one before it.
                assert used.json()["outputs"][0]["data"][0] == min(127, 32 * turn + 3)
            gone = httpx.post(f"{server.url}{SHARED}/region/r/unregister", verify=False)
            assert gone.status_code == 200, gone.text
            for _ in range(WORKERS):
                assert self.use(server, "r").json()["code"] == "unknown_name"

    def test_it_outlives_its_name_and_the_worker_that_registered_it(
        self, service: tuple[Server, subprocess.Popen[bytes]], key: str
    ) -> None:
        server, process = service
        body = {"key": key, "offset": 0, "byte_size": 4096}
        assert httpx.post(f"{server.url}{SHARED}/region/kept/register", json=body, verify=False).status_code == 200
        (Path("/dev/shm") / key).unlink()
        for worker in children(process.pid):
            os.kill(worker, signal.SIGKILL)
            settle(lambda gone=worker: gone not in children(process.pid) and len(children(process.pid)) == WORKERS)
            settle(lambda: is_ready(server.url))
            assert self.use(server, "kept", 16).json()["outputs"][0]["data"] == [11, 13, 15, 17]
        listed = httpx.get(f"{server.url}{SHARED}/status", verify=False).json()
        assert [each["name"] for each in listed] == ["kept"]
        assert httpx.post(f"{server.url}{SHARED}/unregister", verify=False).status_code == 200
        assert httpx.get(f"{server.url}{SHARED}/status", verify=False).json() == []


class TestEnds:
    def test_a_worker_that_dies_is_replaced_and_its_neighbours_answer_on(
        self, service: tuple[Server, subprocess.Popen[bytes]]
    ) -> None:
        server, process = service
        before = set(children(process.pid))
        requests = 'requant_requests_total{code="200",method="GET",route="/v2/health/live"}'
        with httpx.Client(
            base_url=server.url, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
        ) as client:
            for _ in range(9):
                client.get("/v2/health/live")
            shown = counted(client.get("/metrics").text, requests)
        kept = [server.connect() for _ in range(2 * WORKERS)]
        dying = min(before)
        os.kill(dying, signal.SIGKILL)
        settle(lambda: dying not in children(process.pid))
        lost = 0
        for each in kept:
            try:
                each.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                reply = each.recv(100)
            except ConnectionError:
                reply = b""
            lost += not reply
            assert reply == b"" or reply.startswith(b"HTTP/1.1 200")
        # A connection that nobody had received yet is that of another worker by then.
        assert lost <= 2
        settle(lambda: len(children(process.pid)) == WORKERS)
        settle(lambda: is_ready(server.url))
        assert len(before - set(children(process.pid))) == 1
        text = httpx.get(f"{server.url}/metrics", verify=False).text
        assert counted(text, requests) >= shown
        assert counted(text, "requant_worker_restarts_total ") >= 1
        for each in kept:
            each.close()

    @pytest.mark.sample(1)
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_all_after_what_is_under_way(self, number: signal.Signals, tmp_path: Path) -> None:
        log = tmp_path / "log"
        with ExitStack() as stack, started(log, "--workers", "2", "--drain-seconds", "0.3") as (server, process):
            workers = children(process.pid)
            stack.enter_context(busy := server.connect())
            busy.sendall(b"POST /v1/quantize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            text = json.dumps(BODY).encode()
            busy.sendall(b"Content-Length: %d\r\n\r\n" % len(text))
            time.sleep(0.1)
            process.send_signal(number)
            time.sleep(0.1)
            busy.sendall(text)
            assert b"HTTP/1.1 200" in busy.recv(4096)
            assert process.wait(timeout=20) == 0
            settle(lambda: not any(map(is_running, workers)))
        assert "ended with" not in log.read_text()

    def test_no_worker_outlives_the_supervisor(self, tmp_path: Path) -> None:
        with (tmp_path / "log").open("wb") as output:
            port = free_port()
            command = [sys.executable, "-m", "requant", "serve", "--port", str(port), "--workers", "2"]
            with subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output) as process:
                settle(lambda: len(children(process.pid)) == 2, 60)
                workers = children(process.pid)
                process.kill()
                process.wait()
                settle(lambda: not any(map(is_running, workers)), 2)

    @pytest.mark.exhaustive
    def test_workers_that_never_start_end_the_service(self, tmp_path: Path) -> None:
        script = (
            "from requant_service.runtime import runtime\n"
            "from requant_service.server.worker import WorkerServer\n"
            "async def fail(self, sockets=None): raise OSError('no')\n"
            "WorkerServer.startup = fail\n"
            "from requant_service.main import main; main()"
        )
        command = [sys.executable, "-c", script, "--port", str(free_port()), "--workers", "2"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert re.search(r"5 workers ended before they were ready, the last with exit code 1\.", done.stderr)


@pytest.mark.exhaustive
def test_files_of_settings_are_read_again_by_all(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    first, second = "first-token-of-the-test", "second-token-of-the-test"
    tokens.write_text(first)
    port = free_port()
    options = ("--workers", "3", "--tokens-file", str(tokens), "--drain-seconds", "0", "--metrics-port", str(port))
    with started(tmp_path / "log", *options) as (server, process):

        def statuses(token: str) -> set[int]:
            headers = {"authorization": f"Bearer {token}"}
            url = f"{server.url}/v1/info"
            return {httpx.get(url, headers=headers, verify=False).status_code for _ in range(6)}

        assert statuses(first) == {200}
        tokens.write_text(second)
        process.send_signal(signal.SIGHUP)
        settle(lambda: statuses(second) == {200})
        assert statuses(first) == {401}
        # A worker that is started later knows it too.
        for worker in children(process.pid):
            os.kill(worker, signal.SIGKILL)
        settle(lambda: len(children(process.pid)) == 3)
        settle(lambda: is_ready(f"http://127.0.0.1:{port}"))
        assert statuses(second) == {200}


@pytest.mark.exhaustive
def test_unix_socket_tls_and_grpc_are_served_by_all(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    options = ("--workers", "2", "--uds", str(path), "--drain-seconds", "0", "--metrics-port", str(port := free_port()))
    with started(tmp_path / "log", *options, probes=f"http://127.0.0.1:{port}") as (_, process):
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://localhost") as client:
            for _ in range(4):
                assert client.post("/v1/quantize", json=BODY).json()["output"]["values"] == [6, -1, 9, 127]
        os.kill(children(process.pid)[0], signal.SIGKILL)
        settle(lambda: len(children(process.pid)) == 2)
        assert path.is_socket()
    assert not path.exists()


def test_a_large_tensor_does_not_delay_the_others(service: tuple[Server, subprocess.Popen[bytes]]) -> None:
    """One client sends large tensors, one after the other; small requests at other workers are answered meanwhile."""
    server, _ = service
    tensor = [Input("x", np.linspace(-50, 50, 8 << 20, dtype="<f4"))]
    parameters = {"output_type": I8, "profile": "onnx", "binary_data_output": True}
    # Halves are exact: 2x + 3, ties to even.
    expected = np.clip(np.rint(tensor[0].array.astype(np.float64) / 0.5) + 3, -128, 127).astype(np.int8)
    stop = threading.Event()
    wrong: list[str] = []

    def send() -> None:
        with httpx.Client(base_url=server.url, verify=False, timeout=60) as client:
            while not stop.is_set():
                (output,) = read(infer(client, "quantize", tensor, parameters=parameters)).outputs.values()
                if not np.array_equal(output, expected):
                    wrong.append("a large tensor")

    sender = threading.Thread(target=send)
    sender.start()
    try:
        connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(WORKERS)]
        seconds = []
        for _ in range(30):
            for each in connections:
                began = time.perf_counter()
                each.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert each.recv(1000).startswith(b"HTTP/1.1 200")
                seconds.append(time.perf_counter() - began)
        for each in connections:
            each.close()
    finally:
        stop.set()
        sender.join()
    assert not wrong
    assert sorted(seconds)[len(seconds) // 2] < 0.05


@pytest.mark.exhaustive
def test_killed_workers_lose_their_requests_and_nothing_else(tmp_path: Path) -> None:
    """Workers are killed at random under load. A client gets the whole right reply to its request, or none at all."""
    kills = 100 if EXHAUSTIVE else 5
    rng = random.Random(kills)
    options = ("--workers", str(WORKERS), "--memory-bytes", str(256 << 20), "--drain-seconds", "0")
    with started(tmp_path / "log", *options) as (server, process):
        descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        stop = threading.Event()
        wrong: list[str] = []
        answered, broken = [0] * 6, [0] * 6

        def ask(client: httpx.Client, place: int, count: int) -> None:
            # No two requests of the test are the same.
            first = 2 * count + place / 8
            values = np.arange(first, first + (200_000 if count % 8 == 7 else 100), dtype="<f4")
            content = npy(values)
            headers = {"x-request-id": f"client-{place}-{count}"}
            path = f"/v1/npy/quantize?output_type={quote('!quant.uniform<i16:f32, 0.125>')}&profile=onnx"
            reply = client.post(path, content=content, headers=headers)
            due = np.clip(np.rint(values.astype(np.float64) * 8), -(2**15), 2**15 - 1).astype("<i2")
            if reply.status_code == 503:
                return
            if reply.headers.get("x-request-id") != headers["x-request-id"] or not reply.content.endswith(
                due.tobytes()
            ):
                wrong.append(f"{headers['x-request-id']}: {reply.status_code} {reply.content[:100]!r}")
            answered[place] += 1

        def send(place: int) -> None:
            count = 0
            while not stop.is_set():
                with httpx.Client(base_url=server.url, verify=False, timeout=30) as client:
                    try:
                        while not stop.is_set():
                            count += 1
                            ask(client, place, count)
                    except httpx.TransportError:
                        broken[place] += 1

        senders = [threading.Thread(target=send, args=(place,)) for place in range(len(answered))]
        for each in senders:
            each.start()
        try:
            for _ in range(kills):
                time.sleep(rng.uniform(0.05, 1.0))
                settle(lambda: children(process.pid) != [])
                os.kill(rng.choice(children(process.pid)), signal.SIGKILL)
        finally:
            stop.set()
            for each in senders:
                each.join()
        assert not wrong
        assert min(answered) > kills
        # At most what the killed processes had of each client.
        assert sum(broken) <= 2 * kills * len(broken)
        settle(lambda: len(children(process.pid)) == WORKERS)
        settle(lambda: is_ready(server.url))
        text = httpx.get(f"{server.url}/metrics", verify=False).text
        assert counted(text, "requant_worker_restarts_total ") == kills
        assert counted(text, "requant_inflight_bytes ") == 0
        assert counted(text, "requant_waiting_requests ") == 0
        settle(lambda: len(list(Path(f"/proc/{process.pid}/fd").iterdir())) <= descriptors)
