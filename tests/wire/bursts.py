"""`python -m tests.wire.bursts`: what bursts of requests do to everybody else, as docs/hostile_input.md has it.

For each burst: the longest time for which the event loop served nothing else (in its own CPU time), how long a probe
waited that was sent in the middle of it, and the memory at its peak beyond that before it. A new service for each, with
a heart that beats on its event loop (`benchmarks.http.heart`).
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from dataclasses import dataclass

import httpx
import uvloop

from tests.conftest import ROOT, free_port
from tests.support.process_memory import memory

SECONDS = 8.0
MAX_BYTES = 16 << 20

_HOST = b"Host: localhost\r\n"
_GET = b"GET /nothing HTTP/1.1\r\n" + _HOST + b"\r\n"
_UPGRADE = b"GET /nothing HTTP/1.1\r\n" + _HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
_CHUNKED = b"POST /v1/quantize HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Burst:
    """What is sent on each of some connections, as fast as it is taken, whether or not anything is read."""

    name: str
    sent: bytes
    connections: int
    reads: bool = True


def _filled(request: bytes, size: int) -> bytes:
    return request * (size // len(request))


BURSTS = (
    Burst("240 KB of GETs", _filled(_GET, 240_000), 1),
    Burst("240 KB of GETs with `Upgrade`", _filled(_UPGRADE, 240_000), 1),
    Burst("240 KB of GETs on each of 100 connections", _filled(_GET, 240_000), 100),
    Burst("14 MB of GETs on each of 60 connections, no reply read", _filled(_GET, 14_000_000), 60, reads=False),
    Burst("240 KB of a body in chunks of a byte on each of 100", _CHUNKED + _filled(b"1\r\n1\r\n", 240_000), 100),
    Burst(
        "60 KB of header fields on each of 100",
        b"GET / HTTP/1.1\r\n" + _HOST + _filled(b"a:\r\n", 60_000) + b"\r\n",
        100,
    ),
    Burst("240 KB of empty lines on each of 100", _filled(b"\r\n", 240_000), 100),
    Burst("240 KB of trailers on each of 100", _CHUNKED + b"0\r\n" + _filled(b"a:\r\n", 240_000), 100),
)


@dataclass(frozen=True)
class Seen:
    """Milliseconds that the loop stood still, seconds that a probe waited, bytes of memory more than before."""

    stall: float
    probe: float
    memory: int


async def _attack(port: int, burst: Burst) -> None:
    async def one() -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(burst.sent)
            while burst.reads and await reader.read(1 << 16):
                pass
            await asyncio.sleep(SECONDS)

    jobs = [asyncio.create_task(one()) for _ in range(burst.connections)]
    await asyncio.sleep(SECONDS)
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)


async def _probe(port: int) -> float:
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    await reader.read(100)
    writer.close()
    return time.monotonic() - began


async def _both(port: int, burst: Burst) -> float:
    attack = asyncio.create_task(_attack(port, burst))
    slowest = 0.0
    await asyncio.sleep(0.05)
    while not attack.done():
        slowest = max(slowest, await _probe(port))
        await asyncio.sleep(0.1)
    return slowest


def measure(burst: Burst) -> Seen:
    """Start a service and attack it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "benchmarks.http.heart", str(port), "cpu"]
    with (
        subprocess.Popen(command, cwd=ROOT) as process,
        httpx.Client(base_url=url, verify=False, timeout=120) as client,
    ):
        try:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/v2/health/ready").status_code == 200:
                        break
                time.sleep(0.1)
            client.get("/nothing")
            client.get("/heart")
            before = memory(process.pid)["VmRSS"]
            probe = uvloop.run(_both(port, burst))
            stall = float(client.get("/heart").text)
            return Seen(stall, probe, memory(process.pid)["VmHWM"] - before)
        finally:
            process.terminate()


def main() -> None:
    """Print the rows of the table."""
    chosen = [burst for burst in BURSTS if not sys.argv[1:] or sys.argv[1] in burst.name]
    for burst in chosen:
        seen = measure(burst)
        print(f"| {burst.name} | {seen.stall:.0f} ms | {seen.probe:.2f} s | {seen.memory >> 20} MiB |", flush=True)


if __name__ == "__main__":
    main()
