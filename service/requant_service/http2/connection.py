"""HTTP/2 on one connection (RFC 9113), as a server speaks it: frames, flow control, and the limits on both.

The libraries that keep the state of a connection (h2, jh2) receive a whole frame before they check its length, and only
then report its data. Here the head of a frame decides: what was not granted ends the connection before it is received,
and the data of a large message goes where it stays. HPACK is the library's (`hpack`).

Every frame that costs us more than the client is charged to the connection: resets, pings, settings, empty frames.
Traffic earns that back, and so does time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpack import Decoder
from hpack.exceptions import HPACKError

from requant_service.http2 import frames
from requant_service.http2.frames import HEAD_BYTES, ErrorCode, Fields, FrameType, Setting, are_trailers, is_request
from requant_service.http2.stream import INITIAL_WINDOW, Buffer, Stream

MAX_STREAMS = 128
"""Open streams of a connection."""
_MAX_FRAME_BYTES = 1 << 20
# Of a frame of this length or more, what is missing is received where it stays.
_DIRECT_BYTES = 32 << 10
# Steps until other connections get a turn. A request is several.
_STEPS, _STEPS_OF_REQUEST = 64, 4
# What is written of one response before the next one has its turn.
_QUANTUM = 1 << 20
# Replies to frames that wait because the client does not read: beyond it, no more frames are read.
_MAX_QUEUED_REPLIES = 64 << 10
# A response up to here is over when it was written: it no longer counts.
_SMALL_RESPONSE = 64 << 10

# What a connection may spend on frames that are no traffic, at once and each second, and what they cost.
_MAX_CREDIT, _CREDIT_PER_SECOND = 10_000.0, 1000.0
_COST, _COST_OF_SETTINGS, _COST_OF_RESET = 1.0, 20.0, 50.0
_CREDIT_OF_RESPONSE, _BYTES_PER_CREDIT = 50.0, 4096
_SHORT_DATA = 16

# How often to check whether a response has left the process.
_FLUSH_SECONDS = 0.01
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 64 << 20
# Below it, the connection's own window is opened again. Streams have windows of their own, which count.
_LOW_WINDOW = 1 << 30

_received = memoryview(bytearray(256 << 10))


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on one connection. Times are in seconds.

    `head_seconds`: until the first frame, and for a frame or header block that has begun. `write_seconds`: for a
    response to be taken, beside one for each MiB. `idle_seconds`: without a stream. `age_seconds`: until the client is
    asked to make a new connection; `grace_seconds`: how long its streams may go on then. `ping_seconds`: without a
    frame until a ping; `pong_seconds`: until its answer.
    """

    head_bytes: int = 32 << 10
    header_fields: int = 100
    head_seconds: float = 10.0
    write_seconds: float = 30.0
    write_bytes_per_second: int = 1 << 20
    idle_seconds: float = 75.0
    age_seconds: float = 3600.0
    grace_seconds: float = 600.0
    ping_seconds: float = 60.0
    pong_seconds: float = 20.0

    @property
    def block_bytes(self) -> int:
        """How long a header block, or any frame but DATA, may be."""
        return 2 * self.head_bytes


class ConnectionFaultError(Exception):
    """What ends a connection."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Http2Connection(asyncio.BufferedProtocol):
    """One connection.

    `open_stream` makes a stream for the header fields of a request. `max_streams` says how many the connection may have
    now; `made` and `lost` are called at its beginning and its end.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        limits: ConnectionLimits,
        open_stream: Callable[[Http2Connection, int, Fields], Stream],
        max_streams: Callable[[], int] = lambda: MAX_STREAMS,
        made: Callable[[Http2Connection], None] = lambda _: None,
        lost: Callable[[Http2Connection], None] = lambda _: None,
    ) -> None:
        self.streams: dict[int, Stream] = {}
        self.limits = limits
        self.idle_since = 0.0
        self._open_stream = open_stream
        self._max_streams = max_streams
        self._made_known = made
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(2 * limits.head_bytes)
        self._known_block: tuple[bytes, Fields] = b"", ()
        self._valid_block = b""
        # What was received and not parsed: the beginning of a frame, or what has to wait for its turn.
        self._pending = b""
        self._preface_left = frames.PREFACE
        self._partial_since = 0.0
        self._scheduled = False
        self._settled = False
        # The DATA frame that is being received.
        self._data_stream: Stream | None = None
        self._data_left = 0
        self._padding_left = 0
        self._data_ends_stream = False
        self._in_data = False
        self._direct = False
        # The header block that is being received.
        self._block_stream = 0
        self._block_flags = 0
        self._block = bytearray()
        self._last_stream = 0
        self._receive_window = frames.MAX_WINDOW
        # Of a new stream; and the one that the client has not acknowledged.
        self._initial_window = INITIAL_WINDOW
        self._offered_window: int | None = INITIAL_WINDOW
        # What the client takes.
        self._send_window = frames.DEFAULT_WINDOW
        self._initial_send_window = frames.DEFAULT_WINDOW
        self._max_send_frame = frames.MIN_MAX_FRAME
        self._sending: dict[int, Stream] = {}
        self._unsent: list[tuple[Stream, Callable[[], None]]] = []
        self._write_paused = False
        self._reading_paused = False
        self._paused_since = 0.0
        self._queued_replies = 0
        self._credit = _MAX_CREDIT
        self._made = 0.0
        self._active = 0.0
        self._credited = 0.0
        self._pinged = 0.0
        self._going_away = False
        self._closing_due = 0.0
        self._discarded = 0

    # The transport's calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # none of another kind
        """Send our settings."""
        self.transport = transport
        self._made = self.idle_since = self._active = self._credited = self._partial_since = self._loop.time()
        transport.write(
            frames.settings_frame(
                (
                    (Setting.MAX_CONCURRENT_STREAMS, MAX_STREAMS),
                    (Setting.INITIAL_WINDOW_SIZE, INITIAL_WINDOW),
                    (Setting.MAX_FRAME_SIZE, _MAX_FRAME_BYTES),
                    (Setting.MAX_HEADER_LIST_SIZE, self.limits.head_bytes),
                )
            )
            + frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
        )
        self._made_known(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End all streams."""
        self._closing_due = self._closing_due or self._loop.time()
        streams, self.streams = list(self.streams.values()), {}
        self._sending.clear()
        self._pending = b""
        for stream in streams:
            stream.closed = True
            stream.out.clear()
            stream.left()
        self._all_sent()
        self._lost(self)

    def eof_received(self) -> bool:
        """Close: a client that sends no more cannot open windows either."""
        return False

    def pause_writing(self) -> None:
        """Send no more until the client has read."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._write_paused = False
        self._queued_replies = 0
        self._update_reading()
        self._pump()
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to receive: in the message itself, if much of it is missing."""
        if self._data_left >= _DIRECT_BYTES and self._data_stream is not None and not self._pending:
            room = self._data_stream.room(self._data_left)
            if room is not None:
                self._direct = True
                return room
        self._direct = False
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was received."""
        self._active = self._loop.time()
        if self._closing_due:
            self._discard(nbytes)
            return
        try:
            if self._direct:
                assert self._data_stream is not None
                self._data_left -= nbytes
                self._data_stream.filled(nbytes)
                if not self._data_left and not self._padding_left:
                    self._data_ends()
                return
            data = _received[:nbytes]
            if self._pending:
                data = memoryview(b"".join((self._pending, data)))
            if self._scheduled:
                self._pending = bytes(data)
            else:
                self._parse(data)
        except ConnectionFaultError as error:
            self._fail(error)

    # Receiving.

    def _parse(self, data: memoryview) -> None:
        """Parse frames until there is none whole, or others have their turn. Keep the rest."""
        at, end, steps = 0, len(data), _STEPS
        if self._preface_left:
            at = self._parse_preface(data)
        while at < end and not self._closing_due:
            if self._in_data:
                at = self._parse_data(data, at, end)
                continue
            if steps <= 0:
                self._schedule()
                break
            if end - at < HEAD_BYTES:
                break
            first, flags, number = frames.HEAD.unpack_from(data, at)
            length, kind, number = first >> 8, first & 0xFF, number & frames.MAX_WINDOW
            if kind != FrameType.SETTINGS and not self._settled:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            if kind == FrameType.DATA:
                if flags & frames.PADDED and length and end - at == HEAD_BYTES:
                    break
                padding = data[at + HEAD_BYTES] if flags & frames.PADDED and length else -1
                self._data_begins(length, flags, number, padding)
                at += HEAD_BYTES + (padding >= 0)
                steps -= 1
                continue
            if length > self.limits.block_bytes:
                raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of type {kind} has {length} bytes")
            following = at + HEAD_BYTES + length
            if following > end:
                break
            steps -= _STEPS_OF_REQUEST if kind == FrameType.HEADERS else 1
            self._frame(kind, flags, number, bytes(data[at + HEAD_BYTES : following]))
            at = following
        if self._closing_due:
            return
        self._pending = bytes(data[at:])
        if not (self._pending or self._block_stream) and self._settled:
            self._partial_since = 0.0
        elif not self._partial_since or (steps < _STEPS and not self._block_stream):
            self._partial_since = self._active

    def _parse_preface(self, data: memoryview) -> int:
        expected = self._preface_left[: len(data)]
        if data[: len(expected)] != expected:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
        self._preface_left = self._preface_left[len(expected) :]
        return len(expected)

    def _schedule(self) -> None:
        """Continue after other connections had their turn."""
        self._scheduled = True
        self._update_reading()
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._scheduled = False
        if self._closing_due:
            return
        data, self._pending = self._pending, b""
        try:
            self._parse(memoryview(data))
        except ConnectionFaultError as error:
            self._fail(error)
        self._update_reading()

    def _update_reading(self) -> None:
        """Read from the socket unless what was received waits, or replies do."""
        pause = not self._closing_due and (self._scheduled or self._queued_replies > _MAX_QUEUED_REPLIES)
        if pause != self._reading_paused and not self.transport.is_closing():
            self._reading_paused = pause
            self._paused_since = self._loop.time()
            if self._partial_since:
                self._partial_since = self._paused_since
            self.transport.pause_reading() if pause else self.transport.resume_reading()

    def _data_begins(self, length: int, flags: int, number: int, padding: int) -> None:
        """Check a DATA frame against what was granted."""
        if self._block_stream or not number or number > self._last_stream:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "DATA where none is expected")
        if length > _MAX_FRAME_BYTES:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"a DATA frame has {length} bytes")
        if flags & frames.PADDED and padding >= length:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a DATA frame has more padding than bytes")
        if length < _SHORT_DATA and not flags & frames.END_STREAM:
            self._charge(_COST)
        elif length:
            self._credit = min(_MAX_CREDIT, self._credit + length / _BYTES_PER_CREDIT)
        stream = self.streams.get(number)
        if stream is not None and stream.ended:
            raise ConnectionFaultError(ErrorCode.STREAM_CLOSED, "DATA after the end of its stream")
        self._receive_window -= length
        if self._receive_window < _LOW_WINDOW:
            self._reply(frames.window_update(0, frames.MAX_WINDOW - self._receive_window))
            self._receive_window = frames.MAX_WINDOW
        if stream is not None:
            if length > stream.window:
                raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "a stream sends more than was granted")
            stream.window -= length
            if padding >= 0:
                # Padding is no message: what it took is given again.
                self.grant(stream, padding + 1)
        self._data_stream = stream
        self._padding_left = max(0, padding)
        self._data_left = length - self._padding_left - (padding >= 0)
        self._data_ends_stream = bool(flags & frames.END_STREAM)
        self._in_data = True
        if not self._data_left and not self._padding_left:
            self._data_ends()

    def _parse_data(self, view: memoryview, at: int, end: int) -> int:
        """Take a part of the data, or of its padding. Return the place after it."""
        if self._data_left:
            taken = min(self._data_left, end - at)
            self._data_left -= taken
            if self._data_stream is not None:
                self._data_stream.received(view[at : at + taken])
        else:
            taken = min(self._padding_left, end - at)
            self._padding_left -= taken
        if not self._data_left and not self._padding_left:
            self._data_ends()
        return at + taken

    def _data_ends(self) -> None:
        self._in_data = False
        stream, self._data_stream = self._data_stream, None
        if stream is not None and self._data_ends_stream and not stream.closed:
            stream.ended = True
            stream.half_closed()

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Take a frame other than DATA."""
        if self._block_stream and (kind != FrameType.CONTINUATION or number != self._block_stream):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a frame within a header block")
        if kind == FrameType.HEADERS:
            self._headers(flags, number, payload)
        elif kind == FrameType.CONTINUATION:
            self._continuation(flags, number, payload)
        elif kind == FrameType.WINDOW_UPDATE:
            self._window_update(number, payload)
        elif kind == FrameType.SETTINGS:
            self._settings(flags, number, payload)
        elif kind == FrameType.PING:
            self._ping(flags, number, payload)
        elif kind == FrameType.RST_STREAM:
            self._rst_stream(number, payload)
        elif kind == FrameType.PRIORITY:
            self._charge(_COST)
            if len(payload) != 5 or not number:
                raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "a PRIORITY frame is not valid")
        elif kind == FrameType.GOAWAY:
            if number or len(payload) < 8:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a GOAWAY frame is not valid")
            self._going_away = True
        elif kind == FrameType.PUSH_PROMISE:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a client does not push")
        else:
            self._charge(_COST)

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number & 1:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a client's streams have odd numbers")
        at, padding = 0, 0
        if flags & frames.PADDED and payload:
            at, padding = 1, payload[0]
        if flags & frames.PRIORITY:
            at += 5
        if len(payload) < at + padding or (flags & frames.PADDED and not payload):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a HEADERS frame is shorter than it says")
        fragment = payload[at : len(payload) - padding]
        if flags & frames.END_HEADERS:
            self._header_block(number, flags, fragment)
        else:
            self._block_stream, self._block_flags, self._block = number, flags, bytearray(fragment)

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        if not self._block_stream:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without a header block")
        if len(payload) < _SHORT_DATA:
            self._charge(_COST_OF_SETTINGS)
        self._block += payload
        if len(self._block) > self.limits.block_bytes:
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")
        if flags & frames.END_HEADERS:
            block, self._block, self._block_stream = bytes(self._block), bytearray(), 0
            self._header_block(number, self._block_flags, block)

    def _decoded(self, block: bytes) -> Fields:
        """Return the fields of a header block. One that only names entries of the tables is decoded once."""
        if block == self._known_block[0]:
            return self._known_block[1]
        try:
            fields = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except HPACKError:
            raise ConnectionFaultError(ErrorCode.COMPRESSION_ERROR, "a header block cannot be decoded") from None
        # An index of one byte: 0xff begins a longer one.
        self._valid_block = b""
        only_indexed = bool(block) and min(block) >= 0x80 and 0xFF not in block
        self._known_block = (block, fields) if only_indexed else (b"", ())
        return fields

    def _header_block(self, number: int, flags: int, block: bytes) -> None:
        ends = bool(flags & frames.END_STREAM)
        fields = self._decoded(block)
        stream = self.streams.get(number)
        if stream is not None:
            if not ends or stream.ended or not are_trailers(fields):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "header fields in the middle of a stream")
            stream.ended = True
            stream.half_closed()
            return
        if number <= self._last_stream:
            # Of a stream that was answered already.
            self._charge(_COST)
            return
        if self._going_away:
            return  # It is beyond the last stream that GOAWAY named: the client may send it elsewhere.
        self._last_stream = number
        if len(self.streams) >= self._max_streams():
            self._charge(_COST)
            self._reply(frames.rst_stream(number, ErrorCode.REFUSED_STREAM))
            return
        if (not block or block != self._valid_block) and not is_request(fields):
            self._charge(_COST_OF_RESET)
            self._reply(frames.rst_stream(number, ErrorCode.PROTOCOL_ERROR))
            return
        self._valid_block = self._known_block[0]
        stream = self._open_stream(self, number, fields)
        stream.window, stream.send_window = self._initial_window, self._initial_send_window
        stream.ended = ends
        self.streams[number] = stream
        stream.begin()
        if ends and not stream.closed:
            stream.half_closed()

    def exceeds_limits(self, fields: Fields) -> bool:
        """Return whether the fields of a request are more than are taken."""
        if len(fields) > self.limits.header_fields + 4:  # and the pseudo fields
            return True
        return sum([len(name) + len(value) for name, value in fields]) > self.limits.head_bytes

    def _window_update(self, number: int, payload: bytes) -> None:
        self._charge(_COST)
        if len(payload) != 4:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "a WINDOW_UPDATE frame has 4 bytes")
        if number > self._last_stream:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that was not opened")
        increment = int.from_bytes(payload, "big") & frames.MAX_WINDOW
        if not increment:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        if not number:
            self._send_window += increment
            if self._send_window > frames.MAX_WINDOW:
                raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "the window of the connection overflows")
        elif (stream := self.streams.get(number)) is not None:
            stream.send_window += increment
            if stream.send_window > frames.MAX_WINDOW:
                raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "the window of a stream overflows")
        if self._sending:
            self._pump()

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        self._settled = True
        self._charge(_COST_OF_SETTINGS)
        if number:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "a SETTINGS frame has entries of 6 bytes")
        if flags & frames.ACK:
            self._window_acknowledged()
            return
        if len(payload) > 6 * self.limits.header_fields:
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "a SETTINGS frame has too many entries")
        for at in range(0, len(payload), 6):
            self._setting(int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big"))
        self._reply(frames.frame(FrameType.SETTINGS, frames.ACK, 0))
        self._pump()

    def _setting(self, name: int, value: int) -> None:
        if name == Setting.INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "the initial window is too large")
            change = value - self._initial_send_window
            self._initial_send_window = value
            for stream in self.streams.values():
                stream.send_window += change
                if stream.send_window > frames.MAX_WINDOW:
                    raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "the window of a stream overflows")
        elif name == Setting.MAX_FRAME_SIZE:
            if not frames.MIN_MAX_FRAME <= value < 1 << 24:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "the maximum frame size is not valid")
            self._max_send_frame = value
        elif name == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "a PING frame has 8 bytes")
        self._charge(_COST)
        if flags & frames.ACK:
            self._pinged = 0.0
        else:
            self._reply(frames.frame(FrameType.PING, frames.ACK, 0, payload))

    def _rst_stream(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "an RST_STREAM frame has 4 bytes")
        if not number or number > self._last_stream:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "RST_STREAM of a stream that was not opened")
        stream = self.streams.get(number)
        self._charge(_COST if stream is None else _COST_OF_RESET)
        if stream is not None:
            self._remove(stream)
            stream.left()

    def _charge(self, cost: float) -> None:
        self._credit -= cost
        if self._credit < 0:
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that are no traffic")

    # Sending.

    def grant(self, stream: Stream, byte_count: int) -> None:
        """Let the client send `byte_count` bytes more of a stream."""
        if byte_count > 0 and not stream.closed and not stream.ended:
            stream.window += byte_count
            self._reply(frames.window_update(stream.number, byte_count))

    def outstanding(self, stream: Stream) -> int:
        """Return how many bytes of a stream may still come: its window, and the rest of a frame that has begun."""
        return stream.window + (self._data_left if self._data_stream is stream else 0)

    def widen_windows(self, byte_count: int) -> None:
        """Let the client send at least `byte_count` bytes of each stream, open ones too, before anything is granted.

        One change at a time: nothing is offered until the client has acknowledged the one before.
        """
        if byte_count > self._initial_window and self._offered_window is None:
            change, self._initial_window = byte_count - self._initial_window, byte_count
            for stream in self.streams.values():
                stream.window += change
            self._offer_window(byte_count)

    def narrow_windows(self) -> None:
        """Let the client send no more of new streams than at first, once it has acknowledged that."""
        if self._initial_window > INITIAL_WINDOW and self._offered_window is None:
            self._offer_window(INITIAL_WINDOW)

    def _offer_window(self, byte_count: int) -> None:
        self._offered_window = byte_count
        self._reply(frames.settings_frame([(Setting.INITIAL_WINDOW_SIZE, byte_count)]))

    def _window_acknowledged(self) -> None:
        offered, self._offered_window = self._offered_window, None
        if offered is not None and offered < self._initial_window:
            # It takes the difference from open streams too, which keep what they had: it is granted again.
            change, self._initial_window = self._initial_window - offered, offered
            for stream in self.streams.values():
                stream.window -= change
                self.grant(stream, change)

    def _reply(self, frame: bytes) -> None:
        """Write a short frame, and read no more of those that ask for one if the client does not read either."""
        if self.transport.is_closing():
            return
        self.transport.write(frame)
        if self._write_paused:
            self._queued_replies += len(frame)
            self._update_reading()

    def respond(self, stream: Stream, head: bytes, parts: Iterable[Buffer] = (), trailers: bytes | None = None) -> None:
        """Send header fields if there were none, data, and the trailers that end the stream, when windows allow it."""
        if stream.closed or self.transport.is_closing():
            return
        views = [part if isinstance(part, memoryview) else memoryview(part) for part in parts if len(part)]
        size = sum(map(len, views))
        written: list[Buffer] = []
        if not stream.head_sent:
            stream.head_sent = True
            written.append(frames.frame(FrameType.HEADERS, frames.END_HEADERS, stream.number, head))
        if trailers is not None:
            stream.trailers = trailers
        start = max(stream.due, self._loop.time()) if stream.out else self._loop.time()
        stream.due = start + self.limits.write_seconds + size / self.limits.write_bytes_per_second
        windows = min(self._send_window, stream.send_window, self._max_send_frame)
        if not stream.out and not self._write_paused and size <= windows:
            if size:
                written.append(frames.frame_head(size, FrameType.DATA, 0, stream.number))
                written += views
                self._send_window -= size
                stream.send_window -= size
            if trailers is not None:
                written.append(self._trailers(stream, trailers))
            self.transport.write(b"".join(written)) if size <= _SMALL_RESPONSE else self.transport.writelines(written)
            self._credit = min(_MAX_CREDIT, self._credit + size / _BYTES_PER_CREDIT)
            self._progressed(stream, size)
            return
        if written:
            self._reply(b"".join(written))
        stream.out.extend(views)
        self._sending[stream.number] = stream
        self._pump()

    def end_with(self, stream: Stream, block: bytes) -> None:
        """Answer with header fields alone, which end the stream. What was not sent of an answer before is dropped."""
        if stream.closed or self.transport.is_closing():
            return
        stream.out.clear()
        self._reply(frames.frame(FrameType.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.number, block))
        stream.trailers = block
        self._progressed(stream, 0)

    def reset(self, stream: Stream, code: int) -> None:
        """End a stream without a response."""
        if not stream.closed:
            self._remove(stream)
            self._reply(frames.rst_stream(stream.number, ErrorCode(code)))

    def _trailers(self, stream: Stream, block: bytes) -> bytes:
        return frames.frame(FrameType.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.number, block)

    def _pump(self) -> None:
        """Send what windows allow, of each stream in turn."""
        progressed = True
        while progressed and self._sending and not self._write_paused and not self.transport.is_closing():
            progressed = False
            for stream in list(self._sending.values()):
                if stream.closed or not self._is_writable():
                    continue
                if not stream.out or min(self._send_window, stream.send_window) > 0:
                    progressed = True
                    self._send_some(stream)

    def _is_writable(self) -> bool:
        return not self._write_paused

    def _send_some(self, stream: Stream) -> None:
        """Send a part of what a stream has to send."""
        left = min(self._send_window, stream.send_window, _QUANTUM)
        written: list[Buffer] = []
        sent = 0
        while stream.out and left > 0:
            size = min(sum(map(len, stream.out)), left, self._max_send_frame)
            written.append(frames.frame_head(size, FrameType.DATA, 0, stream.number))
            left -= size
            sent += size
            while size:
                part = stream.out[0]
                if len(part) <= size:
                    size -= len(part)
                    written.append(stream.out.popleft())
                else:
                    written.append(part[:size])
                    stream.out[0] = part[size:]
                    size = 0
        self._send_window -= sent
        stream.send_window -= sent
        self._credit = min(_MAX_CREDIT, self._credit + sent / _BYTES_PER_CREDIT)
        if not stream.out:
            self._sending.pop(stream.number, None)
            if stream.trailers is not None:
                written.append(self._trailers(stream, stream.trailers))
        self.transport.writelines(written)
        if not stream.out:
            self._progressed(stream, _SMALL_RESPONSE + 1)

    def _progressed(self, stream: Stream, size: int) -> None:
        """All that a stream had to send was written: `size` bytes, or more than a small response."""
        callback = stream.written
        if stream.trailers is not None:
            callback = stream.sent
            self._credit = min(_MAX_CREDIT, self._credit + _CREDIT_OF_RESPONSE)
            if not stream.ended:
                # There is nothing to do with the rest of the request.
                self._reply(frames.rst_stream(stream.number, ErrorCode.NO_ERROR))
            self._remove(stream)
        if size <= _SMALL_RESPONSE or not self.transport.get_write_buffer_size():
            callback()
            return
        # Until the last of it has left, all of it takes memory.
        self._unsent.append((stream, callback))
        if len(self._unsent) == 1:
            self._loop.call_later(_FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        """Tell the streams whose responses have left the process."""
        if not self._unsent:
            return
        if self.transport.is_closing() or not self.transport.get_write_buffer_size():
            self._all_sent()
        else:
            self._loop.call_later(_FLUSH_SECONDS, self._flush)

    def _all_sent(self) -> None:
        unsent, self._unsent = self._unsent, []
        for _, callback in unsent:
            callback()

    def _remove(self, stream: Stream) -> None:
        stream.closed = True
        stream.out.clear()
        self.streams.pop(stream.number, None)
        self._sending.pop(stream.number, None)
        if self._data_stream is stream:
            self._data_stream = None
        if not self.streams:
            self.idle_since = self._loop.time()
            if self._going_away:
                self._loop.call_soon(self._close_if_done)

    # The end.

    def go_away(self, text: str = "") -> None:
        """Take no more streams, and close when those that are open have ended."""
        if not self._going_away and not self._closing_due and not self.transport.is_closing():
            self._going_away = True
            self._reply(frames.goaway(self._last_stream, ErrorCode.NO_ERROR, text.encode()))
            self._close_if_done()

    def _close_if_done(self) -> None:
        if self._going_away and not self.streams:
            self._close()

    def _fail(self, error: ConnectionFaultError) -> None:
        """End the connection for what the client has done."""
        if not self.transport.is_closing():
            self.transport.write(frames.goaway(self._last_stream, error.code, str(error).encode()))
        streams = list(self.streams.values())
        for stream in streams:
            self._remove(stream)
        self._close()
        for stream in streams:
            stream.left()

    def _close(self) -> None:
        """Close our side, and discard what still comes for a moment: a reset would discard what the client reads."""
        if self._closing_due or self.transport.is_closing():
            return
        self._closing_due = self._loop.time() + _LINGER_SECONDS
        self._pending, self._in_data, self._data_left, self._data_stream = b"", False, 0, None
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._update_reading()
        else:
            self.transport.close()

    def _discard(self, byte_count: int) -> None:
        self._discarded += byte_count
        if self._discarded > _LINGER_BYTES:
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    def is_wanted(self) -> bool:
        """Return whether there is a stream because of which the connection should stay."""
        return any(stream.is_wanted for stream in self.streams.values())

    def tick(self, now: float) -> None:
        """Check all timeouts. Called twice a second."""
        limits = self.limits
        if self._closing_due:
            if now >= self._closing_due:
                self.abort()
            return
        self._credit = min(_MAX_CREDIT, self._credit + (now - self._credited) * _CREDIT_PER_SECOND)
        self._credited = now
        if self._reading_paused:
            if now > self._paused_since + limits.write_seconds:
                self.abort()
                return
        elif self._partial_since and not self._in_data and now > self._partial_since + limits.head_seconds:
            self._fail(ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "a frame did not arrive in time"))
            return
        if now > self._made + limits.age_seconds + limits.grace_seconds:
            self.abort()
            return
        if now > self._made + limits.age_seconds:
            self.go_away("the connection has reached its age")
        for stream in list(self.streams.values()):
            if stream.out and now > stream.due:
                self.abort()
                return
            stream.tick(now)
        if self._unsent and now > max(stream.due for stream, _ in self._unsent):
            self.abort()
        elif not self.streams and now > self.idle_since + limits.idle_seconds:
            self.go_away("the connection was idle")
        elif self._pinged and now > self._pinged + limits.pong_seconds:
            self.abort()
        elif self.streams and not self._pinged and now > self._active + limits.ping_seconds:
            self._pinged = now
            self._reply(frames.frame(FrameType.PING, 0, 0, bytes(8)))
