"""`python -m tests.wire.grpc_attacks [name]`: what attacks on the gRPC port do to everybody else.

For each attack: how long an honest client with a token waits, which asks for 1 KB every 5 ms on a connection of its
own, how many of its calls fail, and the memory at the peak beyond that before it. A new service for each, with a budget
of 400 MB, and the attacker in a process of its own: `--attack NAME ADDRESS`. docs/hostile_input.md has the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.http2 import frames
from service.http2.frames import ErrorCode, FrameType, frame, rst_stream, window_update
from tests.conftest import ROOT, free_port, started
from tests.support.http2_client import AsyncHttp2Client, Http2Client, call_of, data, head_of, headers
from tests.support.inference_messages import SERVICE, request_of
from tests.wire.memory import memory

TOKEN = "a-token-of-some-length"
BEARER = (("authorization", f"Bearer {TOKEN}"),)
BUDGET = 400_000_000
SECONDS = 8.0
PERIOD = 5e-3

INFER, STREAM = f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ModelStreamInfer"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
_TARGET = {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"}
PROBE = bytes(request_of("quantize", {"x": np.zeros(250, np.float32)}, _TARGET).SerializeToString())
_CONNECTIONS = 20


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F | 0x80, number >> 21])


def _inside(*tags: int, content: bytes) -> bytes:
    for tag in reversed(tags):
        content = bytes([tag << 3 | 2]) + _varint(len(content)) + content
    return content


def _messages(path: str, message: bytes, *, at_once: int = 1, compression: Any = None) -> Callable[[str], None]:
    """Send a message with grpcio, again and again."""

    def run(address: str) -> None:
        import grpc

        with grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
            method = channel.unary_unary(path)
            while True:
                encoding = {} if compression is None else {"compression": grpc.Compression.Gzip}
                calls = [method.future(message, metadata=BEARER, timeout=60, **encoding) for _ in range(at_once)]
                for call in calls:
                    call.exception()

    return run


def _opened(path: str, streams: int, sent: bytes = b"") -> Callable[[str], None]:
    """Open streams on some connections, and do no more."""

    def run(address: str) -> None:
        clients: list[Http2Client] = []
        while True:
            for _ in range(_CONNECTIONS - len(clients)):
                client = Http2Client(address)
                for number in range(1, 2 * streams, 2):
                    client.send(headers(number, head_of(path, BEARER)) + (data(number, sent) if sent else b""))
                clients.append(client)
            time.sleep(0.5)

    return run


def _flood(piece: Callable[[int], bytes]) -> Callable[[str], None]:
    """Send pieces, each with the number of a stream of its own, as fast as they are taken. Read nothing."""

    def run(address: str) -> None:
        while True:
            with contextlib.suppress(OSError), Http2Client(address) as client:
                client.socket.settimeout(2)
                for number in range(1, 1 << 30, 200):
                    client.send(b"".join(piece(number + each) for each in range(0, 200, 2)))

    return run


def _unread(address: str) -> None:
    """Ask for large replies, and read none of them."""
    x = np.zeros(5_000_000, np.float32)
    message = request_of("dequantize", {"x": x.astype(np.int8)}, {"input_type": "!quant.uniform<i8:f32, 0.5:3>"})
    sent = message.SerializeToString()
    clients = []
    for _ in range(16):
        client = Http2Client(address, window=frames.MAX_WINDOW)
        client.send(headers(1, head_of(INFER, BEARER)))
        body, at = b"\0" + len(sent).to_bytes(4, "big") + sent, 0
        with contextlib.suppress(OSError):
            while at < len(body):
                piece = body[at : at + min(1 << 20, 16_384 + client.incoming.granted.get(1, 0) - at)]
                at += len(piece)
                client.send(data(1, piece, frames.END_STREAM if at == len(body) else 0))
                if not piece and not client.read():
                    break
        clients.append(client)
    time.sleep(60)


_BLOCK = head_of(INFER, BEARER)
_HALF_BLOCK = headers(1, _BLOCK, 0)

ATTACKS: Mapping[str, Callable[[str], None]] = {
    "nothing": lambda _: None,
    "4,190,000 empty raw_input_contents": _messages(INFER, b"\x3a\0" * 4_190_000),
    "4,190,000 empty inputs": _messages(INFER, b"\x2a\0" * 4_190_000),
    "2,790,000 unknown fields": _messages(INFER, b"\xa2\x06\0" * 2_790_000),
    "4,100,000 elements of bytes_contents": _messages(INFER, _inside(5, 5, content=b"\x42\0" * 4_100_000)),
    "4,100,000 empty parameters of an input": _messages(INFER, _inside(5, content=b"\x22\0" * 4_100_000)),
    "8,000,000 packed elements of bool_contents": _messages(INFER, _inside(5, 5, 1, content=b"\1" * 8_000_000)),
    "72 MiB of unknown fields to Health/Check": _messages(CHECK, _inside(50 % 16, content=bytes(72 << 20))),
    "Health/Check without a message, 100 on each of 20 connections": _opened(CHECK, 100),
    "ModelInfer that promises 60 MiB, 100 on each of 20": _opened(INFER, 100, b"\0" + (60 << 20).to_bytes(4, "big")),
    "idle ModelStreamInfer, 100 on each of 20": _opened(STREAM, 100),
    "Health/Watch, 100 on each of 20": _opened(WATCH, 100, bytes(5)),
    "100 compressed messages of 60 MiB of zeros": _messages(INFER, bytes(60 << 20), at_once=20, compression=True),
    "6 MB compressed to Health/Check": _messages(CHECK, bytes(60 << 20), compression=True),
    "16 replies of 20 MB that nobody reads": _unread,
    "rapid reset": _flood(lambda number: headers(number, _BLOCK) + rst_stream(number, ErrorCode.CANCEL)),
    "calls without end, no reply read": _flood(lambda number: call_of(number, CHECK, b"")),
    "PING": _flood(lambda number: frame(FrameType.PING, 0, 0, bytes(8))),
    "SETTINGS": _flood(lambda number: frame(FrameType.SETTINGS, 0, 0, bytes((0, 4, 0, 0, 255, 255)) * 20)),
    "WINDOW_UPDATE": _flood(lambda number: window_update(0, 1)),
    "empty DATA": _flood(lambda number: (headers(1, _BLOCK) if number == 1 else b"") + data(1, b"") * 10),
    "CONTINUATION": _flood(
        lambda number: _HALF_BLOCK if number == 1 else frame(FrameType.CONTINUATION, 0, 1, bytes(1))
    ),
    "header blocks of 30 KB": _flood(
        lambda number: headers(number, _BLOCK + bytes(9_000)) if number % 10 == 1 else b""
    ),
}


@dataclass(frozen=True)
class Seen:
    """Calls of the honest client: all, the seconds of the slowest and of the slowest but 1 of 100, and failures."""

    calls: int
    slowest: float
    usual: float
    failed: int
    memory: int


async def probe(port: int, seconds: float) -> list[tuple[float, int | None]]:
    """Call every 5 ms. Return how long each call took, and its status."""
    client = await AsyncHttp2Client.connect(port)
    seen: list[tuple[float, int | None]] = []
    end, stream = time.monotonic() + seconds, 1
    while (began := time.monotonic()) < end:
        client.writer.write(call_of(stream, INFER, PROBE, BEARER))
        await client.until_over([stream])
        answer = client.incoming.answers.pop(stream, None)
        seen.append((time.monotonic() - began, None if answer is None else answer.status))
        if answer is None:
            client.writer.close()
            client, stream = await AsyncHttp2Client.connect(port), -1
        stream += 2
        await asyncio.sleep(max(0.0, began + PERIOD - time.monotonic()))
    client.writer.close()
    return seen


@contextlib.contextmanager
def attacked(name: str, address: str) -> Iterator[None]:
    """Attack from a process of its own."""
    command = [sys.executable, "-m", "tests.wire.grpc_attacks", "--attack", name, address]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as attacker:
        try:
            yield
        finally:
            attacker.kill()


@contextlib.contextmanager
def target(folder: Path) -> Iterator[tuple[int, int]]:
    """A service with tokens. Yield its gRPC port and its process id."""
    port = free_port()
    (folder / "tokens").write_text(TOKEN)
    options = ["--drain-seconds", "0", "--grpc-port", str(port), "--tokens-file", str(folder / "tokens")]
    with started(folder / "log", *options, "--memory-bytes", str(BUDGET)) as (_, process):
        yield port, process.pid


def measure(name: str, seconds: float = SECONDS) -> Seen:
    """Start a service and attack it."""
    with tempfile.TemporaryDirectory() as folder, target(Path(folder)) as (port, process):
        asyncio.run(probe(port, 0.5))
        before = memory(process)["VmRSS"]
        with attacked(name, f"127.0.0.1:{port}"):
            # Until the attacker has imported what it needs.
            time.sleep(1)
            seen = asyncio.run(probe(port, seconds))
        times = sorted(each for each, _ in seen)
        failed = sum(status != 0 for _, status in seen)
        return Seen(len(seen), times[-1], times[-1 - len(times) // 100], failed, memory(process)["VmHWM"] - before)


def main() -> None:
    """Print the rows of the table."""
    if sys.argv[1:2] == ["--attack"]:
        ATTACKS[sys.argv[2]](sys.argv[3])
        return
    for name in ATTACKS:
        if not sys.argv[1:] or sys.argv[1] in name:
            seen = measure(name)
            print(
                f"| {name} | {seen.calls} | {seen.failed} | {1e3 * seen.usual:.0f} ms | {1e3 * seen.slowest:.0f} ms | "
                f"{seen.memory >> 20} MiB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
