"""Errors as statuses of gRPC: the same codes and texts as problems over HTTP have."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from requant.errors import RequantError
from requant_service.http.problems import INTERNAL_DETAIL, problem_document
from requant_service.http.responses import json_text
from requant_service.http2.frames import literal_field

Metadata = tuple[tuple[bytes, bytes], ...]


class StatusCode(IntEnum):
    """What a call ends with."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class NotFoundError(Exception):
    """Holds an error about what a message names in the place of a path: over HTTP its status would be 404."""

    def __init__(self, error: RequantError) -> None:
        super().__init__(error.detail)
        self.error = error


# By the status over HTTP, of a class of error.
_STATUS_CODES: Mapping[int, StatusCode] = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    405: StatusCode.UNIMPLEMENTED,
    408: StatusCode.DEADLINE_EXCEEDED,
    409: StatusCode.ABORTED,
    413: StatusCode.RESOURCE_EXHAUSTED,
    415: StatusCode.INVALID_ARGUMENT,
    421: StatusCode.PERMISSION_DENIED,
    422: StatusCode.INVALID_ARGUMENT,
    431: StatusCode.RESOURCE_EXHAUSTED,
    500: StatusCode.INTERNAL,
    501: StatusCode.UNIMPLEMENTED,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
    505: StatusCode.INVALID_ARGUMENT,
}
REQUEST_ID = b"x-request-id"
# Clients refuse trailing metadata of more than 8 KiB in all.
_LONGEST_PROBLEM = 4096
_ENCODED = re.compile(rb"[^ -~]|%")


class Failure(NamedTuple):
    """What a call ends with. `http_status`: that of the same problem over HTTP, which metrics and logs have."""

    code: StatusCode
    detail: str
    trailing_metadata: Metadata
    http_status: int


def failure_of(error: RequantError, request_id: str, http_status: int | None = None) -> Failure:
    """Return what a call ends with that an error ends. `http_status` overrides that of its class."""
    status = http_status or error.status
    trailing: Metadata = ((REQUEST_ID, request_id.encode()), (b"requant-code", error.code.encode()))
    problem = json_text(problem_document(error, status, request_id))
    if len(problem) <= _LONGEST_PROBLEM:
        trailing += ((b"requant-problem-bin", b64encode(problem).rstrip(b"=")),)
    return Failure(_STATUS_CODES[status], error.detail, trailing, status)


def internal_failure(request_id: str) -> Failure:
    """Return what a call ends with that a fault of the service ends."""
    return failure_of(RequantError(INTERNAL_DETAIL), request_id)


def trailers_of(code: StatusCode, detail: str = "", metadata: Metadata = ()) -> bytes:
    """Return the header fields that end a call."""
    fields = [(b"grpc-status", b"%d" % code), *metadata]
    if detail:
        fields.insert(1, (b"grpc-message", _percent_encoded(detail)))
    return b"".join(literal_field(name, value) for name, value in fields)


def _percent_encoded(text: str) -> bytes:
    """Return a text with the bytes that are not printable ASCII, and `%`, as `%XX`."""
    return _ENCODED.sub(lambda found: b"%%%02X" % found[0][0], text.encode(errors="replace"))
