"""What RFC 9113 asks of the header fields of a request, and HPACK does not see to (sections 8.2 and 8.3)."""

from __future__ import annotations

import re

from requant_service.http2.stream import Fields

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
