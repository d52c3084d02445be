"""Errors as RFC 9457 problems: one table from error class to status, title and explanation, and replies made of it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from requant import errors
from requant.errors import excerpt
from requant.errors.names import did_you_mean
from requant_service.http.responses import common_headers, json_text
from requant_service.runtime.request_context import context_of

_log = logging.getLogger("uvicorn.error")

MEDIA_TYPE = "application/problem+json"


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
            "Invalid type",
            "The type text could not be parsed or violates an MLIR rule. `offset` is the index of the first "
            "invalid character, `caret` marks it below the text, and `hint` suggests the likely intended text. POST "
            "the text to /v1/types/parse to try variants.",
        ),
        _row(
            errors.TypeFitError,
            422,
            "Type does not fit the tensor",
            "The type is valid MLIR, but not for this tensor: its axis, its number of scales or its block sizes do "
            "not match the tensor's shape. The detail states both.",
        ),
        _row(
            errors.UnsupportedError,
            422,
            "Unsupported type",
            "The type is valid and fits the tensor, but the operation or the profile does not support it. GET "
            "/v1/profiles lists what each profile supports.",
        ),
        _row(
            errors.UnknownNameError,
            422,
            "Unknown name",
            "The request names a profile, scheme, operator or model that does not exist. The detail lists the "
            "valid names, and `hint` suggests the nearest one. If the name is part of the path, the status "
            "is 404.",
        ),
        _row(
            errors.LoweringError,
            422,
            "Cannot lower the module",
            "The module is valid, but a pass or the evaluator does not support one of its operations. The detail "
            "names the operation and the reason; `line` and `column`, counted from 1, locate it in the module.",
        ),
        _row(
            errors.ModuleTextError,
            422,
            "Invalid module",
            "The module could not be parsed or failed verification. `line` and `column` count from 1, `offset` is "
            "the index of the same character, and `caret` marks it below its line. Supported dialects: builtin, "
            "func, arith, tensor, linalg, quant, shape, stablehlo, chlo and tosa. Control flow between blocks is "
            "not supported.",
        ),
        _row(
            errors.PreconditionError,
            422,
            "Undefined result",
            "The selected arithmetic does not define a result for an element of the tensor. `index` is the flat "
            "row-major index of the first such element.",
        ),
        _row(
            errors.ParameterError,
            422,
            "Invalid parameter",
            "A multiplier, shift, factor or other numeric parameter is outside the domain of the operation. If it "
            "is part of a list, `index` is its position.",
        ),
        _row(
            errors.TensorDataError,
            400,
            "Tensor data does not match its type",
            "The number of bytes or values differs from what the tensor's type requires, or the element type "
            "cannot represent a value.",
        ),
        _row(
            errors.NpyError,
            400,
            "Invalid .npy body",
            "The body is not a .npy file, or an unsupported one: object, structured, complex, text or big-endian "
            "elements, Fortran order, or a shape that does not match the length of the body. numpy.save(file, "
            "numpy.ascontiguousarray(x)) writes a supported file.",
        ),
        _row(
            errors.Base64Error,
            400,
            "Invalid base64",
            "`data` must be standard base64 with padding (RFC 4648 section 4): the alphabet with `+` and `/`, "
            "without white space or line breaks.",
        ),
        _row(
            errors.MalformedRequestError,
            400,
            "Malformed request",
            "The message is not valid HTTP/1.1, the body is not valid JSON in UTF-8, or the body ended before its "
            "declared length.",
        ),
        _row(
            errors.SlowRequestError,
            408,
            "Request timeout",
            "The request head or body did not arrive within its read timeout. The timeout for the body grows with "
            "its size. The connection is closed after this response.",
        ),
        _row(
            errors.LargeHeadError,
            431,
            "Request head too large",
            "The request line and header fields are limited in total size, and the header fields in number. GET "
            "/v1/info shows both limits. Send long types, or their scales as .npy files, in a form to "
            "/v1/multipart/quantize, or in the body of a JSON route such as /v1/quantize, or under /v2 in the JSON "
            "that precedes the tensors. The connection is closed after this response.",
        ),
        _row(
            errors.VersionError,
            505,
            "HTTP version not supported",
            "The service supports HTTP/1.1 and HTTP/1.0. The connection is closed after this response.",
        ),
        _row(
            errors.TransferCodingError,
            501,
            "Transfer coding not implemented",
            "A body needs a Content-Length or `Transfer-Encoding: chunked`; no other transfer coding is "
            "implemented. The connection is closed after this response.",
        ),
        _row(
            errors.UnimplementedError,
            501,
            "Not implemented",
            "The method is part of the Open Inference Protocol over gRPC or of one of its extensions, and this "
            "service does not implement it. The detail names the alternative.",
        ),
        _row(
            errors.CrossOriginError,
            403,
            "Cross-origin request not allowed",
            "A web page of another origin sent a request other than GET, HEAD or OPTIONS, and its origin is not among "
            "those configured (`cors_origins`); or a CORS preflight was refused, because of the origin, the method or "
            "a header field. Clients other than browsers send neither `Origin` nor `Sec-Fetch-Site`.",
        ),
        _row(
            errors.HostError,
            421,
            "Host not allowed",
            "The `Host` of the request is not among the names that the service answers to (`allowed_hosts`; on a "
            "loopback address only names of this machine, unless that setting says otherwise). So a web page cannot "
            "reach the service through a domain name of its own (DNS rebinding).",
        ),
        _row(
            errors.InvalidRequestError,
            422,
            "Invalid request",
            "The request is well-formed, but fields are missing, unknown or of the wrong type. `errors` lists up to 16 "
            "of them, each with a JSON pointer. Unknown fields are rejected so that a misspelt option is never "
            "silently ignored.",
        ),
        _row(
            errors.UnreadableEncodingError,
            415,
            "Unsupported media type",
            "JSON routes accept application/json. Routes under /v1/npy accept application/octet-stream, "
            "application/x-npy, application/x-binary and application/vnd.safetensors, those under /v1/multipart "
            "multipart/form-data. Routes under /v2 accept any media type. Compressed bodies (gzip, deflate) are "
            "accepted under /v2 only.",
        ),
        _row(
            errors.SharedMemoryError,
            422,
            "Shared memory cannot be used",
            "Shared memory is disabled (setting `shared_memory`), the region is already registered, or its object is "
            "missing, may not be opened, or is smaller than stated. If the object shrank while it was used, nothing "
            "that was written to it in that request counts.",
        ),
        _row(
            errors.CheckpointError,
            422,
            "Checkpoint cannot be converted",
            "A tensor's shape or dtype does not fit the scheme, a weight holds a NaN or an infinity, or a file of the "
            "checkpoint is missing. `file` and `tensor` name the place.",
        ),
        _row(
            errors.SafetensorsError,
            400,
            "Invalid safetensors file",
            "The header is malformed or disagrees with the length of the file. The detail says where.",
        ),
        _row(
            errors.SourceChangedError,
            409,
            "Source changed",
            "A file of the source has changed since the conversion was planned. Start the conversion again.",
        ),
        _row(
            errors.DestinationError,
            409,
            "Destination in use",
            "The destination holds files of another conversion, or another worker is writing there.",
        ),
        _row(
            errors.StorageError,
            422,
            "Storage cannot be used",
            "A file or directory is missing, access to it is denied, or the disk is full.",
        ),
        _row(
            errors.VerificationError,
            422,
            "Verification failed",
            "The converted checkpoint differs from the conversion of its source, or its index, headers and config "
            "disagree.",
        ),
        _row(
            errors.LimitError,
            413,
            "Limit exceeded",
            "The request exceeds a limit, whose value is `limit`. GET /v1/info shows all limits. If the body was "
            "not read to its end, the connection is closed after this response.",
        ),
        _row(
            errors.DeadlineError,
            504,
            "Deadline exceeded",
            "The request was aborted after `limit` seconds of CPU time (max_compute_seconds in GET /v1/info), or "
            "storage did not answer for `limit` seconds. No "
            "partial result is kept. Retrying does not help; split the work into smaller requests.",
        ),
        _row(
            errors.UnavailableError,
            503,
            "Service unavailable",
            "The service is starting or shutting down and accepts no work. Retry after the number of seconds in "
            "Retry-After.",
        ),
        _row(
            errors.OverloadedError,
            503,
            "Service overloaded",
            "The memory budget is in use by other requests and not enough of it became free while this request "
            "waited, or the executor's queue is full. Nothing was computed. Retry after the number of seconds in "
            "Retry-After.",
        ),
        _row(
            errors.UnauthorizedError,
            401,
            "Unauthorized",
            "The service requires a bearer token: `Authorization: Bearer <token>`. Health routes need none.",
        ),
        _row(
            errors.SelfTestError,
            503,
            "Self-test failed",
            "A kernel returned a wrong result in the start-up self-test, so the service refuses work on this "
            "machine. The log names the failed check.",
        ),
    )
)

_NOT_FOUND = ProblemKind("not_found", 404, "Not found", "No route matches this path. GET /docs lists the routes.")
_METHOD = ProblemKind(
    "method_not_allowed",
    405,
    "Method not allowed",
    "The path exists, but not with this method. The `Allow` header lists the methods that it supports.",
)
INTERNAL = ProblemKind(
    "internal_error",
    500,
    "Internal error",
    "An unexpected error in the service. The log has the details under the request id.",
)
INTERNAL_DETAIL = "unexpected error; the log has the details"

PROBLEMS: Mapping[str, ProblemKind] = {kind.code: kind for kind in (*_TABLE.values(), _NOT_FOUND, _METHOD, INTERNAL)}


def kind_of(error: errors.RequantError) -> ProblemKind:
    """Return the row of the table for an error: that of its class, or of the nearest class above."""
    for cls in type(error).__mro__:
        if (kind := _TABLE.get(cls)) is not None:
            return kind
    return INTERNAL


def problem_response(
    request: Request,
    kind: ProblemKind,
    detail: str,
    members: Mapping[str, Any] | None = None,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem as a response. `status` overrides the table's."""
    if f"{request.scope.get('path', '')}/".startswith("/v2/"):
        # Where clients of the Open Inference Protocol look.
        members = {"error": detail, **(members or {})}
    context = context_of(request.scope)
    status = kind.status if status is None else status
    problem = problem_document(kind, detail, members or {}, status, context.request_id)
    common = {name.decode(): value.decode() for name, value in common_headers(context)}
    return Response(json_text(problem), status, {**common, **(headers or {})}, MEDIA_TYPE)


def problem_document(
    kind: ProblemKind, detail: str, members: Mapping[str, Any], status: int, request_id: str
) -> dict[str, Any]:
    """Return a problem as the members of its JSON object."""
    return {
        "type": f"/problems/{kind.code}",
        "title": kind.title,
        "status": status,
        "detail": detail,
        "code": kind.code,
        **members,
        "request_id": request_id,
    }


def problem_members(error: errors.RequantError) -> dict[str, Any]:
    """Return the extension members that an error fills."""
    members: dict[str, Any] = {}
    for name in ("offset", "line", "column", "caret", "hint", "index", "limit", "file", "tensor"):
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


def error_response(request: Request, error: errors.RequantError, status: int | None = None) -> Response:
    """Return the response to an error raised on purpose."""
    kind = kind_of(error)
    headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(kind.status)
    return problem_response(request, kind, error.detail, problem_members(error), status=status, headers=headers)


def not_found(request: Request, paths: Collection[str] = ()) -> Response:
    """Return the response to a path that no route has. `paths`: those that there are."""
    hint = did_you_mean(request.scope.get("path", ""), paths)
    members = {} if hint is None else {"hint": hint}
    detail = "no route matches this path" + ("" if hint is None else f"; {hint}")
    return problem_response(request, _NOT_FOUND, detail, members)


def method_not_allowed(request: Request, methods: Iterable[str]) -> Response:
    """Return the response to a method that a route does not have."""
    allow = ", ".join(sorted(methods))
    # HEAD is answered like GET.
    given = "GET" if request.method == "HEAD" else excerpt(request.method)
    advice = "; /docs has an example of its body" if allow == "POST" else ""
    if given == "POST" and request.scope["path"].startswith("/v2/models/"):
        advice = "; a model is run by POST to its path and /infer"
    detail = f"the path supports {allow}, and not {given}{advice}"
    return problem_response(request, _METHOD, detail, headers={"allow": allow})


def internal_error(request: Request) -> Response:
    """Return the response to a fault of the service. It says nothing of the inside; uvicorn logs the traceback."""
    _log.error("Request %s failed.", context_of(request.scope).request_id)
    return problem_response(request, INTERNAL, INTERNAL_DETAIL, headers={"connection": "close"})


def pointer(*location: int | str) -> str:
    """Return the JSON pointer (RFC 6901) for a place."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in location)
