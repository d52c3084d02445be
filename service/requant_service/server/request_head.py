"""Checks of the head of a request that RFC 9110 and RFC 9112 require and the parser does not make."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urlsplit

from requant.errors import (
    LargeHeadError,
    MalformedRequestError,
    TransferCodingError,
    VersionError,
    excerpt,
)

_REQUEST_LINE = re.compile(rb"[\r\n]*[^\r\n]* HTTP/([0-9])\.([0-9])\r\n")
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
# RFC 3986 section 3.2: a name, an IPv4 address or an IP literal, and a port.
_AUTHORITY = re.compile(
    r"(?:(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*|\[[0-9A-Fa-f:.]+\]|\[v[0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+\])"
    r"(?::([0-9]*))?"
)
_MAX_PORT = 65_535
# The URL parser below uvicorn counts in 16 bits.
_LONGEST_TARGET = 65_535


def http_minor_version(head: bytes | bytearray) -> int:
    """Return the minor version of HTTP/1 in which a request was sent: 0, or 1 for all that are compatible with it.

    Raises:
        VersionError: for another major version.
        MalformedRequestError: for another protocol. The parser also takes RTSP, ICE and HTTP/0.9.
    """
    matched = _REQUEST_LINE.match(head)
    if matched is None:
        raise MalformedRequestError("the request line has no HTTP version")
    major, minor = matched.groups()
    if major != b"1":
        raise VersionError(
            f"the request is in HTTP/{major.decode()}.{minor.decode()}; supported are HTTP/1.1 and HTTP/1.0"
        )
    return min(int(minor), 1)


def check_framing(headers: list[tuple[bytes, bytes]], minor_version: int) -> int:
    """Check `Host` (RFC 9112 section 3.2) and `Transfer-Encoding` (section 6.1), and return the stated length.

    A `Content-Length`, which the parser has checked, is written without leading zeros for all who read it later.

    Raises:
        MalformedRequestError: if one is missing, there twice, not valid or not allowed.
        TransferCodingError: for any coding but `chunked`.
    """
    hosts, codings, length = [], [], b"0"
    for place, (name, value) in enumerate(headers):
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
        elif name == b"content-length":
            length = value.lstrip(b"0") or b"0"
            headers[place] = name, length
    if len(hosts) > 1 or (minor_version and not hosts):
        raise MalformedRequestError(f"the request has {len(hosts)} Host fields; expected 1")
    if hosts and not _is_authority(hosts[0].decode("latin-1")):
        shown = excerpt(hosts[0].decode("latin-1"))
        raise MalformedRequestError(f"the Host is {shown!r}; expected a host name or address with an optional port")
    if codings and not minor_version:
        raise MalformedRequestError("the request has a Transfer-Encoding; HTTP/1.0 does not support it")
    if codings and b",".join(codings).lower() != b"chunked":
        shown = excerpt(b", ".join(codings).decode("latin-1"))
        raise TransferCodingError(f"the Transfer-Encoding is {shown!r}; only chunked is supported")
    return int(length)


def origin_form(method: bytes, target: bytes) -> bytes:
    """Return the path and query of a request target (RFC 9112 section 3.2). `OPTIONS *` is about the path `/`.

    Raises:
        MalformedRequestError: for what is no target of HTTP.
        LargeHeadError: for a target that is too long for any setting.
    """
    if len(target) > _LONGEST_TARGET:
        raise LargeHeadError(f"the path and the query have more than {_LONGEST_TARGET} bytes")
    if target.startswith(b"/"):
        return target
    if target == b"*" and method == b"OPTIONS":
        return b"/"
    text = target.decode("ascii", "replace")
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets that do not match, or hold no address
        parts = None
    host = "" if parts is None else parts.netloc.rpartition("@")[2]
    if parts is None or parts.scheme not in ("http", "https") or host[:1] in ("", ":") or not _is_authority(host):
        raise MalformedRequestError(f"the request target is {excerpt(text)!r}; expected a path or a URL of HTTP")
    return ((parts.path or "/") + (f"?{parts.query}" if parts.query else "")).encode("ascii")


def without_upgrade(head: bytes | bytearray) -> bytes:
    """Return a head without its `Upgrade` fields."""
    return _UPGRADE.sub(b"", bytes(head))


@lru_cache(256)
def _is_authority(text: str) -> bool:
    matched = _AUTHORITY.fullmatch(text)
    return matched is not None and len(port := (matched[1] or "").lstrip("0")) < 6 and int(port or 0) <= _MAX_PORT
