"""`python -m tests.wire.grpc_fuzz [messages] [seed]`: calls whole, cut, mutated and interleaved, 300,000 messages long.

Each call is sent alone first. Then many share a connection: their frames are interleaved, padded and cut anywhere, with
other frames between. Each answer has to be that of the same call alone, none may be INTERNAL, and a connection may only
end for what breaks the protocol.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import uvloop

from requant_service.http2 import frames
from requant_service.http2.frames import ErrorCode, FrameType, frame, rst_stream, window_update
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.grpc.statuses import StatusCode
from tests.conftest import free_port, started
from tests.fuzz.message_mutation import changed_bytes
from tests.requests.catalog import CATALOG
from tests.requests.inference import inference
from tests.service.oip.grpc.test_request_parts import mutated, usual
from tests.support.http2_client import Answer, AsyncHttp2Client, head_of
from tests.support.inference_messages import SERVICE
from tests.support.process_memory import memory

BUDGET = 256 << 20
_OPTIONS = ("--drain-seconds", "0", "--head-seconds", "5", "--memory-bytes", str(BUDGET))
_POOL, _CONNECTIONS, _CALLS = 600, 60, 120
_AT_ONCE = 40
_MAX_BYTES = 15_000
_SECONDS = 120.0

_UNARY = [method.name for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]
_OTHERS = ["grpc.health.v1.Health/Check", "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "x.Y/Z"]
_METADATA = (("x-request-id", "fuzz"),)
_EXAMPLES = [inference(entry, entry.example) for entry in CATALOG.values()]


@dataclass(frozen=True)
class Sent:
    """A call: its header block, what follows it, and how many messages that is."""

    block: bytes
    body: bytes
    messages: int


@dataclass(frozen=True)
class Known:
    """A call, and what came back for it on a connection of its own."""

    sent: Sent
    answer: object


@dataclass
class Tally:
    """What was seen. `differences` are to stay empty."""

    messages: int = 0
    connections: int = 0
    distinct: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what another saw."""
        self.messages += other.messages
        self.connections += other.connections
        self.distinct += other.distinct
        self.statuses += other.statuses
        self.differences += other.differences


def comparable(answer: Answer) -> object:
    """What of an answer is always the same. A reset after it only says that the rest is not read."""
    return answer.fields, bytes(answer.data), answer.ended, None if answer.ended else answer.reset


def _message(rng: Random) -> bytes:
    """A message: valid, mutated, or of bytes."""
    found = bytes(rng.choice(_EXAMPLES).message(id=str(rng.randrange(9))).SerializeToString())
    match rng.randrange(8):
        case 0 | 1 | 2:
            return found
        case 3:
            return mutated(found, rng)
        case 4:
            return usual(rng)
        case 5:
            return rng.randbytes(rng.choice([0, 1, 5, 40, 2000]))
        case 6:
            return found + rng.choice([b"\x3a\0", b"\x2a\0", b"\xa2\x06\0", b"\x1a\x01a"]) * rng.choice(
                [1, 2, 1100, 5000]
            )
        case _:
            for _ in range(rng.randrange(1, 4)):
                found = changed_bytes(rng, found)
            return found


def _compressed(message: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(message)
    return zlib.compress(message) if encoding == "deflate" else message


def _prefixed(rng: Random, message: bytes, encoding: str) -> bytes:
    flag = 0
    if encoding and rng.random() < 0.8:
        flag = 1
        message = _compressed(message, encoding)
        if rng.random() < 0.3:
            message = changed_bytes(rng, message)
    if rng.random() < 0.05:
        flag = rng.choice([1, 2, 255])
    length = len(message)
    if rng.random() < 0.05:
        length = rng.choice([0, 1, length + 1, max(0, length - 1), 1 << 20, (1 << 32) - 1])
    return bytes([flag]) + length.to_bytes(4, "big") + message


def sent(rng: Random) -> Sent:
    """Return a random call."""
    name = rng.choice(["ModelInfer"] * 12 + ["ModelStreamInfer"] * 4 + _UNARY)
    path = f"/{rng.choice(_OTHERS)}" if rng.random() < 0.1 else f"/{SERVICE}/{name}"
    encoding = rng.choice(["", "", "", "", "gzip", "deflate", "br"]) if rng.random() < 0.3 else ""
    changed = {"grpc-encoding": encoding} if encoding else {}
    if rng.random() < 0.05:
        changed |= rng.choice(
            [
                {"content-type": rng.choice(["application/grpc+proto", "text/plain", "application/grpc;x", ""])},
                {":method": rng.choice(["GET", "PUT", ""])},
                {":path": rng.choice(["/", "*", "", path + "x", "/\xff"])},
                {"grpc-timeout": rng.choice(["1H", "10S", "x", "", "999999999S", "-1S"])},
                {"te": rng.choice(["trailers", "gzip"])},
                {"connection": "close"},
                {"x" * rng.choice([1, 3000]): "y" * rng.choice([0, 1, 40_000])},
                {rng.choice(["Upper", "sp ace", "", ":new", "nul\0"]): "x"},
                {"value": rng.choice([" x", "x ", "a\nb", "a\0"])},
            ]
        )
    count = (
        rng.choice([0, 1, 2, 5, 30]) if "Stream" in path or "Reflection" in path else rng.choice([0] + [1] * 30 + [2])
    )
    body = b"".join(_prefixed(rng, _message(rng)[:_MAX_BYTES], encoding) for _ in range(count))[:_MAX_BYTES]
    return Sent(head_of(path, _METADATA, **changed), body, max(1, count))


def _frames(rng: Random, call: Sent, stream: int, *, whole: bool) -> list[bytes]:
    """Return the frames of a call."""
    if whole:
        return [
            frame(FrameType.HEADERS, frames.END_HEADERS, stream, call.block),
            frame(FrameType.DATA, frames.END_STREAM, stream, call.body),
        ]
    found = []
    places = sorted(rng.randrange(len(call.block) + 1) for _ in range(rng.choice([0, 0, 1, 3])))
    parts = [call.block[a:b] for a, b in zip([0, *places], [*places, len(call.block)], strict=True)]
    fields = b"".join(
        frame(
            FrameType.CONTINUATION if index else FrameType.HEADERS,
            frames.END_HEADERS if index == len(parts) - 1 else 0,
            stream,
            part,
        )
        for index, part in enumerate(parts)
    )
    found.append(fields)
    cuts = rng.choice([0, 1, 3, 20])
    places = sorted(rng.randrange(len(call.body) + 1) for _ in range(cuts))
    if rng.random() < 0.05:
        start = rng.randrange(len(call.body) + 1)
        places = list(range(start, min(len(call.body), start + 100)))
    parts = [call.body[a:b] for a, b in zip([0, *places], [*places, len(call.body)], strict=True)]
    ends_apart = rng.random() < 0.3
    for index, part in enumerate(parts):
        flags = frames.END_STREAM if index == len(parts) - 1 and not ends_apart else 0
        if rng.random() < 0.1:
            padding = rng.randrange(256) if len(call.body) < 8000 else 0
            found.append(frame(FrameType.DATA, flags | frames.PADDED, stream, bytes([padding]) + part + bytes(padding)))
        else:
            found.append(frame(FrameType.DATA, flags, stream, part))
    if ends_apart and rng.random() < 0.5:
        found.append(frame(FrameType.DATA, frames.END_STREAM, stream))
    elif ends_apart:
        trailers = head_of("", without=[":method", ":scheme", ":path", ":authority", "te", "content-type"])
        found.append(frame(FrameType.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, trailers))
    return found


def _between(rng: Random) -> bytes:
    """A frame that changes no answer."""
    return rng.choice(
        [
            frame(FrameType.PING, 0, 0, rng.randbytes(8)),
            frame(FrameType.SETTINGS, 0, 0),
            frame(FrameType.SETTINGS, 0, 0, b"\x00\x63" + rng.randbytes(4)),
            window_update(0, 1),
            frame(FrameType.PRIORITY, 0, rng.randrange(1, 1000), rng.randbytes(5)),
            frame(rng.randrange(10, 256), rng.randrange(256), 0, rng.randbytes(rng.randrange(40))),
        ]
    )


async def alone(port: int, call: Sent) -> Known:
    """Send a call on a connection of its own."""
    client = await AsyncHttp2Client.connect(port)
    client.writer.write(b"".join(_frames(Random(), call, 1, whole=True)))
    await client.until_over([1])
    client.writer.close()
    return Known(call, comparable(client.incoming.answers.get(1, Answer())))


async def _shared(port: int, rng: Random, calls: list[Known], tally: Tally) -> None:
    """Send calls interleaved on one connection, and compare their answers; at last, what ends the connection."""
    client = await AsyncHttp2Client.connect(port)
    stream = 1
    while calls:
        batch, calls = calls[:_AT_ONCE], calls[_AT_ONCE:]
        queues, known, cancelled = [], {}, set()
        for each in batch:
            made = _frames(rng, each.sent, stream, whole=rng.random() < 0.3)
            if rng.random() < 0.05:
                del made[rng.randrange(1, len(made) + 1) :]
                made.append(rst_stream(stream, ErrorCode.CANCEL))
                cancelled.add(stream)
            else:
                known[stream] = each
            queues.append(made)
            stream += 2
        # Streams have to begin in their order.
        merged, waiting = [], list(range(len(queues)))
        begun = 0
        while waiting:
            index = rng.choice([each for each in waiting if each <= begun][-8:])
            begun = max(begun, index + 1)
            merged.append(queues[index].pop(0))
            if not queues[index]:
                waiting.remove(index)
                begun = max(begun, min(waiting, default=0))
            if rng.random() < 0.05:
                merged.append(_between(rng))
        whole, at = b"".join(merged), 0
        while at < len(whole):
            size = rng.choice([1, 9, 100, 5000, 100_000])
            client.writer.write(whole[at : at + size])
            at += size
            if rng.random() < 0.1:
                await client.writer.drain()
                await asyncio.sleep(0)
        async with asyncio.timeout(_SECONDS):
            await client.until_over(known)
        for number, each in known.items():
            answer = client.incoming.answers.pop(number, Answer())
            tally.statuses[str(answer.status)] += 1
            tally.messages += each.sent.messages
            if answer.status == StatusCode.INTERNAL or comparable(answer) != each.answer:
                tally.differences.append(
                    f"{each.sent}: expected {str(each.answer)[:400]}, got {str(comparable(answer))[:400]}; "
                    f"{client.incoming.goaway}"
                )
                return
    tally.connections += 1
    await _broken(client, rng, stream)


async def _broken(client: AsyncHttp2Client, rng: Random, stream: int) -> None:
    """Send what may end a connection."""
    call = sent(rng)
    found = b"".join(_frames(rng, call, stream, whole=False))
    for _ in range(rng.randrange(1, 5)):
        found = changed_bytes(rng, found)
    client.writer.write(found if rng.random() < 0.8 else rng.randbytes(300))
    await client.end()


async def fuzz_round(port: int, seed: int, connections: int = _CONNECTIONS, pool: int = _POOL) -> Tally:
    """Ask each call of a round alone, then many of them in random order on shared connections."""
    rng, tally = Random(seed), Tally()
    gate = asyncio.Semaphore(8)

    async def one(call: Sent) -> Known:
        async with gate, asyncio.timeout(_SECONDS):
            return await alone(port, call)

    known = await asyncio.gather(*(one(sent(rng)) for _ in range(pool)))
    tally.distinct = len({each.sent for each in known})

    async def share(own: Random) -> None:
        async with gate:
            await _shared(port, own, own.choices(known, k=own.randrange(1, 2 * _CALLS)), tally)

    await asyncio.gather(*(share(Random(rng.getrandbits(64))) for _ in range(connections)))
    return tally


def fuzz(folder: Path, run: Callable[[int, int], bool]) -> int:
    """Start a service, and call `run` with its gRPC port and process until it returns False. Return memory growth."""
    port = free_port()
    with started(folder / "log", *_OPTIONS, "--grpc-port", str(port)) as (_, process):
        before = memory(process.pid)["VmRSS"]
        while run(port, process.pid):
            pass
        return memory(process.pid)["VmHWM"] - before


def main() -> None:
    """Run rounds until there were enough messages."""
    messages, seed = (int(text) for text in (*sys.argv[1:], "300000", "0")[:2])
    total, began = Tally(), time.monotonic()

    def run(port: int, _: int) -> bool:
        nonlocal seed
        total.add(uvloop.run(fuzz_round(port, seed)))
        seed += 1
        print(
            f"{total.messages} messages on {total.connections} connections, {total.distinct} different calls; "
            f"{len(total.differences)} differences; {time.monotonic() - began:.0f} s",
            flush=True,
        )
        return total.messages < messages and not total.differences

    with tempfile.TemporaryDirectory() as folder:
        grown = fuzz(Path(folder), run)
    print("statuses: " + ", ".join(f"{status}: {count}" for status, count in sorted(total.statuses.items())))
    print(f"memory: {grown >> 20} MiB more at the peak")
    for difference in total.differences[:10]:
        print(difference)
    sys.exit(1 if total.differences or grown > BUDGET + (128 << 20) else 0)


if __name__ == "__main__":
    main()
