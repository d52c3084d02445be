"""Errors as statuses of gRPC: the same codes and texts as problems over HTTP have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import grpc

from core.errors import RequantError
from service.http.problems import INTERNAL, INTERNAL_DETAIL, ProblemKind, kind_of, problem_document, problem_members
from service.http.responses import json_text

Metadata = tuple[tuple[str, str | bytes], ...]

# By the status over HTTP, which the one table of problems gives each code.
_STATUS_CODES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    431: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    505: grpc.StatusCode.INVALID_ARGUMENT,
}
# Clients refuse trailing metadata of more than 8 KiB in all.
_LONGEST_PROBLEM = 4096


class Failure(NamedTuple):
    """What a call ends with. `http_status`: that of the same problem over HTTP, which metrics and logs have."""

    code: grpc.StatusCode
    detail: str
    trailing_metadata: Metadata
    http_status: int


def failure_of(error: RequantError, request_id: str, http_status: int | None = None) -> Failure:
    """Return what a call ends with that an error ends. `http_status` overrides that of the table of problems."""
    kind = kind_of(error)
    return _failure(kind, error.detail, problem_members(error), http_status or kind.status, request_id)


def internal_failure(request_id: str) -> Failure:
    """Return what a call ends with that a fault of the service ends."""
    return _failure(INTERNAL, INTERNAL_DETAIL, {}, INTERNAL.status, request_id)


def _failure(
    kind: ProblemKind, detail: str, members: Mapping[str, object], http_status: int, request_id: str
) -> Failure:
    trailing: Metadata = (("x-request-id", request_id), ("requant-code", kind.code))
    problem = json_text(problem_document(kind, detail, members, http_status, request_id))
    if len(problem) <= _LONGEST_PROBLEM:
        trailing += (("requant-problem-bin", problem),)
    return Failure(_STATUS_CODES[http_status], detail, trailing, http_status)
