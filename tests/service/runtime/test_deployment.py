"""The service as it is operated: tokens, logs, metrics, a budget of memory, slow readers, and its end."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.conftest import Server, started
from tests.service.server.test_raw_connections import read_reply

TOKEN = "a-token-that-nobody-may-see"
ORIGIN = "https://page.example"
BUDGET = 8 << 20
OPTIONS = {
    "--access-log": "true",
    "--body-seconds": "2",
    "--cors-origins": f"https://other.example, {ORIGIN}",
    "--docs": "false",
    "--drain-seconds": "0",
    "--log-format": "json",
    "--memory-bytes": str(BUDGET),
}
PATH = "/v1/npy/quantize?output_type=%21quant.uniform%3Ci8%3Af32%2C0.5%3E"


def npy(elements: int, dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones(elements, dtype))
    return file.getvalue()


@dataclass(frozen=True)
class Operated:
    """A running service, its log and a client that has a token."""

    server: Server
    log: Path
    client: httpx.Client

    def metrics(self) -> dict[str, float]:
        lines = self.client.get("/metrics").text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def wait_for(self, name: str, value: float) -> None:
        """Wait until a metric has a value."""
        deadline = time.monotonic() + 30
        while self.metrics()[name] != value:
            assert time.monotonic() < deadline, (name, self.metrics()[name])
            time.sleep(0.05)


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    folder = tmp_path_factory.mktemp("operated")
    tokens = folder / "tokens"
    tokens.write_text(f"# one\n{TOKEN}\n")
    arguments = [part for pair in OPTIONS.items() for part in pair]
    with (
        started(folder / "log", *arguments, "--tokens-file", str(tokens)) as (server, _),
        httpx.Client(
            base_url=server.url, timeout=60, verify=False, headers={"authorization": f"Bearer {TOKEN}"}
        ) as client,
    ):
        yield Operated(server, folder / "log", client)


def test_tokens_are_asked_for(operated: Operated) -> None:
    for path in ("/v1/info", "/metrics", "/nothing"):
        reply = httpx.get(operated.server.url + path, verify=False)
        assert (reply.status_code, reply.json()["code"]) == (401, "unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.headers["x-request-id"] == reply.json()["request_id"]
    for path in ("/healthz", "/v2/health/live", "/v2/health/ready"):
        assert httpx.get(operated.server.url + path, verify=False).status_code == 200
    assert operated.client.get("/v1/info").status_code == 200


def test_what_is_switched_off_is_not_there(operated: Operated) -> None:
    for path in ("/docs", "/openapi.json", "/docs/assets/favicon.png"):
        assert operated.client.get(path).status_code == 404


def test_pages_of_the_listed_origins_may_call(operated: Operated) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}
    for origin, allowed in ((ORIGIN, True), ("https://evil.example", False)):
        # A preflight has no token.
        reply = httpx.options(operated.server.url + "/v1/quantize", headers={"origin": origin, **asked}, verify=False)
        assert (reply.status_code == 200) is allowed
        if not allowed:
            assert (reply.status_code, reply.json()["code"]) == (403, "cross_origin")
            assert reply.headers["content-type"] == "application/problem+json"
        assert (reply.headers.get("access-control-allow-origin") == origin) is allowed
        reply = operated.client.get("/v1/info", headers={"origin": origin})
        assert (reply.headers.get("access-control-allow-origin") == origin) is allowed


def test_metrics_count_what_was_done(operated: Operated) -> None:
    before = operated.metrics()
    assert operated.client.post(PATH, content=npy(1000)).status_code == 200
    body = {"input": {"type": "tensor<2xf32>", "values": [1.0, 1000.0]}, "output_type": "!quant.uniform<i4:f32, 1.0>"}
    assert operated.client.post("/v1/quantize", json=body).status_code == 200
    given = {"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 1e6]}
    inference = {"inputs": [given], "parameters": {"output_type": "!quant.uniform<i8:f32, 1.0>", "profile": "onnx"}}
    assert operated.client.post("/v2/models/quantize/infer", json=inference).status_code == 200
    assert operated.client.post("/v1/secret-path", content=b"x").status_code == 404
    after = operated.metrics()

    def grown(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert grown('requant_requests_total{code="200",method="POST",route="/v1/npy/quantize"}') == 1
    assert grown('requant_requests_total{code="200",method="POST",route="/v2/models/{model}/infer"}') == 1
    assert grown('requant_requests_total{code="404",method="POST",route="unmatched"}') == 1
    assert grown('requant_bytes_total{direction="in",route="/v1/npy/quantize"}') == len(npy(1000))
    assert grown('requant_elements_total{element="i8",operation="quantize"}') == 1003
    assert grown('requant_elements_total{element="i4",operation="quantize"}') == 2
    assert grown('requant_saturated_total{operation="quantize"}') == 2
    assert grown('requant_work_seconds_count{operation="quantize",profile="stablehlo"}') == 2
    assert after["requant_ready"] == 1
    assert after["requant_memory_budget_bytes"] == BUDGET
    assert after["requant_inflight_bytes"] == 0
    assert after["requant_inflight_requests"] == 1
    assert "secret" not in " ".join(after)


def test_logs_have_ids_and_nothing_of_requests(operated: Operated) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"x-request-id": "an-id-of-mine", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    secret = "!quant.SECRET<i8>"
    body = {"text": secret}
    assert operated.client.post("/v1/types/parse", json=body, headers=headers).status_code == 422
    assert operated.client.post("/v1/types/parse?SECRET=1", json=body).status_code == 422
    operated.client.get("/SECRET", headers={"x-request-id": "SECRET \x7f"})
    operated.client.get("/healthz")
    operated.client.get("/v1/info", headers={"x-request-id": "the-last"})
    deadline = time.monotonic() + 30
    while "the-last" not in operated.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lines = operated.lines()
    (line,) = [line for line in lines if line.get("request_id") == "an-id-of-mine"]
    assert (line["route"], line["status"], line["trace_id"]) == ("/v1/types/parse", 422, trace)
    assert isinstance(line["seconds"], float)
    assert line["received"] == len(json.dumps(body, separators=(",", ":")))
    text = operated.log.read_text()
    assert "SECRET" not in text
    assert TOKEN not in text
    assert not [line for line in lines if line.get("route") in ("/healthz", "/metrics")]


def test_times_of_a_reply(operated: Operated) -> None:
    timing = operated.client.post(PATH, content=npy(200_000)).headers["server-timing"]
    found = {name: float(value) for name, value in re.findall(r"(\w+);dur=([0-9.]+)", timing)}
    assert list(found) == ["recv", "wait", "work", "total"]
    assert found["work"] > 0
    assert 0 < found["recv"] <= found["total"] < 60_000


@pytest.mark.parametrize("wish", ["sha-256", "sha-256=10", "sha-512=3, SHA-256=1", "sha-256=0", "sha-512", "unixsum=1"])
def test_digests_are_made_for_those_who_ask(operated: Operated, wish: str) -> None:

    wide = "/v1/npy/dequantize?input_type=%21quant.uniform%3Ci8%3Af32%2C0.5%3E"
    bodies = {PATH: npy(100), wide: npy(600_000, "|i1"), "/v1/quantize": None}
    for path, content in bodies.items():
        call = {"input": {"type": "tensor<1xf32>", "values": [1.0]}, "output_type": "!quant.uniform<i8:f32, 1.0>"}
        sent = {"json": call} if content is None else {"content": content}
        reply = operated.client.post(path, headers={"want-repr-digest": wish}, **sent)
        assert reply.status_code == 200
        expected = f"sha-256=:{base64.b64encode(hashlib.sha256(reply.content).digest()).decode()}:"
        wanted = "sha-256" in wish.lower() and wish != "sha-256=0"
        assert reply.headers.get("repr-digest") == (expected if wanted else None)


def test_more_than_the_whole_budget_is_a_limit(operated: Operated) -> None:
    wide = "/v1/npy/dequantize?input_type=%21quant.uniform%3Ci8%3Af32%2C0.5%3E"
    for path, content in ((PATH, npy(9 << 20)), (wide, npy(9 << 20, "|i1"))):
        reply = operated.client.post(path, content=content)
        assert (reply.status_code, reply.json()["code"], reply.json()["limit"]) == (413, "limit_exceeded", BUDGET)
    # Of this only the result is kept, which is a quarter.
    assert operated.client.post(PATH, content=npy(7 << 20)).status_code == 200
    operated.wait_for("requant_inflight_bytes", 0)


def head(path: str, length: int) -> bytes:
    fields = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", f"Content-Length: {length}"]
    return "\r\n".join([*fields, "", ""]).encode()


def test_what_does_not_fit_waits_and_is_refused(operated: Operated) -> None:
    """A slow upload holds most of the budget. What fits beside it is served, what does not is told to come again."""
    wide = "/v1/npy/dequantize?input_type=%21quant.uniform%3Ci8%3Af32%2C0.5%3E"
    content = npy(6 << 20, "|i1")
    refused = 'requant_admission_rejected_total{reason="waited_too_long"}'
    before = operated.metrics().get(refused, 0)
    with operated.server.connect() as slow:
        slow.sendall(head(wide, len(content)) + content[:200_000])
        operated.wait_for("requant_inflight_bytes", 6 << 20)
        reply = operated.client.post(wide, content=content)
        assert (reply.status_code, reply.json()["code"], reply.headers["retry-after"]) == (503, "overloaded", "1")
        assert operated.client.post(PATH, content=npy(1000)).status_code == 200
        assert operated.metrics()[refused] == before + 1
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(operated.client.post, wide, content=content)
            time.sleep(0.05)
            slow.close()
            assert waiting.result().status_code == 200
    operated.wait_for("requant_inflight_bytes", 0)


def received_until_the_end(connection: socket.socket) -> int:
    """How many bytes still come until the other side hangs up."""
    count = 0
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            count += len(data)
    return count


@pytest.mark.exhaustive
def test_who_does_not_read_a_reply_loses_it(operated: Operated) -> None:
    """The reply holds its memory while it waits for the client, and that is not for ever."""
    wide = "/v1/npy/dequantize?input_type=%21quant.uniform%3Ci8%3Af32%2C0.5%3E"
    content = npy(5 << 20, "|i1")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", operated.server.port))
        began = time.monotonic()
        deaf.sendall(head(wide, len(content)) + content)
        operated.wait_for("requant_inflight_bytes", 5 << 20)
        operated.wait_for("requant_inflight_bytes", 0)
        assert 1 < time.monotonic() - began < 25
        assert received_until_the_end(deaf) < 20 << 20


@pytest.mark.exhaustive
def test_a_file_of_tokens_that_is_none_ends_the_start(tmp_path: Path) -> None:

    empty = tmp_path / "tokens"
    empty.write_text("# none\n")
    for path in (empty, tmp_path / "absent"):
        command = [sys.executable, "-m", "requant", "serve", "--tokens-file", str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 2
        assert ended.stderr.splitlines()[-1].startswith("--tokens-file: ")


@pytest.mark.exhaustive
def test_the_end_is_gentle(tmp_path: Path) -> None:
    """SIGTERM: not ready first, work is still done, each reply the last of its connection; what is under way ends."""
    content = npy(300_000)
    with started(tmp_path / "log", "--drain-seconds", "1.5") as (server, process), server.connect() as slow:
        slow.sendall(head(PATH, len(content)) + content[:1000])
        kept = httpx.Client(base_url=server.url, verify=False)
        assert kept.get("/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while kept.get("/v2/health/ready").status_code == 200:
            assert time.monotonic() < deadline
        assert kept.get("/healthz").json() == {"status": "draining"}
        assert kept.get("/v2/health/live").status_code == 200
        reply = kept.post(PATH, content=npy(1000))
        assert (reply.status_code, reply.headers["connection"]) == (200, "close")
        time.sleep(2.5)  # the pause is over, and nothing more is accepted
        with pytest.raises(OSError, match="refused"):
            server.connect()
        assert process.poll() is None
        slow.sendall(content[1000:])
        status, headers, body = read_reply(slow)
        assert (status, headers["connection"], len(body)) == (200, "close", 300_128)
        assert process.wait(timeout=30) == 0
