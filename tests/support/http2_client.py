"""A client of HTTP/2 that sends what it is told to, frame by frame, and reads what comes: for tests of the gRPC port.

It keeps no flow control of its own: windows are opened wide at the start, unless a test says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import unpack

from hpack import Decoder

from requant_service.http2 import frames
from requant_service.http2.frames import FrameType, Setting, frame, literal_field

Pairs = Sequence[tuple[str, str]]


@dataclass
class Answer:
    """What came on one stream."""

    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    reset: int | None = None
    ended: bool = False

    @property
    def status(self) -> int | None:
        """The status of the call, None if there is none."""
        found = dict(self.fields).get(b"grpc-status")
        return None if found is None else int(found)

    @property
    def detail(self) -> str:
        """The text of the status."""
        return dict(self.fields).get(b"grpc-message", b"").decode()

    @property
    def is_over(self) -> bool:
        return self.ended or self.reset is not None


@dataclass
class Incoming:
    """The frames of a server, as they come."""

    answers: dict[int, Answer] = field(default_factory=dict)
    granted: dict[int, int] = field(default_factory=dict)
    goaway: tuple[int, bytes] | None = None
    pings: int = 0
    initial_window: int = frames.DEFAULT_WINDOW
    decoder: Decoder = field(default_factory=Decoder)
    _rest: bytes = b""

    def add(self, data: bytes) -> bytes:
        """Read what came. Return what a client has to answer: acknowledgements."""
        rest, replies = self._rest + data, b""
        while len(rest) >= 9 and len(rest) >= 9 + (length := int.from_bytes(rest[:3], "big")):
            kind, flags, number = rest[3], rest[4], int.from_bytes(rest[5:9], "big")
            payload, rest = rest[9 : 9 + length], rest[9 + length :]
            answer = self.answers.setdefault(number, Answer())
            if kind == FrameType.HEADERS:
                answer.fields += [(bytes(name), bytes(value)) for name, value in self.decoder.decode(payload, raw=True)]
            elif kind == FrameType.DATA:
                answer.data += payload
            elif kind == FrameType.RST_STREAM:
                answer.reset = int.from_bytes(payload, "big")
            elif kind == FrameType.WINDOW_UPDATE:
                self.granted[number] = self.granted.get(number, 0) + int.from_bytes(payload, "big")
            elif kind == FrameType.GOAWAY:
                self.goaway = int.from_bytes(payload[4:8], "big"), payload[8:]
            elif kind == FrameType.SETTINGS and not flags & frames.ACK:
                settings = dict(unpack(">HI", payload[at : at + 6]) for at in range(0, length, 6))
                self.initial_window = settings.get(Setting.INITIAL_WINDOW_SIZE, self.initial_window)
                replies += frame(FrameType.SETTINGS, frames.ACK, 0)
            elif kind == FrameType.PING and flags & frames.ACK:
                self.pings += 1
            elif kind == FrameType.PING:
                replies += frame(FrameType.PING, frames.ACK, 0, payload)
            if kind in (FrameType.HEADERS, FrameType.DATA) and flags & frames.END_STREAM:
                answer.ended = True
        self._rest = rest
        return replies


def opening(window: int = frames.MAX_WINDOW) -> bytes:
    """What a client sends first."""
    wide = b"" if window < frames.DEFAULT_WINDOW else frames.window_update(0, 1 << 30)
    return frames.PREFACE + frames.settings_frame([(Setting.INITIAL_WINDOW_SIZE, window)]) + wide


def head_of(path: str, metadata: Pairs = (), *, without: Iterable[str] = (), **changed: str) -> bytes:
    """The header block of a call."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers"}
    fields |= {"content-type": "application/grpc"} | {name.replace("_", "-"): value for name, value in changed.items()}
    pairs = [(name, value) for name, value in fields.items() if name not in without]
    return b"".join(literal_field(name.encode(), value.encode()) for name, value in (*pairs, *metadata))


def headers(stream: int, block: bytes, flags: int = frames.END_HEADERS) -> bytes:
    """A HEADERS frame."""
    return frame(FrameType.HEADERS, flags, stream, block)


def data(stream: int, payload: bytes, flags: int = 0) -> bytes:
    """A DATA frame."""
    return frame(FrameType.DATA, flags, stream, payload)


def prefixed(message: bytes, flag: int = 0) -> bytes:
    """A message with its prefix."""
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def call_of(stream: int, path: str, message: bytes, metadata: Pairs = (), flag: int = 0, **changed: str) -> bytes:
    """The frames of a whole call, of which the message is small."""
    return headers(stream, head_of(path, metadata, **changed)) + data(
        stream, prefixed(message, flag), frames.END_STREAM
    )


class Http2Client:
    """A connection on a blocking socket."""

    def __init__(self, address: str, window: int = frames.MAX_WINDOW, *, greeting: bytes | None = None) -> None:
        host, _, port = address.partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.incoming = Incoming()
        self.send(opening(window) if greeting is None else greeting)

    def send(self, sent: bytes) -> None:
        self.socket.sendall(sent)

    def read(self) -> bool:
        """Read once. Return whether something came."""
        try:
            received = self.socket.recv(1 << 18)
            if received and (replies := self.incoming.add(received)):
                self.socket.sendall(replies)
        except (ConnectionError, TimeoutError):
            return False
        return bool(received)

    def answer(self, stream: int) -> Answer:
        """Read until a stream is over, or the connection."""
        while not self.incoming.answers.get(stream, Answer()).is_over and self.read():
            pass
        return self.incoming.answers.get(stream, Answer())

    def until_closed(self) -> Incoming:
        """Read to the end of the connection."""
        while self.read():
            pass
        return self.incoming

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Http2Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncHttp2Client:
    """A connection on streams of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.incoming = Incoming()
        self.writer = writer
        self._reader = reader

    @classmethod
    async def connect(cls, port: int) -> AsyncHttp2Client:
        made = cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))
        made.writer.write(opening())
        return made

    async def read(self) -> bool:
        """Read once. Return whether something came."""
        try:
            received = await self._reader.read(1 << 18)
        except ConnectionError:
            return False
        if received:
            self.writer.write(self.incoming.add(received))
        return bool(received)

    async def until_over(self, streams: Iterable[int]) -> None:
        """Read until all of some streams are over, or the connection."""
        left = [stream for stream in streams if not self.incoming.answers.get(stream, Answer()).is_over]
        while left and await self.read():
            left = [stream for stream in left if not self.incoming.answers.get(stream, Answer()).is_over]

    async def end(self) -> None:
        """Send no more, and read to the end."""
        with contextlib.suppress(ConnectionError):
            self.writer.write_eof()
            while await self._reader.read(1 << 18):
                pass
        self.writer.close()
