"""Metrics and logs: what is counted, that labels are closed, and that nothing of a request is told."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from requant_service.middleware.request_lifecycle import RequestLifecycle
from requant_service.runtime.logs import JsonLines
from requant_service.runtime.metrics import Histogram, Metrics
from requant_service.runtime.request_context import HeaderFields, RequestContext, current_request
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings
from tests.conftest import ROOT


async def echo(request: Request) -> Response:
    body = await request.body()
    if body == b"fail":
        raise RuntimeError("inside")
    return Response(body + body)


ROUTES = [Route("/echo", echo, methods=["POST"]), Route("/named/{name}", echo, methods=["POST"])]


def observe(*calls: tuple[str, str, bytes]) -> Metrics:
    running = Runtime(Settings())
    metrics = running.metrics

    async def send() -> None:
        app = RequestLifecycle(Starlette(routes=ROUTES), running, {"/echo"}, log=True)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for method, path, body in calls:
                await client.request(method, path, content=body, headers={"x-request-id": "an-id"})

    asyncio.run(send())
    return metrics


def samples(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_requests_bytes_and_seconds_are_counted_by_route() -> None:
    found = samples(observe(("POST", "/echo", b"abc"), ("POST", "/echo", b"d"), ("POST", "/named/secret", b"")))
    assert found['requant_requests_total{code="200",method="POST",route="/echo"}'] == 2
    assert found['requant_bytes_total{direction="in",route="/echo"}'] == 4
    assert found['requant_bytes_total{direction="out",route="/echo"}'] == 8
    assert found['requant_request_seconds_count{route="/echo"}'] == 2
    assert found["requant_inflight_requests"] == 0


def test_what_a_client_chooses_is_no_label() -> None:
    metrics = observe(("POST", "/named/secret", b""), ("GET", "/secret?secret", b""), ("SECRET", "/echo", b""))
    assert b"secret" not in metrics.text().lower()
    assert 'requant_requests_total{code="404",method="GET",route="unmatched"}' in samples(metrics)
    assert 'requant_requests_total{code="405",method="other",route="/echo"}' in samples(metrics)


def test_a_fault_is_counted_and_the_request_ends() -> None:
    found = samples(observe(("POST", "/echo", b"fail")))
    assert found['requant_requests_total{code="500",method="POST",route="/echo"}'] == 1
    assert found["requant_inflight_requests"] == 0


def test_a_line_for_each_request_tells_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="requant.requests"):
        observe(("POST", "/named/secret?secret=secret", b"secret"))
    (record,) = caplog.records
    line = json.loads(JsonLines().format(record))
    assert (line["method"], line["route"], line["status"], line["received"], line["sent"]) == (
        "POST",
        "/named/{name}",
        200,
        6,
        12,
    )
    assert "secret" not in json.dumps(line)


def test_a_record_is_one_line_with_the_id_of_its_request() -> None:
    token = current_request.set(RequestContext(HeaderFields([(b"x-request-id", b"an-id")])))
    try:
        record = logging.LogRecord("name", logging.WARNING, "", 1, 'a "quoted"\nline %s', ("\x1b[31m",), None)
        line = JsonLines().format(record)
    finally:
        current_request.reset(token)
    assert "\n" not in line
    assert "\x1b" not in line
    found = json.loads(line)
    assert (found["level"], found["message"], found["request_id"]) == ("warning", 'a "quoted"\nline \x1b[31m', "an-id")


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    histogram = Histogram("test_seconds", "Text.", ("route",), (0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 1.0, 2.0):
        histogram.observe(("a",), value)
    (family,) = histogram.collect()
    found = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    assert [found["test_seconds_bucket", bound] for bound in ("0.5", "1.0", "+Inf")] == [2, 4, 5]
    assert (found["test_seconds_count", None], found["test_seconds_sum", None]) == (5, 4.5)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_warning_is_a_line_of_the_log(form: str) -> None:
    program = f"""
import warnings
from requant_service.runtime.logs import set_up_logs
set_up_logs("info", "{form}")
warnings.warn("secret\\nsecond line", RuntimeWarning)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    (line,) = found.stderr.splitlines()
    assert "RuntimeWarning at <string>:5" in line
    assert "secret" not in line
    assert (line[0] == "{") == (form == "json")
