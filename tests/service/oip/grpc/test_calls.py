"""Calls frame by frame: prefixes, lengths, deadlines, windows, and what is no call of gRPC."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from requant.errors import RequantError
from requant_service.http2 import frames
from requant_service.http2.frames import ErrorCode, FrameType, frame, rst_stream, window_update
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.grpc.statuses import StatusCode, failure_of
from tests.conftest import Server
from tests.support.http2_client import Answer, Http2Client, call_of, data, head_of, headers, opening, prefixed
from tests.support.inference_messages import SERVICE, outputs_of, request_of

INFER, STREAM = f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ModelStreamInfer"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
TARGET = {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"}
X = np.array([0.25, 0.75, -1.5, 100], np.float32)
REQUEST = bytes(request_of("quantize", {"x": X}, TARGET).SerializeToString())
LARGE = bytes(request_of("quantize", {"x": np.tile(X, 500_000)}, TARGET).SerializeToString())


@pytest.fixture
def client(grpc_server: tuple[Server, str]) -> Iterator[Http2Client]:
    with Http2Client(grpc_server[1]) as connected:
        yield connected


def outputs(answered: bytes | bytearray) -> list[int]:
    reply = pb.ModelInferResponse.FromString(bytes(answered[5:]))
    assert len(answered) == 5 + int.from_bytes(answered[1:5], "big")
    found: list[int] = outputs_of(reply)["y"].tolist()
    return found


def test_every_class_of_error_has_a_status() -> None:
    classes = [RequantError]
    for each in classes:
        classes += each.__subclasses__()
    codes = {each.status: failure_of(RequantError("wrong"), "an-id", each.status).code for each in classes}
    assert (codes[409], codes[421]) == (StatusCode.ABORTED, StatusCode.PERMISSION_DENIED)


def test_a_call_in_one_byte_frames(client: Http2Client) -> None:
    client.send(headers(1, head_of(INFER)))
    for byte in prefixed(REQUEST):
        client.send(data(1, bytes([byte])))
    client.send(data(1, b"", frames.END_STREAM))
    answer = client.answer(1)
    assert (answer.status, outputs(answer.data)) == (0, [3, 5, 0, 127])
    assert dict(answer.fields)[b":status"] == b"200"


def test_a_call_split_at_every_byte_of_the_connection(client: Http2Client) -> None:
    sent = call_of(1, INFER, REQUEST, x_request_id="mine")
    for byte in sent:
        client.send(bytes([byte]))
    answer = client.answer(1)
    assert (answer.status, outputs(answer.data)) == (0, [3, 5, 0, 127])
    assert dict(answer.fields)[b"x-request-id"] == b"mine"


def test_padding_priority_and_continuations(client: Http2Client) -> None:
    block = head_of(INFER)
    flags = frames.PADDED | frames.PRIORITY
    sent = frame(FrameType.HEADERS, flags, 1, b"\x07" + bytes(4) + b"\x10" + block[:20] + bytes(7))
    sent += b"".join(frame(FrameType.CONTINUATION, 0, 1, block[at : at + 30]) for at in range(20, len(block), 30))
    sent += frame(FrameType.CONTINUATION, frames.END_HEADERS, 1, b"")
    message = prefixed(REQUEST)
    for at in range(0, len(message), 50):
        sent += frame(FrameType.DATA, frames.PADDED, 1, b"\xff" + message[at : at + 50] + bytes(255))
    client.send(sent + frame(FrameType.DATA, frames.PADDED | frames.END_STREAM, 1, b"\x03" + bytes(3)))
    answer = client.answer(1)
    assert (answer.status, outputs(answer.data)) == (0, [3, 5, 0, 127])


def test_streams_that_are_interleaved(client: Http2Client) -> None:
    streams = range(1, 64, 2)
    client.send(b"".join(headers(stream, head_of(INFER)) for stream in streams))
    message = prefixed(REQUEST)
    for at in range(0, len(message), 37):
        ends = frames.END_STREAM if at + 37 >= len(message) else 0
        client.send(b"".join(data(stream, message[at : at + 37], ends) for stream in streams))
    for stream in streams:
        assert outputs(client.answer(stream).data) == [3, 5, 0, 127]


@pytest.mark.parametrize("frame_bytes", [1000, 16_384, 1 << 20])
def test_a_large_message_gets_its_windows(client: Http2Client, frame_bytes: int) -> None:
    """Four times what has come is granted, or 256 KiB once 8 KiB have, and each byte once."""
    client.send(headers(1, head_of(INFER)))
    sent, message = 0, prefixed(LARGE)
    while sent < len(message):
        allowed = 16_384 + client.incoming.granted.get(1, 0)
        assert allowed <= 16_384 + (max(256 << 10, 4 * sent) if sent >= 8192 else 0)
        piece = message[sent : min(allowed, sent + frame_bytes)]
        sent += len(piece)
        client.send(data(1, piece, frames.END_STREAM if sent == len(message) else 0))
        while sent < len(message) and 16_384 + client.incoming.granted.get(1, 0) == sent:
            assert client.read()
    found = client.answer(1)
    assert (found.status, len(outputs(found.data))) == (0, 2_000_000)


def test_more_than_was_granted_ends_the_connection(client: Http2Client) -> None:
    client.send(headers(1, head_of(INFER)) + data(1, prefixed(LARGE)[:16_384]))
    client.send(frame(FrameType.DATA, 0, 1, bytes(1 << 20))[:9])
    found = client.until_closed()
    assert found.goaway is not None
    assert found.goaway[0] == ErrorCode.FLOW_CONTROL_ERROR


def test_a_reply_waits_for_windows(grpc_server: tuple[Server, str]) -> None:
    with Http2Client(grpc_server[1], window=0) as client:
        client.send(call_of(1, INFER, REQUEST))
        client.send(frame(FrameType.PING, 0, 0, bytes(8)))
        while not client.incoming.pings:
            assert client.read()
        whole = 0
        while not client.incoming.answers[1].ended:
            assert len(client.incoming.answers[1].data) == whole
            whole += 7
            client.send(window_update(1, 7))
            while len(client.incoming.answers[1].data) < whole and not client.incoming.answers[1].ended:
                assert client.read()
        assert outputs(client.incoming.answers[1].data) == [3, 5, 0, 127]


@pytest.mark.parametrize(
    ("sent", "status", "text"),
    [
        (prefixed(b"", 2), 3, "marked as compressed"),
        (prefixed(b"", 1), 3, "marked as compressed"),
        (b"\0\0", 3, "ends within a message"),
        (b"\0\0\0\0\x09abc", 3, "ends within a message"),
        (b"\0" + (100_000).to_bytes(4, "big") + bytes(16_000), 3, "ends within a message"),
        (b"", 3, "the call has no message"),
        (prefixed(b"") * 2, 3, "more than one message"),
        (prefixed(REQUEST) + b"\0", 3, "more than one message"),
        (b"\0" + (73 << 20).to_bytes(4, "big"), 8, "the message has 76546048 bytes; the limit is 75497472"),
        (b"\0\xff\xff\xff\xff", 8, "the message has 4294967295 bytes"),
    ],
)
def test_messages_that_are_none(client: Http2Client, sent: bytes, status: int, text: str) -> None:
    client.send(headers(1, head_of(INFER)) + data(1, sent, frames.END_STREAM))
    answer = client.answer(1)
    assert answer.status == status
    assert text in answer.detail
    assert {b"requant-code", b"x-request-id", b"requant-problem-bin"} <= dict(answer.fields).keys()


def test_a_message_in_two_parts_of_which_the_second_does_not_come(client: Http2Client) -> None:
    """The other calls of the connection go on, and nothing is held for it but what came."""
    client.send(headers(1, head_of(INFER)) + data(1, b"\0" + (60 << 20).to_bytes(4, "big") + b"abc"))
    client.send(call_of(3, INFER, REQUEST))
    assert client.answer(3).status == 0
    client.send(rst_stream(1, ErrorCode.CANCEL) + call_of(5, INFER, REQUEST))
    assert client.answer(5).status == 0


@pytest.mark.parametrize(
    ("path", "limit"),
    [(CHECK, 1024), (WATCH, 1024), (f"/{SERVICE}/ServerLive", 1024), (f"/{SERVICE}/ModelMetadata", 16_384)],
)
def test_short_messages(client: Http2Client, path: str, limit: int) -> None:
    client.send(headers(1, head_of(path)) + data(1, b"\0" + (limit + 1).to_bytes(4, "big")))
    answer = client.answer(1)
    assert (answer.status, answer.detail) == (8, f"the message has {limit + 1} bytes; the limit is {limit}")


@pytest.mark.parametrize(
    ("changed", "http", "status"),
    [
        ({"content-type": "application/json"}, b"415", None),
        ({"content-type": "application/grpc+proto"}, b"200", 0),
        ({"content-type": "application/grpcx"}, b"415", None),
        ({":method": "GET"}, b"405", None),
        ({":path": "/nope"}, b"200", 12),
        ({"grpc-encoding": "snappy"}, b"200", 12),
        ({"grpc-encoding": "identity"}, b"200", 0),
        ({"grpc-timeout": "100000000S"}, b"200", 3),
        ({"grpc-timeout": "1x"}, b"200", 3),
        ({"grpc-timeout": "99999999H"}, b"200", 0),
        ({"x": "y" * 40_000}, b"200", 8),
    ],
)
def test_header_fields(client: Http2Client, changed: dict[str, str], http: bytes, status: int | None) -> None:
    client.send(headers(1, head_of(INFER, [], without=[], **changed)) + data(1, prefixed(REQUEST), frames.END_STREAM))
    answer = client.answer(1)
    assert (dict(answer.fields)[b":status"], answer.status) == (http, status)


def test_without_te(client: Http2Client) -> None:
    client.send(headers(1, head_of(INFER, without=["te"])) + data(1, prefixed(REQUEST), frames.END_STREAM))
    assert client.answer(1).status == 3


def test_a_deadline_that_has_passed(client: Http2Client) -> None:
    began = time.monotonic()
    client.send(headers(1, head_of(INFER, grpc_timeout="50m")))
    assert client.answer(1).status == StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began > 0.04


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_messages(client: Http2Client, coding: str) -> None:
    def compress(given: bytes) -> bytes:
        return gzip.compress(given) if coding == "gzip" else zlib.compress(given)

    client.send(call_of(1, INFER, compress(REQUEST), flag=1, grpc_encoding=coding))
    assert outputs(client.answer(1).data) == [3, 5, 0, 127]
    client.send(call_of(3, INFER, REQUEST, flag=0, grpc_encoding=coding))
    assert outputs(client.answer(3).data) == [3, 5, 0, 127]
    for number, (sent, text) in enumerate(
        (
            (REQUEST, "the message is not"),
            (compress(REQUEST)[:-5], "the message ends before"),
            (compress(REQUEST) + b"x", "bytes after the end"),
        )
    ):
        stream = 5 + 2 * number
        client.send(call_of(stream, INFER, sent, flag=1, grpc_encoding=coding))
        assert text in client.answer(stream).detail
    client.send(call_of(11, CHECK, compress(bytes(100_000)), flag=1, grpc_encoding=coding))
    assert client.answer(11).detail == "the message exceeds the limit of 1024 bytes"


def test_a_stream_of_calls_that_come_at_once(client: Http2Client) -> None:
    """Messages wait in the stream while the ones before them are answered."""
    client.send(headers(1, head_of(STREAM)) + data(1, prefixed(REQUEST) * 30, frames.END_STREAM))
    answer = client.answer(1)
    assert answer.status == 0
    size = 5 + int.from_bytes(answer.data[1:5], "big")
    assert bytes(answer.data) == bytes(answer.data[:size]) * 30


def test_a_stream_of_large_messages(client: Http2Client) -> None:
    message = prefixed(LARGE[: len(LARGE)])
    client.send(headers(1, head_of(STREAM)))
    for count in range(1, 4):
        begun, sent = client.incoming.granted.get(1, 0), 0
        while sent < len(message):
            allowed = client.incoming.granted.get(1, 0) + 16_384 - (count - 1) * len(message)
            piece = message[sent : min(allowed, sent + (1 << 20))]
            sent += len(piece)
            client.send(data(1, piece))
            if not piece:
                assert client.read()
        assert client.incoming.granted[1] > begun
        while len(client.incoming.answers[1].data) < count * 2_000_000:
            assert client.read()
    client.send(data(1, b"", frames.END_STREAM))
    assert client.answer(1).status == 0


def test_watches_of_a_connection_are_few(client: Http2Client) -> None:
    for stream in range(1, 36, 2):
        client.send(call_of(stream, WATCH, b""))
    assert client.answer(33).status == StatusCode.UNAVAILABLE
    assert not client.incoming.answers[31].is_over
    assert bytes(client.incoming.answers[31].data) == prefixed(b"\x08\x01")


def test_watching_a_service_that_is_unknown(client: Http2Client) -> None:
    client.send(call_of(1, WATCH, b"\x0a\x04nope"))
    while len(client.incoming.answers.setdefault(1, Answer()).data) < 7:
        assert client.read()
    assert bytes(client.incoming.answers[1].data) == prefixed(b"\x08\x03")


def test_another_protocol(grpc_server: tuple[Server, str]) -> None:
    with Http2Client(grpc_server[1], greeting=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as client:
        assert client.until_closed().goaway is not None
    with Http2Client(grpc_server[1], greeting=opening()[:24] + call_of(1, INFER, REQUEST)) as client:
        assert client.until_closed().goaway == (ErrorCode.PROTOCOL_ERROR, b"the first frame is not SETTINGS")
