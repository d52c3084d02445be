"""`python -m tests.hostile.under_attack [TEXT]`: how long others wait, and how much memory is taken, during attacks.

For each attack, or those with TEXT in their name, a new service with tokens, gRPC, checkpoint roots and a memory budget
of 400 MB. Two honest clients with a token ask for the quantization of 1 KB every 5 ms, one over HTTP and one over gRPC,
each on one connection. The attacker is a process of its own: `--attack NAME TARGET`. docs/hostile_input.md has the
table.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import numpy as np

from tests.checkpoint_jobs.plan_attacks import PLANS, Body
from tests.conftest import ROOT, free_port, started
from tests.support.http2_client import AsyncHttp2Client, call_of
from tests.support.inference_messages import request_of
from tests.support.process_memory import memory
from tests.wire import grpc_attacks
from tests.wire.grpc_attacks import BEARER, INFER, TOKEN

BUDGET = 400_000_000
SECONDS = 8.0
PERIOD = 5e-3
_CLIENTS = 6
_HEADERS = {"Authorization": f"Bearer {TOKEN}"}
_TYPE = "!quant.uniform<i8:f32, 0.5:3>"
_X = np.zeros(250, np.float32)
_MESSAGE = bytes(request_of("quantize", {"x": _X}, {"output_type": _TYPE, "profile": "onnx"}).SerializeToString())


@dataclass(frozen=True)
class Target:
    """A service: its ports, its process, the checkpoint root, and the port of the root over HTTP."""

    http: int
    grpc: int
    process: int
    root: str
    storage: int


@dataclass(frozen=True)
class Latency:
    """Requests of an honest client that failed, and the seconds of the slowest and of the slowest but 1 of 100."""

    failed: int
    slowest: float
    usual: float


@dataclass(frozen=True)
class Seen:
    """What both honest clients saw, and the bytes at the peak beyond the idle process."""

    http: Latency
    grpc: Latency
    memory: int


def _say_that_it_begins() -> None:
    """Tell the process that measures: what is sent has been made."""
    print("begins", flush=True)


def _planning(attack: Callable[[Path, int], Body]) -> Callable[[Target], None]:
    def run(target: Target) -> None:
        body = attack(Path(target.root), target.storage)
        _say_that_it_begins()

        def ask() -> None:
            with httpx.Client(base_url=f"http://127.0.0.1:{target.http}", headers=_HEADERS, timeout=60) as client:
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        client.post("/v1/checkpoints", json=body)

        threads = [threading.Thread(target=ask) for _ in range(_CLIENTS)]
        for thread in threads:
            thread.start()

    return run


def _replies_not_taken(target: Target) -> None:
    size = 21 << 20
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 4},), }}".ljust(117) + "\n"
    file = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(size)
    head = (
        "POST /v1/npy/quantize?profile=onnx&output_type=!quant.uniform<i32:f32,0.5> HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/octet-stream\r\n"
        f"Content-Length: {len(file)}\r\n\r\n"
    )
    held = []
    _say_that_it_begins()
    for _ in range(64):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", target.http))
        connection.settimeout(2)
        with contextlib.suppress(OSError):
            connection.sendall(head.encode() + file)
        held.append(connection)
    time.sleep(60)


def _over_grpc(attack: Callable[[str], None]) -> Callable[[Target], None]:
    def run(target: Target) -> None:
        _say_that_it_begins()
        attack(f"127.0.0.1:{target.grpc}")

    return run


ATTACKS: Mapping[str, Callable[[Target], None]] = {
    "nothing": lambda _: _say_that_it_begins(),
    **{f"gRPC: {name}": _over_grpc(attack) for name, attack in grpc_attacks.ATTACKS.items()},
    **{f"plan: {name}": _planning(attack) for name, attack in PLANS.items()},
    "HTTP: 64 replies of 21 MB that nobody reads": _replies_not_taken,
}


def _latency(seen: list[tuple[float, bool]]) -> Latency:
    times = sorted(each for each, _ in seen)
    return Latency(sum(not served for _, served in seen), times[-1], times[-1 - len(times) // 100])


async def _call(port: int, seconds: float) -> list[tuple[float, bool]]:
    """Call every 5 ms. Return how long each call took, and whether it was served."""
    client = await AsyncHttp2Client.connect(port)
    seen: list[tuple[float, bool]] = []
    end, stream = time.monotonic() + seconds, 1
    while (began := time.monotonic()) < end:
        client.writer.write(call_of(stream, INFER, _MESSAGE, BEARER))
        await client.until_over([stream])
        answer = client.incoming.answers.pop(stream, None)
        seen.append((time.monotonic() - began, answer is not None and answer.status == 0))
        if answer is None:
            client.writer.close()
            client, stream = await AsyncHttp2Client.connect(port), -1
        stream += 2
        await asyncio.sleep(max(0.0, began + PERIOD - time.monotonic()))
    client.writer.close()
    return seen


def _ask(port: int, seconds: float) -> list[tuple[float, bool]]:
    """The same over HTTP."""
    described = {
        "parameters": {"output_type": _TYPE, "profile": "onnx"},
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [_X.size], "parameters": {"binary_data_size": _X.nbytes}}
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(described).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), **_HEADERS}
    seen: list[tuple[float, bool]] = []
    # Without certificates, which take long to read.
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, verify=False) as client:
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            try:
                served = client.post("/v2/models/quantize/infer", content=head + _X.tobytes()).status_code == 200
            except httpx.TransportError:
                served = False
            seen.append((time.monotonic() - began, served))
            time.sleep(max(0.0, began + PERIOD - time.monotonic()))
    return seen


async def probe(target: Target, seconds: float) -> tuple[Latency, Latency]:
    """Be both honest clients for some seconds."""
    http, grpc = await asyncio.gather(asyncio.to_thread(_ask, target.http, seconds), _call(target.grpc, seconds))
    return _latency(http), _latency(grpc)


@contextlib.contextmanager
def attacked(name: str, target: Target) -> Iterator[None]:
    """Attack from a process of its own."""
    command = [sys.executable, "-m", "tests.hostile.under_attack", "--attack", name, json.dumps(asdict(target))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as attacker:
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline()
            yield
            # It is under way still, or has done all that it does.
            assert attacker.poll() in (None, 0)
        finally:
            attacker.kill()


@contextlib.contextmanager
def service(folder: Path) -> Iterator[Target]:
    """Start a service."""
    grpc, storage, root = free_port(), free_port(), folder / "root"
    root.mkdir()
    tokens = folder / "tokens"
    tokens.write_text(TOKEN)
    options = ["--drain-seconds", "0", "--grpc-port", str(grpc), "--tokens-file", str(tokens)]
    options += ["--checkpoint-roots", f"{root},http://127.0.0.1:{storage}/", "--memory-bytes", str(BUDGET)]
    with started(folder / "log", *options) as (server, process):
        yield Target(server.port, grpc, process.pid, str(root), storage)


def measure(name: str, seconds: float = SECONDS) -> Seen:
    """Start a service and attack it."""
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as target:
        asyncio.run(probe(target, 0.5))
        before = memory(target.process)["VmRSS"]
        with attacked(name, target):
            # Until the attack is under way.
            time.sleep(1)
            http, grpc = asyncio.run(probe(target, seconds))
        return Seen(http, grpc, memory(target.process)["VmHWM"] - before)


def main() -> None:
    """Print the rows of the table."""
    if sys.argv[1:2] == ["--attack"]:
        ATTACKS[sys.argv[2]](Target(**json.loads(sys.argv[3])))
        return
    for name in ATTACKS:
        if not sys.argv[1:] or sys.argv[1] in name:
            seen = measure(name)
            times = " | ".join(
                f"{1e3 * each.usual:.0f} ms | {1e3 * each.slowest:.0f} ms" for each in (seen.http, seen.grpc)
            )
            failed = seen.http.failed + seen.grpc.failed
            print(f"| {name} | {failed} | {times} | {seen.memory >> 20} MiB |", flush=True)


if __name__ == "__main__":
    main()
