"""What is asked of the service in the container, by a program in its network: `python -m tests.image.client TASK`.

`ready PROCESS` waits until it is, and prints when that was. `answers` asks for README's bits over each protocol. `load
SECONDS` asks several times at once, and compares all answers. `until-refused SECONDS` asks until the service has ended,
and loses nothing. It ends with a message if anything is not as it has to be.
"""

from __future__ import annotations

import io
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from tests.load.traffic import Tally, mixed, until_refused
from tests.support.inference_messages import infer, outputs_of, request_of

PORT, GRPC_PORT, METRICS_PORT = 8080, 8081, 9090
PROCESSES = 4
READY_SECONDS = 300
WARM_UP_SECONDS = 1

VALUES, EXPECTED = [-0.25, 0.25, 0.75, 100.0], [2, 4, 4, 127]
HOW = {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "stablehlo"}


def fetch(path: str, body: bytes | None = None, media_type: str = "application/json", port: int = PORT) -> bytes:
    """Return the body of a reply. Raise OSError if there is none, or its status is an error."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body, {"Content-Type": media_type} if body else {}
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        return bytes(reply.read())


def wait_until_ready(process: int) -> None:
    """Print the time at which the service was ready. Exit if it takes too long, or its first process has ended."""
    began = time.monotonic()
    while True:
        try:
            fetch("/healthz")
            break
        except OSError as error:
            waited = time.monotonic() - began
            if waited > READY_SECONDS or not Path(f"/proc/{process}").exists():
                raise SystemExit(f"not ready after {waited:.0f} s: {error}") from None
            time.sleep(0.01)
    print(time.time())


def by_json() -> list[int]:
    """Quantize VALUES as README does."""
    request = {"input": {"type": f"tensor<{len(VALUES)}xf32>", "values": VALUES}, **HOW}
    return list(json.loads(fetch("/v1/quantize", json.dumps(request).encode()))["output"]["values"])


def by_npy() -> list[int]:
    """Quantize VALUES in a `.npy` file."""
    np.save(file := io.BytesIO(), np.array(VALUES, np.float32))
    query = "&".join(f"{name}={value.replace(' ', '')}" for name, value in HOW.items())
    reply = fetch(f"/v1/npy/quantize?{query}", file.getvalue(), "application/octet-stream")
    return list(np.load(io.BytesIO(reply)).tolist())


def by_inference() -> list[int]:
    """Quantize VALUES as a model of the Open Inference Protocol, over HTTP."""
    tensor = {"name": "x", "shape": [len(VALUES)], "datatype": "FP32", "data": VALUES}
    body = json.dumps({"inputs": [tensor], "parameters": HOW}).encode()
    (output,) = json.loads(fetch("/v2/models/quantize/infer", body))["outputs"]
    return list(output["data"])


def by_grpc() -> list[int]:
    """Quantize VALUES as a model of the Open Inference Protocol, over gRPC."""
    with grpc.insecure_channel(f"127.0.0.1:{GRPC_PORT}") as channel:
        (output,) = outputs_of(
            infer(channel, request_of("quantize", {"x": np.array(VALUES, np.float32)}, HOW))
        ).values()
    return list(output.tolist())


PROTOCOLS: dict[str, Callable[[], list[int]]] = {
    "JSON": by_json, ".npy": by_npy, "V2": by_inference, "gRPC": by_grpc
}  # fmt: skip


def check_answers() -> None:
    """Ask once over each protocol, for metrics, and for what the service says of itself."""
    for protocol, quantize in PROTOCOLS.items():
        began = time.monotonic()
        if (found := quantize()) != EXPECTED:
            raise SystemExit(f"wrong bits over {protocol}: {found}")
        print(f"  a quantization over {protocol}: right, {1000 * (time.monotonic() - began):.1f} ms")
    metrics = fetch("/metrics", port=METRICS_PORT).decode()
    if "requant_ready 1.0" not in metrics:
        raise SystemExit("the metrics do not say that the service is ready")
    (budget,) = (
        float(line.split()[1]) for line in metrics.splitlines() if line.startswith("requant_memory_budget_bytes ")
    )
    info: dict[str, Any] = json.loads(fetch("/v1/info"))
    print(
        f"  it has Python {info['python']}, {info['kernels']} kernels, {info['threads']} threads, "
        f"and a memory budget of {budget / 2**20:.0f} MiB"
    )


def ask_for(seconds: float, task: Callable[[int, float, int], Tally]) -> Tally:
    """Run a client in each of several processes. Exit if an answer is wrong or lost, or there is none.

    A line is printed when all of them have begun.
    """
    total = Tally()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for begun in [pool.submit(mixed, PORT, WARM_UP_SECONDS, seed) for seed in range(PROCESSES)]:
            begun.result()
        print(f"  {PROCESSES} processes ask", flush=True)
        for each in [pool.submit(task, PORT, seconds, seed) for seed in range(PROCESSES)]:
            total.add(each.result())
    if total.wrong or total.lost:
        raise SystemExit("\n".join(["under load:", *total.wrong[:10], *total.lost[:10]]))
    if not total.seconds:
        raise SystemExit(f"under load nothing was answered: {dict(total.counts)}")
    return total


def main(task: str, given: str = "0") -> None:
    """Do what is asked."""
    seconds = float(given)
    if task == "ready":
        wait_until_ready(int(given))
    elif task == "answers":
        check_answers()
    elif task == "load":
        counts = ask_for(seconds, mixed).counts
        others = ", ".join(f"{counts[name]} {name}" for name in ("hostile", "refused with 503") if counts[name])
        print(f"  {counts.total()} requests in {seconds:g} s: all right ({others})")
    elif task == "until-refused":
        print(f"  SIGTERM under load: {ask_for(seconds, until_refused).counts.total()} requests, none of them lost")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
