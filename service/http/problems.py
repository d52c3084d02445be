"""Errors as RFC 9457 problems: one table from error class to status, title and explanation, and replies made of it."""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from core import errors
from core.errors import at as at
from core.errors import sides as sides
from service.http.responses import json_text
from service.middleware.request_lifecycle import common_headers, request_id

_log = logging.getLogger("uvicorn.error")

MEDIA_TYPE = "application/problem+json"
_MOST_FAULTS = 16

# What pydantic says of Python's types, in the terms of JSON.
_IN_JSON = {"model_type": "input should be an object", "list_type": "input should be an array"}


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """One kind of problem: its stable code, HTTP status, title, and the paragraph under `/problems/<code>`."""

    code: str
    status: int
    title: str
    explanation: str


def _row(
    error: type[errors.RequantError], status: int, title: str, explanation: str
) -> tuple[type[errors.RequantError], ProblemKind]:
    return error, ProblemKind(error.code, status, title, explanation)


_TABLE: Mapping[type[errors.RequantError], ProblemKind] = dict(
    (
        _row(
            errors.TypeTextError,
            422,
            "The text is not an MLIR type",
            "A type text could not be parsed or breaks a rule of MLIR. `offset` is the index of the first wrong "
            "character, `caret` shows it under the text, and `hint` names the likely intention. POST the text to "
            "/v1/types/parse to try variants.",
        ),
        _row(
            errors.TypeFitError,
            422,
            "The type does not fit the tensor",
            "The type is valid MLIR, but not for this tensor: its rank, its axis, its number of scales or its blocks "
            "disagree with the shape. The detail names both sides.",
        ),
        _row(
            errors.UnsupportedError,
            422,
            "The operation does not take this type",
            "The type is valid and fits the tensor, but the operation or the profile is not defined for it. GET "
            "/v1/profiles lists what each profile defines.",
        ),
        _row(
            errors.UnknownNameError,
            422,
            "There is nothing of that name",
            "A profile or scheme was named that does not exist. The detail lists those that do. In a path the status "
            "is 404.",
        ),
        _row(
            errors.LoweringError,
            422,
            "A pass cannot lower an operation",
            "The module is valid, but a pass, or the evaluator, does not take one of its operations. The detail names "
            "the operation and the reason; `line` and `column` are its place in the module, from 1.",
        ),
        _row(
            errors.ModuleTextError,
            422,
            "The text is not an MLIR module",
            "A module could not be parsed or breaks a rule of its operations. `line` and `column` count from 1, "
            "`offset` is the index of the same character, and `caret` shows it under its line. Taken are the dialects "
            "builtin, func, arith, tensor, linalg, quant, shape, stablehlo, chlo and tosa, without branches.",
        ),
        _row(
            errors.PreconditionError,
            422,
            "The arithmetic is not defined for a value",
            "The named arithmetic has no defined result for an element of the tensor. `index` is the flat row-major "
            "index of the first such element.",
        ),
        _row(
            errors.ParameterError,
            422,
            "A number cannot be used",
            "A multiplier, a shift, a factor or another number given in the request lies outside of what the "
            "operation is defined for. `index` is its place where it is one of a list.",
        ),
        _row(
            errors.TensorDataError,
            400,
            "The data disagree with the type",
            "The bytes or values of a tensor are not what its type promises: another number of bytes, another number "
            "of values, or a value that the element type cannot hold.",
        ),
        _row(
            errors.NpyError,
            400,
            "The .npy body cannot be used",
            "The body is not a .npy file, or one of a kind that is not served: objects, structured, complex, text or "
            "big-endian elements, Fortran order, or a shape that promises more or fewer bytes than the body has. "
            "numpy.save(file, numpy.ascontiguousarray(x)) writes what is served.",
        ),
        _row(
            errors.Base64Error,
            400,
            "The text is not base64",
            "`data` has to be standard base64 with padding (RFC 4648 section 4): the alphabet with `+` and `/`, no "
            "white space, no line breaks.",
        ),
        _row(
            errors.MalformedRequestError,
            400,
            "The request cannot be read",
            "The message is not HTTP/1.1, the body is not JSON in UTF-8, or it ended before its declared length.",
        ),
        _row(
            errors.SlowRequestError,
            408,
            "The request did not arrive in time",
            "The head of a request, and its body, each have a time in which they have to arrive; that of the body "
            "grows with its size. The connection is closed after this reply.",
        ),
        _row(
            errors.LargeHeadError,
            431,
            "The head of the request is too large",
            "The path, the query and the header fields have a limit in all, and the fields are limited in number. GET "
            "/v1/info shows both. Long types go into the body of a JSON route, such as /v1/quantize, or under /v2 into "
            "the JSON before the tensors. The connection is closed after this reply.",
        ),
        _row(
            errors.VersionError,
            505,
            "The version of HTTP is not spoken",
            "Requests are read in HTTP/1.1 and HTTP/1.0. The connection is closed after this reply.",
        ),
        _row(
            errors.TransferCodingError,
            501,
            "The transfer coding is not decoded",
            "A body has a Content-Length, or its Transfer-Encoding is `chunked` and nothing else. The connection is "
            "closed after this reply.",
        ),
        _row(
            errors.CrossOriginError,
            403,
            "The page may not send this request",
            "A browser asked, for a page of another origin, whether it may send a request (CORS). The service was "
            "started without that origin, or the method or a header field is not one that pages send here.",
        ),
        _row(
            errors.InvalidRequestError,
            422,
            "Fields of the request are wrong",
            "The request can be read, but fields are missing, unknown or of the wrong kind. `errors` lists up to 16 "
            "of them, each with a JSON pointer. Unknown fields are refused, so that a misspelt option cannot be "
            "ignored silently.",
        ),
        _row(
            errors.UnreadableEncodingError,
            415,
            "The media type is not read here",
            "JSON routes read application/json. The routes under /v1/npy read application/octet-stream "
            "(application/x-npy and application/x-binary mean the same). Under /v2 any is taken. Bodies are not "
            "compressed, but under /v2 they may be, with gzip or deflate.",
        ),
        _row(
            errors.LimitError,
            413,
            "A limit was passed",
            "The request is larger than a stated limit; `limit` is the number. GET /v1/info shows all limits. If the "
            "body was not read to its end, the connection is closed after this reply.",
        ),
        _row(
            errors.DeadlineError,
            504,
            "The work took too long",
            "Work on the request was stopped after `limit` seconds of CPU, and nothing of it is kept. GET /v1/info "
            " shows it as max_compute_seconds. Repeating the request will not help; less of it in one "
            "request will.",
        ),
        _row(
            errors.UnavailableError,
            503,
            "The service is not ready",
            "The service is starting or stopping and takes no work. Repeat after the seconds in Retry-After.",
        ),
        _row(
            errors.OverloadedError,
            503,
            "The service is busy",
            "The memory that the request needs is in use by others and did not come free within the time that a "
            "request may wait, or too many requests wait for the threads already. Nothing was computed. Repeat after "
            "the seconds in Retry-After.",
        ),
        _row(
            errors.UnauthorizedError,
            401,
            "A token is needed",
            "The service was started with a file of tokens. Send one of them as `Authorization: Bearer <token>`. The "
            "health routes need none.",
        ),
        _row(
            errors.SelfTestError,
            503,
            "This machine computes wrongly",
            "At its start the service did not get a known answer, so it takes no work on this machine. The log names "
            "the answer.",
        ),
    )
)

_NOT_FOUND = ProblemKind(
    "not_found", 404, "There is nothing at this path", "No route has this path. GET /docs shows those that exist."
)
_METHOD = ProblemKind(
    "method_not_allowed", 405, "The path has no such method", "The path exists; the `Allow` header names its methods."
)
_INTERNAL = ProblemKind(
    "internal_error", 500, "The service failed", "A fault of the service, not of the request. The log has the details."
)

PROBLEMS: Mapping[str, ProblemKind] = {kind.code: kind for kind in (*_TABLE.values(), _NOT_FOUND, _METHOD, _INTERNAL)}


def kind_of(error: errors.RequantError) -> ProblemKind:
    """Return the row of the table for an error: that of its class, or of the nearest class above."""
    for cls in type(error).__mro__:
        if (kind := _TABLE.get(cls)) is not None:
            return kind
    return _INTERNAL


def problem_text(
    kind: ProblemKind,
    detail: str,
    request_id: str,
    members: Mapping[str, Any] | None = None,
    status: int | None = None,
) -> bytes:
    """Return the body of a problem."""
    problem = {
        "type": f"/problems/{kind.code}",
        "title": kind.title,
        "status": kind.status if status is None else status,
        "detail": detail,
        "code": kind.code,
        **(members or {}),
        "request_id": request_id,
    }
    return json_text(problem)


def problem_reply(
    request: Request,
    kind: ProblemKind,
    detail: str,
    members: Mapping[str, Any] | None = None,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem as a reply. `status` overrides the table's."""
    if f"{request.scope.get('path', '')}/".startswith("/v2/"):
        # Where clients of the Open Inference Protocol look.
        members = {"error": detail, **(members or {})}
    body = problem_text(kind, detail, request_id(request.scope), members, status)
    status = kind.status if status is None else status
    return Response(body, status, {**common_headers(request.scope), **(headers or {})}, MEDIA_TYPE)


def _members(error: errors.RequantError) -> dict[str, Any]:
    """Return the extension members that an error fills."""
    members: dict[str, Any] = {}
    for name in ("offset", "line", "column", "caret", "hint", "index", "limit"):
        value = getattr(error, name, None)
        if value is not None and value != "":
            members[name] = value
    faults = getattr(error, "faults", ())
    if faults:
        members["errors"] = [{"pointer": f.pointer, "code": f.code, "detail": f.detail} for f in faults]
    elif error.pointer is not None:
        entry = {"pointer": error.pointer, "code": kind_of(error).code, "detail": error.detail}
        if "offset" in members:
            entry["offset"] = members["offset"]
        members["errors"] = [entry]
    return members


def requant_problem(request: Request, error: errors.RequantError, status: int | None = None) -> Response:
    """Return the reply for an error raised on purpose."""
    kind = kind_of(error)
    headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(kind.status)
    return problem_reply(request, kind, error.detail, _members(error), status=status, headers=headers)


async def on_requant_error(request: Request, error: Exception) -> Response:
    """Handle every error of `core.errors`."""
    assert isinstance(error, errors.RequantError)
    return requant_problem(request, error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Handle what the router raises: no such path, no such method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem_reply(request, _NOT_FOUND, "there is no route with this path")
    if error.status_code == 405:
        allow = (error.headers or {}).get("Allow", "").replace("GET", "GET, HEAD")
        return problem_reply(
            request, _METHOD, f"the path takes {allow or 'another method'}", headers={"allow": allow} if allow else None
        )
    title = http.HTTPStatus(error.status_code).phrase
    kind = ProblemKind("http_error", error.status_code, title, "")
    return problem_reply(request, kind, title, headers=error.headers)


async def on_unexpected(request: Request, error: Exception) -> Response:
    """Handle a fault of the service. Nothing of the inside is told; uvicorn logs the traceback."""
    _log.error("Request %s failed.", request_id(request.scope))
    detail = "the service failed; the log has the details"
    return problem_reply(request, _INTERNAL, detail, headers={"connection": "close"})


def invalid_request(error: ValidationError, max_values: int) -> errors.RequantError:
    """Return what pydantic found as our own error, without the input that it would repeat.

    `max_values` is the limit that a list of values has passed before it was found too long here.
    """
    found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] == "too_long":
        place = found[0]["loc"]
        limit = max_values if place[-1] == "values" else found[0]["ctx"]["max_length"]
        return errors.LimitError(f"a list has more than {limit} entries", limit=limit, pointer=pointer(*place))
    faults = []
    for item in found[:_MOST_FAULTS]:
        path = pointer(*item["loc"])
        detail = _IN_JSON.get(item["type"]) or item["msg"][:1].lower() + item["msg"][1:]
        faults.append(errors.FieldFault(errors.excerpt(path), item["type"], errors.excerpt(detail)))
    first = f"{faults[0].pointer or 'the body'}: {faults[0].detail}"
    more = "" if len(found) == 1 else f" (and {len(found) - 1} more)"
    return errors.InvalidRequestError(first + more, tuple(faults))


def pointer(*location: int | str) -> str:
    """Return the JSON pointer (RFC 6901) for a place."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in location)
