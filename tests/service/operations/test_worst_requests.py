"""The most expensive requests: each route and each model has one, and those whose clients left delay nobody."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from requant_service.oip.models.registry import MODELS
from tests.conftest import ROOT, Server, started
from tests.load.case import Case, noise, npy_case, tensor
from tests.load.worst_cases import cases
from tests.load.worst_requests import Measured, faults, post_paths, uncovered
from tests.support.cases import OF_THE_DAY

THREADS = 2


def test_each_route_and_model_has_a_case() -> None:
    assert uncovered([case.route for case in cases()], post_paths(), MODELS) == []


def test_what_has_no_case_is_named() -> None:
    paths = ["/v1/quantize", "/v1/add", "/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer"]
    routes = ["/v1/quantize", "/v2/models/quantize/infer", "/v2/models/a.b/versions/1/infer"]
    assert uncovered(routes, paths, ["quantize", "a.b"]) == ["/v1/add", "/v2/models/a.b/infer"]
    assert uncovered(routes[:2], paths[3:], ["quantize"]) == ["/v2/models/{model}/versions/{version}/infer"]
    assert set(post_paths()) > set(paths)


def test_what_is_refused_measures_nothing() -> None:
    case = npy_case("/v1/npy/quantize", "a few f32", lambda: noise((4,)))
    answered = [Measured(case, status, 0.1, 0.1, 0.1, 144, "") for status in (200, 413, 504)]
    assert [fault.split()[-1] for fault in faults(answered, ["/v1/add"])] == ["413", "504", "case"]
    assert faults(answered[:1], []) == []


@pytest.mark.exhaustive
def test_all_are_answered() -> None:
    """In six days."""
    command = [sys.executable, "-m", "tests.load.worst_requests", "--sixth", str(OF_THE_DAY % 6)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-4000:]


@pytest.fixture(scope="module")
def of_two_threads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log: Path = tmp_path_factory.mktemp("service") / "log"
    with started(log, "--threads", str(THREADS), "--drain-seconds", "0") as (running, _):
        yield running


def seconds(client: httpx.Client, case: Case) -> float:
    """How long the answer to a case takes."""
    body, headers = case.make()
    begun = time.perf_counter()
    reply = client.post(case.route, content=body, headers=headers, params=case.query)
    assert reply.status_code == 200, reply.text
    return time.perf_counter() - begun


@pytest.mark.exhaustive
def test_convolutions_whose_clients_left_delay_nobody(of_two_threads: Server) -> None:
    """As many of the most expensive ones as there are threads, and 400 KB of f32 that need a thread too."""
    (convolution,) = (case for case in cases() if (case.route, case.what) == ("/v1/conv2d", "one channel to 16"))
    call = {"input": tensor("tensor<100000xf32>", noise((100_000,))), "output_type": "!quant.uniform<i8:f32, 0.05:3>"}
    with httpx.Client(base_url=of_two_threads.url, timeout=120, verify=False) as client:
        client.post("/v1/quantize", json=call).raise_for_status()
        alone = seconds(client, convolution)
        body, _ = convolution.make()
        head = f"POST {convolution.route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        left = [of_two_threads.connect() for _ in range(THREADS)]
        for connection in left:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        # Both are under way, and far from done.
        time.sleep(alone / 6)
        for connection in left:
            connection.close()
        begun = time.perf_counter()
        reply = client.post("/v1/quantize", json=call)
        waited = time.perf_counter() - begun
    assert reply.status_code == 200
    assert waited < alone / 2
