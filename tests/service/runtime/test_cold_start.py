"""A first start: requests are answered while kernels compile, and probes say how far it is."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.runtime.test_process_end import AT_ONCE, ended, service, wait_for

QUANTIZE = {
    "input": {"type": "tensor<4xf32>", "values": [-0.25, 0.25, 0.75, 100.0]},
    "output_type": "!quant.uniform<i8:f32, 0.5:3>",
    "profile": "stablehlo",
}
# Each needs another kernel.
OTHERS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "/v1/dequantize": ({"input": {"type": "tensor<2x!quant.uniform<i8:f32, 0.5:3>>", "values": [3, 5]}}, [0.0, 1.0]),
    "/v1/requantize": (
        {
            "input": {"type": "tensor<2x!quant.uniform<i32:f32, 0.5>>", "values": [3, -700]},
            "output_type": "!quant.uniform<i8:f32, 1.0:1>",
        },
        [3, -128],
    ),
}
# None waits for a compiler; the machine is shared.
LONGEST_PROBE = 2.0


@pytest.mark.exhaustive
def test_requests_are_answered_while_kernels_compile(tmp_path: Path) -> None:
    with (
        service(tmp_path, "from requant_service.main import main; main()", "--drain-seconds", "0") as (process, port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client,
        ThreadPoolExecutor() as pool,
    ):
        wait_for(process, port, "/v2/health/live")
        while (first := client.post("/v1/quantize", json=QUANTIZE)).status_code == 503:
            time.sleep(0.02)
        assert first.json()["output"]["values"] == [2, 4, 4, 127]
        health = client.get("/healthz")
        assert health.status_code == client.get("/v2/health/ready").status_code == 503
        assert health.json()["status"] == "compiling"
        kernels = health.json()["kernels"]
        assert 0 < kernels["compiled"] < kernels["total"]
        asked = [pool.submit(client.post, path, json=body) for path, (body, _) in OTHERS.items()]
        waits = []
        while not all(each.done() for each in asked):
            began = time.monotonic()
            assert client.get("/healthz").json()["kernels"]["compiled"] >= kernels["compiled"]
            # One whose kernels are there waits for none.
            assert client.post("/v1/quantize", json=QUANTIZE).status_code == 200
            waits.append(time.monotonic() - began)
            time.sleep(0.05)
        # All but what others do on the machine.
        assert sum(wait > LONGEST_PROBE for wait in waits) <= len(waits) // 10, waits
        for each, (_, values) in zip(asked, OTHERS.values(), strict=True):
            assert each.result().json()["output"]["values"] == values, each.result().text
        assert client.get("/v2/health/ready").status_code == 503
        # All kernels, beside other tests that keep the CPUs busy.
        wait_for(process, port, "/v2/health/ready", 600)
        assert client.get("/healthz").json() == {"status": "ready"}
        ended(process, signal.SIGTERM, AT_ONCE)
    log = (tmp_path / "log").read_text()
    assert "Compiling kernels" in log
    assert "Traceback" not in log
