"""Calls over gRPC at as little cost as in `benchmarks.http.client`: messages made beforehand, and replies only counted.

tritonclient takes more CPU time for a call of 1 KB than the server. As with gRPC's C core, on which it is built, frames
are as large as the server takes, header fields are indices of HPACK's table from the second call on, the windows for
replies never close, and the server's windows and pings are heeded.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from struct import unpack_from
from typing import Any

from hpack import Decoder, Encoder

from benchmarks.http.case import HEADER_BYTES, Case
from requant_service.http2 import frames
from requant_service.http2.frames import HEAD_BYTES, MAX_WINDOW, MIN_MAX_FRAME, FrameType, Setting, frame, frame_head
from requant_service.oip.grpc import inference_pb2 as pb

_PATH = "/inference.GRPCInferenceService/ModelInfer"
# Frames that are sent at once: two buffers each, of which the system takes 1024.
_MOST_FRAMES = 64
_PREFIX_BYTES = 5
_ROOM = 1 << 18


def message_of(case: Case, model: str, parameters: Mapping[str, str]) -> bytes:
    """Return the message that has the case converted by a model."""
    request = pb.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=[case.elements])
    request.raw_input_contents.append(case.npy[HEADER_BYTES:])
    for name, value in parameters.items():
        request.parameters[name].string_param = value
    message: bytes = request.SerializeToString()
    return message


def check(case: Case, message: bytes) -> None:
    """Raise AssertionError unless the reply holds the expected numbers."""
    (found,) = pb.ModelInferResponse.FromString(message).raw_output_contents
    assert found == case.expected[HEADER_BYTES:], "the bits differ"


class Connection:
    """One connection on which one call is made again and again."""

    def __init__(self, port: int, message: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = frames.settings_frame([(Setting.INITIAL_WINDOW_SIZE, MAX_WINDOW)])
        grant = frames.window_update(0, MAX_WINDOW - frames.DEFAULT_WINDOW)
        self.socket.sendall(frames.PREFACE + settings + grant)
        self.begun = 0.0
        self.events = 0
        self.body_bytes = 0
        self._message = memoryview(len(message).to_bytes(_PREFIX_BYTES, "big") + message)
        self._encoder = Encoder()
        self._fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", f"127.0.0.1:{port}"),
            (":path", _PATH),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("user-agent", "requant-benchmark"),
        ]
        self._stream = -1
        # Of the server's windows: what is left of the connection's and of the call's, and what a new call has.
        self._window = self._window_of_call = self._window_of_calls = frames.DEFAULT_WINDOW
        self._max_frame = MIN_MAX_FRAME
        # What is being sent, what of the message comes after it, and frames that come before that.
        self._sent: list[bytes | memoryview] = []
        self._at = 0
        self._control = b""
        self._received = self._received_since_grant = 0
        self._rest = b""
        self._skipped = 0
        self._is_complete = False

    def exchange(self) -> bytes:
        """Make the first call. Return the message of its reply; raise unless its status is 0."""
        self.begin()
        received = bytearray()
        room = bytearray(_ROOM)
        while not self._is_complete:
            if self.events & select.EPOLLOUT:
                self._send()
            else:
                count = self.socket.recv_into(room)
                assert count, "the server has hung up"
                received += room[:count]
                self._read(room[:count])
                self._send()
        self.body_bytes = self._received
        return _reply(received)

    def begin(self) -> None:
        """Begin a call: see `benchmarks.http.client.Exchanging`."""
        self._stream += 2
        self._window_of_call = self._window_of_calls
        self._received, self._is_complete = 0, False
        self._at = 0
        # Once they were sent, the fields are in HPACK's table, and the block is always the same.
        if self._stream < 5:
            self._block = self._encoder.encode(self._fields)
        self._control += frame(FrameType.HEADERS, frames.END_HEADERS, self._stream, self._block)
        self._send()

    def proceed(self, room: bytearray) -> bool:
        """Receive and send what can be: see `benchmarks.http.client.Exchanging`."""
        try:
            count = self.socket.recv_into(room)
        except BlockingIOError:
            pass
        else:
            assert count, "the server has hung up"
            self._read(memoryview(room)[:count])
        if not self._is_complete:
            self._send()
            return False
        assert self._received == self.body_bytes, f"the reply has {self._received} bytes instead of {self.body_bytes}"
        return True

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def _send(self) -> None:
        """Send as much as the windows allow and the socket takes."""
        while self._sent or self._next():
            try:
                count = self.socket.sendmsg(self._sent)
            except BlockingIOError:
                break
            while self._sent and count >= len(self._sent[0]):
                count -= len(self._sent.pop(0))
            if count:
                self._sent[0] = memoryview(self._sent[0])[count:]
        self.events = select.EPOLLIN | (select.EPOLLOUT if self._sent else 0)

    def _next(self) -> bool:
        """Take the next frames, as far as the windows have room. Return whether there are any."""
        if self._control:
            self._sent.append(self._control)
            self._control = b""
        count = len(self._message)
        for _ in range(_MOST_FRAMES):
            # A setting can make a window negative.
            size = min(count - self._at, self._window, self._window_of_call, self._max_frame)
            if size <= 0:
                break
            after = self._at + size
            flags = frames.END_STREAM if after == count else 0
            self._sent += (frame_head(size, FrameType.DATA, flags, self._stream), self._message[self._at : after])
            self._at = after
            self._window -= size
            self._window_of_call -= size
        return bool(self._sent)

    def _read(self, data: bytes | bytearray | memoryview) -> None:
        """Read the frames in what came."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        end, at = len(data), self._skipped
        while at + HEAD_BYTES <= end:
            first, flags, stream = unpack_from(">IBI", data, at)
            length, kind = first >> 8, first & 0xFF
            after = at + HEAD_BYTES + length
            if kind == FrameType.DATA:
                self._received += length
            elif after > end:
                break
            elif kind == FrameType.HEADERS:
                self._is_complete = bool(flags & frames.END_STREAM)
            else:
                self._take(kind, flags, stream, bytes(data[at + HEAD_BYTES : after]))
            at = after
        if at < end:
            self._rest = bytes(data[at:])
        self._skipped = max(0, at - end)
        if self._is_complete:
            self._grant()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Take a frame that is about the connection."""
        assert kind not in (FrameType.RST_STREAM, FrameType.GOAWAY), f"the server ends the call: {payload!r}"
        if kind == FrameType.WINDOW_UPDATE:
            increment = int.from_bytes(payload, "big")
            if not stream:
                self._window += increment
            elif stream == self._stream:
                self._window_of_call += increment
        elif kind == FrameType.PING and not flags & frames.ACK:
            self._control += frame(FrameType.PING, frames.ACK, 0, payload)
        elif kind == FrameType.SETTINGS and not flags & frames.ACK:
            for at in range(0, len(payload), 6):
                name, value = unpack_from(">HI", payload, at)
                if name == Setting.INITIAL_WINDOW_SIZE:
                    self._window_of_call += value - self._window_of_calls
                    self._window_of_calls = value
                elif name == Setting.MAX_FRAME_SIZE:
                    self._max_frame = value
            self._control += frame(FrameType.SETTINGS, frames.ACK, 0)

    def _grant(self) -> None:
        """Open the connection's receive window again, long before it is closed."""
        self._received_since_grant += self._received
        if self._received_since_grant > MAX_WINDOW // 4:
            self._control += frames.window_update(0, self._received_since_grant)
            self._received_since_grant = 0


def _reply(received: bytearray) -> bytes:
    """Return the message in the frames of a connection with one call, whose status has to be 0."""
    decoder, message, at = Decoder(), bytearray(), 0
    fields: list[Any] = []
    while at < len(received):
        first, _, _ = unpack_from(">IBI", received, at)
        payload = received[at + HEAD_BYTES : at + HEAD_BYTES + (first >> 8)]
        at += HEAD_BYTES + len(payload)
        if first & 0xFF == FrameType.DATA:
            message += payload
        elif first & 0xFF == FrameType.HEADERS:
            fields += decoder.decode(bytes(payload))
    assert ("grpc-status", "0") in fields, fields
    return bytes(message[_PREFIX_BYTES:])
