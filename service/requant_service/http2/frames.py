"""Frames of HTTP/2 (RFC 9113 section 4) as a server writes them, and header fields as it checks and writes them.

Header fields of responses are HPACK literals without indexing (RFC 7541 section 6.2.2): the same fields are always the
same bytes, and no table has to agree with that of the client. Those of requests are checked as RFC 9113 requires
(sections 8.2 and 8.3), which HPACK does not do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct

Fields = Sequence[tuple[bytes, bytes]]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">IBI")
"""A frame's head: its length and, in the lowest byte of the same word, its type; flags; stream."""
HEAD_BYTES = HEAD.size
MIN_MAX_FRAME = 1 << 14
"""The frame size that every peer takes."""
MAX_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = (1 << 16) - 1


class FrameType(IntEnum):
    """Types of frames (section 6)."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class ErrorCode(IntEnum):
    """Error codes of RST_STREAM and GOAWAY (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """Settings that are used here (section 6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


# Flags. END_STREAM and ACK are the same bit, on different types.
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


def frame_head(length: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the head of a frame."""
    return HEAD.pack(length << 8 | kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return frame_head(len(payload), kind, flags, stream) + payload


def settings_frame(settings: Iterable[tuple[Setting, int]]) -> bytes:
    """Return a SETTINGS frame."""
    payload = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in settings)
    return frame(FrameType.SETTINGS, 0, 0, payload)


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    """Return an RST_STREAM frame."""
    return frame(FrameType.RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last_stream: int, code: ErrorCode, text: bytes = b"") -> bytes:
    """Return a GOAWAY frame."""
    return frame(FrameType.GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + text)


def literal_field(name: bytes, value: bytes) -> bytes:
    """Return a header field as a literal without indexing."""
    return b"".join((b"\x00", _length(len(name)), name, _length(len(value)), value))


def _length(number: int) -> bytes:
    """Return an integer with a prefix of 7 bits (RFC 7541 section 5.1)."""
    if number < 0x7F:
        return bytes((number,))
    number -= 0x7F
    written = bytearray((0x7F,))
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_BAD_VALUE = re.compile(rb"[\x00\r\n]|^[ \t]|[ \t]$")
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED = frozenset((b":method", b":scheme", b":path"))
_OF_CONNECTIONS = frozenset((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"))


def is_request(fields: Fields) -> bool:
    """Return whether the fields are those of a request: pseudo fields first and once, all of them valid."""
    seen = set()
    regular = False
    for name, value in fields:
        if _BAD_VALUE.search(value):
            return False
        if name[:1] == b":":
            if regular or name not in _PSEUDO or name in seen:
                return False
            seen.add(name)
            continue
        regular = True
        if not _is_regular(name, value):
            return False
    return seen >= _REQUIRED


def are_trailers(fields: Fields) -> bool:
    """Return whether the fields are those of a trailer section."""
    return all(_is_regular(name, value) and not _BAD_VALUE.search(value) for name, value in fields)


def _is_regular(name: bytes, value: bytes) -> bool:
    if not _NAME.fullmatch(name) or name in _OF_CONNECTIONS:
        return False
    return name != b"te" or value == b"trailers"
