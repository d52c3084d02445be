"""Connections frame by frame: what ends them, what is answered, and what floods cost."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from requant_service.http2 import frames
from requant_service.http2.frames import ErrorCode, FrameType, frame, rst_stream, window_update
from requant_service.oip.grpc.wire_format import MAX_FIELDS
from tests.conftest import Server, free_port, started
from tests.service.oip.grpc.test_calls import CHECK, INFER, REQUEST, STREAM, TARGET, WATCH, outputs
from tests.support.http2_client import Answer, Http2Client, call_of, data, head_of, headers, prefixed
from tests.support.inference_messages import SERVICE, request_of

HALF = headers(1, head_of(INFER), 0)
OPEN = headers(1, head_of(INFER))
FOUR_MEGABYTES = bytes(request_of("quantize", {"x": np.zeros(1_000_000, np.float32)}, TARGET).SerializeToString())


@pytest.fixture
def client(grpc_server: tuple[Server, str]) -> Iterator[Http2Client]:
    with Http2Client(grpc_server[1]) as connected:
        yield connected


BROKEN = {
    "DATA on stream 0": (data(0, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA on a stream that is not open": (data(1, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA after the end": (OPEN + data(1, prefixed(b"")[:3], frames.END_STREAM) + data(1, b"x"), None),
    "a padding longer than its frame": (OPEN + frame(0, frames.PADDED, 1, b"\x09abc"), ErrorCode.PROTOCOL_ERROR),
    "a frame of 16 MB": (b"\xff\xff\xff\x01\x04\0\0\0\1", ErrorCode.FRAME_SIZE_ERROR),
    "a DATA frame of 16 MB": (OPEN + b"\xff\xff\xff\0\0\0\0\0\1", ErrorCode.FRAME_SIZE_ERROR),
    "an even stream": (headers(2, head_of(INFER)), ErrorCode.PROTOCOL_ERROR),
    "HEADERS within a block": (HALF + headers(3, head_of(INFER)), ErrorCode.PROTOCOL_ERROR),
    "PING within a block": (HALF + frame(FrameType.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "DATA within a block": (HALF + data(1, b""), ErrorCode.PROTOCOL_ERROR),
    "CONTINUATION of nothing": (frame(FrameType.CONTINUATION, 4, 1, b""), ErrorCode.PROTOCOL_ERROR),
    "a block without end": (HALF + frame(FrameType.CONTINUATION, 0, 1, bytes(16_000)) * 5, ErrorCode.ENHANCE_YOUR_CALM),
    "empty CONTINUATIONs": (HALF + frame(FrameType.CONTINUATION, 0, 1) * 2000, ErrorCode.ENHANCE_YOUR_CALM),
    "no HPACK": (headers(1, b"\xff\xff\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
    "a header list of 200 KB in 6 KB": (
        headers(1, b"\x40\x01a\x7f\xb1\x17" + b"b" * 3120 + b"\xbe" * 60),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "PUSH_PROMISE": (frame(FrameType.PUSH_PROMISE, 4, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "a PING of 7 bytes": (frame(FrameType.PING, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "SETTINGS of 5 bytes": (frame(FrameType.SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
    "a window of 2^31": (frame(FrameType.SETTINGS, 0, 0, b"\0\4\x80\0\0\0"), ErrorCode.FLOW_CONTROL_ERROR),
    "a maximum frame of 1": (frame(FrameType.SETTINGS, 0, 0, b"\0\5\0\0\0\1"), ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE by 0": (window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
    "windows beyond 2^31": (window_update(0, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "RST_STREAM of nothing": (rst_stream(1, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR),
    "HEADERS in the middle of a stream": (OPEN + OPEN, ErrorCode.PROTOCOL_ERROR),
    "20,000 PINGs": (frame(FrameType.PING, 0, 0, bytes(8)) * 20_000, ErrorCode.ENHANCE_YOUR_CALM),
    "2,000 SETTINGS": (frame(FrameType.SETTINGS, 0, 0) * 2_000, ErrorCode.ENHANCE_YOUR_CALM),
    "20,000 WINDOW_UPDATEs": (window_update(0, 1) * 20_000, ErrorCode.ENHANCE_YOUR_CALM),
    "20,000 empty DATA": (OPEN + data(1, b"") * 20_000, ErrorCode.ENHANCE_YOUR_CALM),
    "20,000 PRIORITYs": (frame(FrameType.PRIORITY, 0, 1, bytes(5)) * 20_000, ErrorCode.ENHANCE_YOUR_CALM),
    "20,000 unknown frames": (frame(99, 0, 1, b"") * 20_000, ErrorCode.ENHANCE_YOUR_CALM),
    "400 resets": (
        b"".join(headers(n, head_of(INFER)) + rst_stream(n, ErrorCode.CANCEL) for n in range(1, 801, 2)),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_ends_a_connection(client: Http2Client, grpc_server: tuple[Server, str], name: str) -> None:
    sent, code = BROKEN[name]
    with contextlib.suppress(ConnectionError):
        client.send(sent)
    if code is None:
        # Either is right: the stream was answered before.
        client.answer(1)
        return
    found = client.until_closed()
    assert found.goaway is not None
    assert found.goaway[0] == code, found.goaway
    with Http2Client(grpc_server[1]) as other:
        other.send(call_of(1, INFER, REQUEST))
        assert outputs(other.answer(1).data) == [3, 5, 0, 127]


@pytest.mark.parametrize(
    "fields",
    [
        [("Upper", "x")],
        [("a b", "x")],
        [("x", "a\nb")],
        [("x", " a")],
        [(":path", "/x")],
        [("connection", "close")],
        [("te", "gzip")],
    ],
)
def test_header_fields_that_are_none(client: Http2Client, fields: list[tuple[str, str]]) -> None:
    """The stream ends, and no other."""
    client.send(headers(1, head_of(INFER, fields)) + call_of(3, INFER, REQUEST))
    assert client.answer(3).status == 0
    assert client.incoming.answers[1].reset == ErrorCode.PROTOCOL_ERROR


def test_streams_beyond_the_limit_are_refused(client: Http2Client) -> None:
    client.send(b"".join(headers(number, head_of(STREAM)) for number in range(1, 261, 2)))
    assert client.answer(257).reset == ErrorCode.REFUSED_STREAM
    assert not client.incoming.answers.get(255) or not client.incoming.answers[255].is_over
    client.send(data(1, prefixed(REQUEST), frames.END_STREAM))
    assert client.answer(1).status == 0


@pytest.mark.exhaustive
def test_a_head_that_does_not_go_on(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("--drain-seconds", "0", "--grpc-port", str(port), "--head-seconds", "1", "--body-seconds", "1")
    with started(tmp_path / "log", *arguments):
        address = f"127.0.0.1:{port}"
        with (
            Http2Client(address, greeting=b"PRI *") as silent,
            Http2Client(address) as half,
            Http2Client(address) as late,
        ):
            assert half.read()
            half.send(HALF)
            late.send(OPEN + data(1, prefixed(REQUEST)[:20]))
            began = time.monotonic()
            assert half.until_closed().goaway == (ErrorCode.ENHANCE_YOUR_CALM, b"a frame did not arrive in time")
            silent.until_closed()
            assert late.answer(1).detail == "the message did not arrive in time"
            assert time.monotonic() - began < 10


def test_memory_is_shared_by_connections(tmp_path: Path) -> None:
    """A connection that fills the budget with messages that it does not end loses one of them to another."""
    port = free_port()
    arguments = ("--drain-seconds", "0", "--grpc-port", str(port), "--memory-bytes", str(100 << 20))
    x = np.zeros(1_000_000, np.float32)
    message = prefixed(bytes(request_of("quantize", {"x": x}, TARGET).SerializeToString()))
    with started(tmp_path / "log", *arguments):
        address = f"127.0.0.1:{port}"
        with Http2Client(address) as greedy, grpc.insecure_channel(address) as channel:
            for stream in (1, 3):
                greedy.send(headers(stream, head_of(INFER)))
                whole, at = b"\0" + (60 << 20).to_bytes(4, "big") + bytes(16 << 20), 0
                while at < len(whole) and not greedy.incoming.answers.setdefault(stream, Answer()).is_over:
                    allowed = min(len(whole), 16_384 + greedy.incoming.granted.get(stream, 0))
                    greedy.send(data(stream, whole[at : min(allowed, at + (1 << 20))]))
                    at = min(allowed, at + (1 << 20))
                    if at == allowed < len(whole):
                        assert greedy.read()
            for stream in range(5, 251, 2):
                greedy.send(headers(stream, head_of(INFER)) + data(stream, whole[:8200]))
            greedy.send(frame(FrameType.PING, 0, 0, bytes(8)))
            while not greedy.incoming.pings:
                assert greedy.read()
            infer = channel.unary_unary(INFER)
            for _ in range(5):
                assert len(infer(message[5:], timeout=30)) > 1_000_000


def test_messages_of_a_connection_need_a_window_once(client: Http2Client) -> None:
    """The window of new streams grows to what messages were sent, up to 4 MiB, and that of open ones with it."""
    message, streams = prefixed(FOUR_MEGABYTES), (1, 3, 5)
    # The server's first settings have to be acknowledged.
    assert client.read()
    for stream in streams[:2]:
        client.send(headers(stream, head_of(INFER)))
    client.send(data(1, message[:16_384]))
    while client.incoming.initial_window < len(message):
        assert client.read()
    assert client.incoming.initial_window == 1 << 22
    client.send(data(1, message[16_384:1_000_000]) + data(1, message[1_000_000:2_000_000]))
    client.send(data(3, message[:1_000_000]) + data(1, message[2_000_000:3_000_000]))
    client.send(data(1, message[3_000_000:], frames.END_STREAM))
    for at in range(1_000_000, len(message), 1_000_000):
        client.send(data(3, message[at : at + 1_000_000], frames.END_STREAM if at + 1_000_000 > len(message) else 0))
    client.send(headers(5, head_of(INFER)))
    for at in range(0, len(message), 1_000_000):
        client.send(data(5, message[at : at + 1_000_000], frames.END_STREAM if at + 1_000_000 > len(message) else 0))
    for stream in streams:
        assert len(outputs(client.answer(stream).data)) == 1_000_000
    assert not client.incoming.granted.keys() & set(streams)


@pytest.mark.exhaustive
def test_windows_shrink_when_memory_is_scarce(tmp_path: Path) -> None:
    """What was sent in a large window is refused where it has no memory; then the window is the smallest again."""
    port = free_port()
    arguments = ("--drain-seconds", "0", "--grpc-port", str(port), "--memory-bytes", str(64 << 20))
    message = prefixed(FOUR_MEGABYTES)
    address = f"127.0.0.1:{port}"
    with started(tmp_path / "log", *arguments), Http2Client(address) as quick, Http2Client(address) as greedy:
        assert quick.read()
        quick.send(headers(1, head_of(INFER)) + data(1, message[:16_384]))
        while quick.incoming.initial_window < len(message):
            assert quick.read()
        for at in range(16_384, len(message), 1_000_000):
            quick.send(data(1, message[at : at + 1_000_000], frames.END_STREAM if at + 1_000_000 > len(message) else 0))
        assert quick.answer(1).status == 0
        # Of this one the client has all windows that it needs, and keeps them.
        quick.send(headers(3, head_of(INFER)) + data(3, message[:20]))
        # Another takes all of the memory, in messages that do not end.
        whole = b"\0" + (40 << 20).to_bytes(4, "big") + bytes(39 << 20)
        sent = dict.fromkeys(range(1, 9, 2), 0)
        for stream in sent:
            greedy.send(headers(stream, head_of(INFER)))
        for stream in itertools.cycle(sent):
            allowed = min(len(whole), 16_384 + greedy.incoming.granted.get(stream, 0), sent[stream] + (1 << 20))
            greedy.send(data(stream, whole[sent[stream] : allowed]))
            sent[stream] = allowed
            if sum(sent.values()) > 48 << 20:
                break
            greedy.send(frame(FrameType.PING, 0, 0, bytes(8)))
            pings = greedy.incoming.pings
            while greedy.incoming.pings == pings:
                assert greedy.read()
        for stream in range(5, 45, 2):
            quick.send(headers(stream, head_of(INFER)) + data(stream, message[:1_000_000]))
        while quick.incoming.initial_window != 1 << 14 or not any(
            (answer.status, "larger window" in answer.detail) == (14, True)
            for answer in quick.incoming.answers.values()
        ):
            assert quick.read()
        quick.send(frame(FrameType.PING, 0, 0, bytes(8)))
        while not quick.incoming.pings:
            assert quick.read()
        assert quick.incoming.initial_window + quick.incoming.granted.get(3, 0) >= len(message)


def test_a_shorter_message_of_a_stream_leaves_the_windows(client: Http2Client) -> None:
    assert client.read()
    client.send(headers(1, head_of(STREAM)))
    whole = prefixed(FOUR_MEGABYTES)
    shorter = prefixed(bytes(request_of("quantize", {"x": np.zeros(75_000, np.float32)}, TARGET).SerializeToString()))
    sent = whole + shorter
    at = 0
    while at < len(sent):
        allowed = client.incoming.initial_window + client.incoming.granted.get(1, 0)
        piece = sent[at : min(allowed, at + (1 << 20))]
        if at < len(whole) <= at + len(piece):
            piece = piece[: len(whole) - at]
        client.send(data(1, piece))
        at += len(piece)
        # After the first message has its reply, the second one begins with the smallest window.
        while (at == len(whole) and len(client.incoming.answers.setdefault(1, Answer()).data) < 1_000_000) or (
            at < len(sent) and at >= client.incoming.initial_window + client.incoming.granted.get(1, 0)
        ):
            assert client.read()
    client.send(data(1, b"", frames.END_STREAM))
    assert client.answer(1).status == 0
    assert client.incoming.initial_window == 1 << 22


@pytest.mark.exhaustive
def test_busy_streams_end_with_the_drain(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("--drain-seconds", "0.5", "--shutdown-seconds", "20", "--grpc-port", str(port))
    with started(tmp_path / "log", *arguments) as (_, process), Http2Client(f"127.0.0.1:{port}") as client:
        client.send(headers(1, head_of(STREAM)) + call_of(3, WATCH, b""))
        began = time.monotonic()
        process.terminate()
        with contextlib.suppress(ConnectionError):
            while not client.incoming.answers.get(1) or not client.incoming.answers[1].is_over:
                client.send(data(1, prefixed(REQUEST)))
                client.read()
        assert client.incoming.answers[1].detail == "the service is stopping"
        assert client.answer(3).detail == "the service is stopping"
        process.wait(timeout=30)
        assert time.monotonic() - began < 8


def test_nested_fields_are_counted(client: Http2Client) -> None:
    contents = b"\x42\0" * (MAX_FIELDS + 1)
    inner = (
        b"\x2a" + bytes([len(contents) & 0x7F | 0x80, len(contents) >> 7 & 0x7F | 0x80, len(contents) >> 14]) + contents
    )
    outer = b"\x2a" + bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7 & 0x7F | 0x80, len(inner) >> 14]) + inner
    message, at = prefixed(outer), 0
    client.send(headers(1, head_of(INFER)))
    while at < len(message):
        piece = message[at : 16_384 + client.incoming.granted.get(1, 0)]
        at += len(piece)
        client.send(data(1, piece, frames.END_STREAM if at == len(message) else 0))
        if at < len(message):
            assert client.read()
    answer = client.answer(1)
    assert (answer.status, answer.detail) == (8, f"the message has more than {MAX_FIELDS} fields in all")


def test_a_check_without_a_message_takes_no_place(client: Http2Client) -> None:
    client.send(b"".join(headers(number, head_of(CHECK)) for number in range(1, 201, 2)))
    client.send(call_of(201, INFER, REQUEST) + call_of(203, f"/{SERVICE}/ServerReady", b""))
    assert client.answer(201).status == 0
    assert client.answer(203).status == 0
