"""Spans of OpenTelemetry, as a collector gets them: what they say, whose children they are, and what has none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import started

otlp: Any = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "quant.uniform<i8:f32, 0.5"
ONE = {"input": {"type": "tensor<1xf32>", "values": [1.0]}, "output_type": f"!{SECRET}>", "profile": "onnx"}


class Collector(HTTPServer):
    """What takes spans, as OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.bodies: list[bytes] = []

    def spans(self) -> list[Any]:
        """All spans of the service `requant`."""
        found = []
        for body in self.bodies:
            for resource in otlp.ExportTraceServiceRequest.FromString(body).resource_spans:
                assert values(resource.resource)["service.name"] == "requant"
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return found


class _Take(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def values(of: Any) -> dict[str, Any]:
    """The attributes of a span or resource."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in of.attributes}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as taking:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{taking.server_port}")
        thread = threading.Thread(target=taking.serve_forever)
        thread.start()
        yield taking
        taking.shutdown()
        thread.join()


def test_spans(collector: Collector, tmp_path: Path) -> None:
    with (
        started(tmp_path / "log", "--drain-seconds", "0", "--telemetry", "true") as (server, _),
        httpx.Client(base_url=server.url, verify=False) as client,
    ):
        trace = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
        assert client.post("/v1/quantize", json=ONE, headers=trace).status_code == 200
        assert client.get("/v1/profiles/onnx?secret=1").status_code == 422
        assert client.get("/secret").status_code == 404
        assert client.get("/v2/health/live").status_code == 200
    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {"POST /v1/quantize", "GET /v1/profiles/{name}", "GET unmatched"}
    of_trace = spans["POST /v1/quantize"]
    assert (of_trace.trace_id.hex(), of_trace.parent_span_id.hex()) == (TRACE, PARENT)
    said = values(of_trace)
    assert said.pop("requant.worked_seconds") > 0
    assert said.pop("requant.received_seconds") > 0
    assert said.pop("requant.waited_seconds") >= 0
    assert said == {
        "http.request.method": "POST",
        "http.route": "/v1/quantize",
        "http.response.status_code": 200,
        "requant.request_id": "mine",
    }
    assert spans["GET unmatched"].parent_span_id == b""
    everything = b"".join(collector.bodies)
    assert b"secret" not in everything
    assert SECRET.encode() not in everything
