"""Sends messages cut, pipelined and beside large replies, and compares each reply with that of a fresh connection."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from random import Random

from tests.wire.messages import LAST, Message, large, last, whole

# How many different messages of each kind a round has, and how many connections.
_POOL, _LARGE_POOL, _LAST_POOL, _CONNECTIONS = 1000, 6, 100, 400
_AT_ONCE = 24
_MAX_MESSAGES = 500
_LARGE_SHARE = 0.15
_SECONDS = 300.0

# What is never the same twice.
_OWN = re.compile(
    rb'(?<=\r\n)(?:server-timing: [^\r\n]*|date: [^\r\n]*|x-request-id: [0-9a-f]{32})\r\n|"request_id":"[0-9a-f]{32}"'
)


@dataclass
class Tally:
    """What was seen. `differences` are to stay empty."""

    messages: int = 0
    connections: int = 0
    distinct: int = 0
    bytes: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what another saw."""
        self.messages += other.messages
        self.connections += other.connections
        self.distinct += other.distinct
        self.bytes += other.bytes
        self.statuses += other.statuses
        self.differences += other.differences


@dataclass(frozen=True)
class Known:
    """What is sent, and what came back for it on a connection of its own."""

    sent: bytes
    reply: bytes


def comparable(received: bytes) -> bytes:
    """Leave out of replies what is never the same twice."""
    return _OWN.sub(b"", received)


async def _connect(port: int, receive_buffer: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=connection, limit=1 << 22)


async def _one_reply(reader: asyncio.StreamReader, method: str) -> bytes:
    """Read one reply, with the interim ones before it."""
    head = b""
    while not head or b" 100 " in head[-100:].partition(b"HTTP/1.1")[2][:6]:
        head += await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: ([0-9]+)", head)
    assert length is not None, head
    return head + (b"" if method == "HEAD" else await reader.readexactly(int(length[1])))


async def alone(port: int, message: Message) -> Known:
    """Send one message on a connection of its own, and read its reply."""
    reader, writer = await _connect(port)
    writer.write(message.sent)
    try:
        reply = await _one_reply(reader, message.method)
    except asyncio.IncompleteReadError as error:
        reply = error.partial
    writer.close()
    return Known(message.sent, comparable(reply))


async def alone_to_the_end(port: int, sent: bytes) -> Known:
    """Send the end of a connection on one of its own, and read all that comes."""
    reader, writer = await _connect(port)
    writer.write(sent)
    reply = b""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 18):
            reply += data
    writer.close()
    return Known(sent, comparable(reply))


def _cut(rng: Random, sent: bytes) -> list[bytes]:
    """Cut what is sent: not at all, anywhere, or into small pieces for a while."""
    way = rng.random()
    if way < 0.3:
        return [sent]
    if way < 0.85:
        places = sorted(rng.randrange(len(sent) + 1) for _ in range(rng.randrange(1, 30)))
    else:
        start = rng.randrange(len(sent))
        places = list(range(start, min(len(sent), start + rng.choice((60, 300))), rng.choice((1, 2, 3, 17))))
    return [sent[a:b] for a, b in zip([0, *places], [*places, len(sent)], strict=True) if a < b]


async def _pipelined(port: int, rng: Random, parts: list[Known], tally: Tally) -> None:
    """Send all parts on one connection, each when the one before it is answered or all at once, and compare replies."""
    slow = rng.random() < 0.3
    one_by_one = rng.random() < 0.3
    reader, writer = await _connect(port, 8192 if slow else 0)
    received = bytearray()

    async def send() -> None:
        expected = 0
        with contextlib.suppress(ConnectionError):
            for sent in [part.sent for part in parts] if one_by_one else [b"".join(part.sent for part in parts)]:
                for piece in [sent] if one_by_one and rng.random() < 0.7 else _cut(rng, sent):
                    writer.write(piece)
                    await writer.drain()
                    if rng.random() < 0.1:
                        await asyncio.sleep(rng.choice((0, 1e-3)))
                if one_by_one:
                    while received.count(b"HTTP/1.1 ") == expected:
                        await asyncio.sleep(2e-4)
                    expected = received.count(b"HTTP/1.1 ")

    sending = asyncio.create_task(send())
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            received += data
            if slow:
                await asyncio.sleep(1e-3)
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending
    writer.close()

    found, at = comparable(bytes(received)), 0
    for number, part in enumerate(parts):
        reply = found[at : at + len(part.reply)]
        if reply != part.reply:
            shown = f"expected {part.reply[:300]!r}, got {reply[:300]!r}"
            before = parts[number - 1].sent[-300:] if number else b""
            tally.differences.append(f"{number} of {len(parts)}: after {before!r}, {part.sent[:300]!r}: {shown}")
            break
        at += len(part.reply)
        tally.statuses[int(reply[9:12] or 0)] += 1
    else:
        if at != len(found):
            tally.differences.append(f"after {len(parts)} messages: {found[at : at + 300]!r}")
    tally.messages += len(parts)
    tally.connections += 1
    tally.bytes += len(received)


async def fuzz_round(port: int, seed: int, connections: int = _CONNECTIONS) -> Tally:
    """Ask each message of a round alone, then all of them in random order on shared connections."""
    rng, tally = Random(seed), Tally()

    async def gated(gate: asyncio.Semaphore, job: Awaitable[Known]) -> Known:
        async with gate, asyncio.timeout(_SECONDS):
            return await job

    async def known(jobs: Iterable[Awaitable[Known]], at_once: int = _AT_ONCE) -> list[Known]:
        gate = asyncio.Semaphore(at_once)
        return await asyncio.gather(*(gated(gate, job) for job in jobs))

    pool = await known([alone(port, whole(rng)) for _ in range(_POOL)])
    big = await known([alone(port, large(rng)) for _ in range(_LARGE_POOL)])
    # Some of them end with their time only.
    ends = await known([alone_to_the_end(port, last(rng)) for _ in range(_LAST_POOL)], _LAST_POOL)
    ends += await known([alone_to_the_end(port, LAST)])
    tally.distinct = len(pool) + len(big) + len(ends)

    # After a reply that says so there is no other.
    pool = [each for each in pool if b"\r\nconnection: close\r\n" not in each.reply]

    async def one(own: Random) -> Known:
        parts = own.choices(pool, k=int(_MAX_MESSAGES ** own.random()))
        # A client mostly sends again what it has just sent.
        parts = [each for part in parts for each in [part] * own.choice((1, 1, 1, 2, 4))]
        if own.random() < _LARGE_SHARE:
            parts.insert(own.randrange(len(parts) + 1), own.choice(big))
        await _pipelined(port, own, [*parts, own.choice(ends)], tally)
        return ends[-1]

    await known([one(Random(rng.getrandbits(64))) for _ in range(connections)])
    return tally
