"""Every error that Requant raises on purpose, in one tree: class, code, HTTP status, title and explanation.

Codes are part of the API: they are added, never renamed. The explanation is what `/problems/<code>` says. A message
says what was wrong, where, and what was expected. Of what the caller sent it holds an excerpt; should one hold more,
the base class cuts it to `DETAIL_LIMIT` characters.

Three questions about a type are never mixed: is it MLIR (TypeTextError), does it fit this tensor (TypeFitError), and
does this operation or profile take it (UnsupportedError).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import ClassVar

EXCERPT_LIMIT = 80
DETAIL_LIMIT = 2000


def excerpt(text: str) -> str:
    """Return at most `EXCERPT_LIMIT` characters of `text`, unprintable ones escaped, for use in a message."""
    shown = text if len(text) <= EXCERPT_LIMIT else text[: EXCERPT_LIMIT - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


def shortened(detail: str, limit: int) -> str:
    """Return `detail`, cut in the middle when it is long: the start says what was wrong, the end what was expected."""
    if len(detail) <= limit:
        return detail
    kept = (limit - len("...")) // 2
    return f"{detail[:kept]}...{detail[-kept:]}"


class RequantError(Exception):
    """Base of all errors. `pointer` is a JSON pointer to the request field at fault, when one is known.

    `side` names the tensor whose type is at fault (`error_side`): "input", "output", or an operand such as "lhs".
    `others`: what else is wrong with the request, each with its pointer.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    explanation: ClassVar[str] = "An unexpected error in the service. The log has the details under the request id."
    side: str | None = None
    others: tuple[RequantError, ...] = ()

    def __init__(self, detail: str, *, pointer: str | None = None) -> None:
        detail = shortened(detail, DETAIL_LIMIT)
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


@contextmanager
def error_side(side: str) -> Iterator[None]:
    """Say of an error that passes through which tensor's type it is about: "input", "output", "lhs" and so on."""
    try:
        yield
    except RequantError as error:
        error.side = error.side or side
        raise


class _DefaultPointer:
    # Not a generator: every small request enters one, and that takes as long as reading its elements.

    __slots__ = ("_kinds", "_pointer")

    def __init__(self, pointer: str, kinds: tuple[type[RequantError], ...]) -> None:
        self._pointer = pointer
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, self._kinds) and error.pointer is None:
            error.pointer = self._pointer


def default_pointer(pointer: str, *kinds: type[RequantError]) -> AbstractContextManager[None]:
    """Put `pointer` on an error that passes through without one; with `kinds`, only on errors of those classes."""
    return _DefaultPointer(pointer, kinds or (RequantError,))


@contextmanager
def pointers_for_sides(**pointers: str) -> Iterator[None]:
    """Put the pointer of the field that gave a tensor's type on an error about that tensor (`error_side`)."""
    try:
        yield
    except RequantError as error:
        if error.pointer is None and error.side is not None:
            error.pointer = pointers.get(error.side)
        raise


@contextmanager
def pointer_prefix(pointer: str) -> Iterator[None]:
    """Put `pointer` before the pointer of an error that passes through, which points into a part of the request."""
    try:
        yield
    except RequantError as error:
        error.pointer = pointer + (error.pointer or "")
        raise


class TypeTextError(RequantError):
    """The text is not a type of MLIR. `offset` is the index of the first wrong character.

    `caret` is two lines: the part of the text around the offset, and a caret under the character. `hint` names the
    likely intention when the mistake is a common one.
    """

    code = "type_invalid"
    status = 422
    title = "Invalid type"
    explanation = (
        "The type text could not be parsed or violates an MLIR rule. `offset` is the index of the first invalid "
        "character, `caret` marks it below the text, and `hint` suggests the likely intended text. POST the text to "
        "/v1/types/parse to try variants."
    )

    def __init__(
        self,
        detail: str,
        *,
        offset: int,
        caret: str = "",
        hint: str | None = None,
        pointer: str | None = None,
    ) -> None:
        super().__init__(detail, pointer=pointer)
        self.offset = offset
        self.caret = caret
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.detail, self.caret, self.hint)))


class TypeFitError(RequantError):
    """A valid type that does not fit the tensor that it is put on: rank, axis, number of scales, blocks, shape."""

    code = "type_does_not_fit"
    status = 422
    title = "Type does not fit the tensor"
    explanation = (
        "The type is valid MLIR, but not for this tensor: its axis, its number of scales or its block sizes do not "
        "match the tensor's shape. The detail states both."
    )


class UnsupportedError(RequantError):
    """A valid type that fits, but that the operation or the profile does not take."""

    code = "unsupported"
    status = 422
    title = "Unsupported type"
    explanation = (
        "The type is valid and fits the tensor, but the operation or the profile does not support it. GET /v1/profiles "
        "lists what each profile supports."
    )


class UnknownNameError(UnsupportedError):
    """No profile, scheme or operator of that name. The message lists those that exist.

    `hint` asks whether a similar name was meant (`requant.errors.names`).
    """

    code = "unknown_name"
    status = 422
    title = "Unknown name"
    explanation = (
        "The request names a profile, scheme, operator or model that does not exist. The detail lists the valid names, "
        "and `hint` suggests the nearest one. If the name is part of the path, the status is 404."
    )

    def __init__(self, detail: str, *, hint: str | None = None, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.hint = hint


class LoweringError(UnsupportedError):
    """A pass or the evaluator does not take an operation. `line` and `column` are its place in the module, from 1."""

    code = "lowering_failed"
    status = 422
    title = "Cannot lower the module"
    explanation = (
        "The module is valid, but a pass or the evaluator does not support one of its operations. The detail names the "
        "operation and the reason; `line` and `column`, counted from 1, locate it in the module."
    )

    def __init__(
        self, detail: str, *, line: int | None = None, column: int | None = None, pointer: str | None = None
    ) -> None:
        super().__init__(detail, pointer=pointer)
        self.line = line
        self.column = column


class ModuleTextError(RequantError):
    """The text is not a module: `offset` is the index of the wrong character, `line` and `column` count from 1.

    `caret` is two lines: the part of the line around the place, and a caret under it.
    """

    code = "module_invalid"
    status = 422
    title = "Invalid module"
    explanation = (
        "The module could not be parsed or failed verification. `line` and `column` count from 1, `offset` is the "
        "index of the same character, and `caret` marks it below its line. Supported dialects: builtin, func, arith, "
        "tensor, linalg, quant, shape, stablehlo, chlo and tosa. Control flow between blocks is not supported."
    )

    def __init__(
        self, detail: str, *, offset: int, line: int, column: int, caret: str, pointer: str | None = None
    ) -> None:
        super().__init__(detail, pointer=pointer)
        self.offset = offset
        self.line = line
        self.column = column
        self.caret = caret

    def __str__(self) -> str:
        return f"{self.detail}\n{self.caret}"


class PreconditionError(RequantError):
    """The named arithmetic is not defined for a value. `index`: the flat row-major index of the first such element."""

    code = "precondition_failed"
    status = 422
    title = "Undefined result"
    explanation = (
        "The selected arithmetic does not define a result for an element of the tensor. `index` is the flat row-major "
        "index of the first such element."
    )

    def __init__(self, detail: str, *, index: int | None = None, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.index = index

    def __str__(self) -> str:
        return self.detail if self.index is None else f"{self.detail} (element {self.index})"


class ParameterError(RequantError):
    """A number given by the caller, such as a multiplier, a shift or a factor, is not usable.

    `index`: its place, where it is one of a list.
    """

    code = "parameter_invalid"
    status = 422
    title = "Invalid parameter"
    explanation = (
        "A multiplier, shift, factor or other numeric parameter is outside the domain of the operation. If it is part "
        "of a list, `index` is its position."
    )

    def __init__(self, detail: str, *, index: int | None = None, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.index = index


class TensorDataError(RequantError):
    """The data of a tensor disagree with its type: byte count, number of values, a value out of range."""

    code = "tensor_data"
    status = 400
    title = "Tensor data does not match its type"
    explanation = (
        "The number of bytes or values differs from what the tensor's type requires, or the element type cannot "
        "represent a value."
    )


class NpyError(TensorDataError):
    """The `.npy` container is malformed, or holds what is not served (objects, Fortran order, foreign byte order)."""

    code = "npy"
    status = 400
    title = "Invalid .npy body"
    explanation = (
        "The body is not a .npy file, or an unsupported one: object, structured, complex, text or big-endian elements, "
        "Fortran order, or a shape that does not match the length of the body. numpy.save(file, "
        "numpy.ascontiguousarray(x)) writes a supported file."
    )


class Base64Error(TensorDataError):
    """The text is not standard base64 with padding (RFC 4648 section 4)."""

    code = "base64"
    status = 400
    title = "Invalid base64"
    explanation = (
        "`data` must be standard base64 with padding (RFC 4648 section 4): the alphabet with `+` and `/`, without "
        "white space or line breaks."
    )


class RequestError(RequantError):
    """Something around the tensors: the message itself."""


class MalformedRequestError(RequestError):
    """The message cannot be read: JSON that is not JSON, a body that ended early."""

    code = "request_malformed"
    status = 400
    title = "Malformed request"
    explanation = (
        "The message is not valid HTTP/1.1, the body is not valid JSON in UTF-8, or the body ended before its declared "
        "length."
    )


class SlowRequestError(RequestError):
    """The head or the body of a message did not arrive within the time that its size gives it."""

    code = "request_timeout"
    status = 408
    title = "Request timeout"
    explanation = (
        "The request head or body did not arrive within its read timeout. The timeout for the body grows with its "
        "size. The connection is closed after this response."
    )


class LargeHeadError(RequestError):
    """The head of a message has more bytes or more fields than are read."""

    code = "head_too_large"
    status = 431
    title = "Request head too large"
    explanation = (
        "The request line and header fields are limited in total size, and the header fields in number. GET /v1/info "
        "shows both limits. Send long types, or their scales as .npy files, in a form to /v1/multipart/quantize, or in "
        "the body of a JSON route such as /v1/quantize, or under /v2 in the JSON that precedes the tensors. The "
        "connection is closed after this response."
    )


class VersionError(RequestError):
    """The message is in a major version of HTTP that is not spoken."""

    code = "http_version"
    status = 505
    title = "HTTP version not supported"
    explanation = "The service supports HTTP/1.1 and HTTP/1.0. The connection is closed after this response."


class TransferCodingError(RequestError):
    """The body of the message is in a transfer coding that is not decoded."""

    code = "transfer_coding"
    status = 501
    title = "Transfer coding not implemented"
    explanation = (
        "A body needs a Content-Length or `Transfer-Encoding: chunked`; no other transfer coding is implemented. The "
        "connection is closed after this response."
    )


class UnimplementedError(RequestError):
    """The message calls a method that its protocol has and this service has not."""

    code = "unimplemented"
    status = 501
    title = "Not implemented"
    explanation = (
        "The method is part of the Open Inference Protocol over gRPC or of one of its extensions, and this service "
        "does not implement it. The detail names the alternative."
    )


class CrossOriginError(RequestError):
    """A web page of another origin sent a request that may change something, or asked whether it may (CORS).

    Its origin, the method or a field is not allowed.
    """

    code = "cross_origin"
    status = 403
    title = "Cross-origin request not allowed"
    explanation = (
        "A web page of another origin sent a request other than GET, HEAD or OPTIONS, and its origin is not among "
        "those configured (`cors_origins`); or a CORS preflight was refused, because of the origin, the method or a "
        "header field. Clients other than browsers send neither `Origin` nor `Sec-Fetch-Site`."
    )


class HostError(RequestError):
    """The Host of the message is none of the names that the service answers to."""

    code = "host_not_allowed"
    status = 421
    title = "Host not allowed"
    explanation = (
        "The `Host` of the request is not among the names that the service answers to (`allowed_hosts`; on a loopback "
        "address only names of this machine, unless that setting says otherwise). So a web page cannot reach the "
        "service through a domain name of its own (DNS rebinding)."
    )


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One wrong field of a request: a JSON pointer, a stable code and a sentence."""

    pointer: str
    code: str
    detail: str


class InvalidRequestError(RequestError):
    """The message can be read, and fields of it are missing, unknown or of the wrong kind. `faults` has at most 16."""

    code = "request_invalid"
    status = 422
    title = "Invalid request"
    explanation = (
        "The request is well-formed, but fields are missing, unknown or of the wrong type. `errors` lists up to 16 of "
        "them, each with a JSON pointer. Unknown fields are rejected so that a misspelt option is never silently "
        "ignored."
    )

    def __init__(self, detail: str, faults: tuple[FieldFault, ...] = (), *, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.faults = faults[:16]

    @classmethod
    def of_field(cls, pointer: str, code: str, detail: str, *, message: str = "") -> InvalidRequestError:
        """Return the error about one field. `message`: of the whole, where that is not the detail."""
        return cls(message or detail, (FieldFault(pointer, code, detail),))


class UnreadableEncodingError(RequestError):
    """The media type or content coding of the message is not one that is served here."""

    code = "media_type"
    status = 415
    title = "Unsupported media type"
    explanation = (
        "JSON routes accept application/json. Routes under /v1/npy accept application/octet-stream, application/x-npy, "
        "application/x-binary and application/vnd.safetensors, those under /v1/multipart multipart/form-data. Routes "
        "under /v2 accept any media type. Compressed bodies (gzip, deflate) are accepted under /v2 only."
    )


class SharedMemoryError(RequantError):
    """A region of shared memory cannot be registered or used: its object is missing, too small, or not to be opened."""

    code = "shared_memory"
    status = 422
    title = "Shared memory cannot be used"
    explanation = (
        "Shared memory is disabled (setting `shared_memory`), the region is already registered, or its object is "
        "missing, may not be opened, or is smaller than stated. If the object shrank while it was used, nothing that "
        "was written to it in that request counts."
    )


class CheckpointError(RequantError):
    """A checkpoint cannot be converted as requested. `file` and `tensor` name the place where one is known."""

    code = "checkpoint"
    status = 422
    title = "Checkpoint cannot be converted"
    explanation = (
        "A tensor's shape or dtype does not fit the scheme, a weight holds a NaN or an infinity, or a file of the "
        "checkpoint is missing. `file` and `tensor` name the place."
    )

    def __init__(
        self, detail: str, *, file: str | None = None, tensor: str | None = None, pointer: str | None = None
    ) -> None:
        super().__init__(detail, pointer=pointer)
        self.file = file
        self.tensor = tensor


class SafetensorsError(CheckpointError):
    """A safetensors file is malformed, or holds what is refused (a tensor name twice, bytes after the last tensor)."""

    code = "safetensors"
    status = 400
    title = "Invalid safetensors file"
    explanation = "The header is malformed or disagrees with the length of the file. The detail says where."


class SourceChangedError(CheckpointError):
    """A file of the source is not what it was when the plan was made, or ends before its end."""

    code = "source_changed"
    status = 409
    title = "Source changed"
    explanation = "A file of the source has changed since the conversion was planned. Start the conversion again."


class DestinationError(CheckpointError):
    """The destination holds files of something else, or another run works on it.

    `busy`: the latter, so that the same call may succeed later.
    """

    code = "destination"
    status = 409
    title = "Destination in use"
    explanation = "The destination holds files of another conversion, or another worker is writing there."

    def __init__(
        self,
        detail: str,
        *,
        busy: bool = False,
        file: str | None = None,
        tensor: str | None = None,
        pointer: str | None = None,
    ) -> None:
        super().__init__(detail, file=file, tensor=tensor, pointer=pointer)
        self.busy = busy


class StorageError(CheckpointError):
    """A place cannot be read or written: it is missing, access is denied, or the disk is full."""

    code = "storage"
    status = 422
    title = "Storage cannot be used"
    explanation = "A file or directory is missing, access to it is denied, or the disk is full."


class VerificationError(CheckpointError):
    """A converted checkpoint is not what it has to be: codes differ, or index, headers and config disagree."""

    code = "verification"
    status = 422
    title = "Verification failed"
    explanation = (
        "The converted checkpoint differs from the conversion of its source, or its index, headers and config disagree."
    )


class LimitError(RequantError):
    """A stated limit was passed. `limit` is the number, in the unit that the message names."""

    code = "limit_exceeded"
    status = 413
    title = "Limit exceeded"
    explanation = (
        "The request exceeds a limit, whose value is `limit`. GET /v1/info shows all limits. If the body was not read "
        "to its end, the connection is closed after this response."
    )

    def __init__(self, detail: str, *, limit: float, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.limit = limit


class DeadlineError(LimitError):
    """The work was stopped when its time was over. `limit` is that time in seconds."""

    code = "deadline_passed"
    status = 504
    title = "Deadline exceeded"
    explanation = (
        "The request was aborted after `limit` seconds of CPU time (max_compute_seconds in GET /v1/info), or storage "
        "did not answer for `limit` seconds. No partial result is kept. Retrying does not help; split the work into "
        "smaller requests."
    )


class UnavailableError(RequantError):
    """No work is taken at the moment. The same request may be repeated a little later."""

    code = "not_ready"
    status = 503
    title = "Service unavailable"
    explanation = (
        "The service is starting or shutting down and accepts no work. Retry after the number of seconds in "
        "Retry-After."
    )


class OverloadedError(UnavailableError):
    """The service is ready, but what the request needs is in use. The same request may be repeated a little later."""

    code = "overloaded"
    status = 503
    title = "Service overloaded"
    explanation = (
        "The memory budget is in use by other requests and not enough of it became free while this request waited, or "
        "the executor's queue is full. Nothing was computed. Retry after the number of seconds in Retry-After."
    )


class UnauthorizedError(RequantError):
    """The service asks for a token, and the request has none of those that it knows."""

    code = "unauthorized"
    status = 401
    title = "Unauthorized"
    explanation = "The service requires a bearer token: `Authorization: Bearer <token>`. Health routes need none."


class SelfTestError(RequantError):
    """A known answer came out differently on this machine: nothing that it computes can be trusted."""

    code = "self_test"
    status = 503
    title = "Self-test failed"
    explanation = (
        "A kernel returned a wrong result in the start-up self-test, so the service refuses work on this machine. The "
        "log names the failed check."
    )


class NoRouteError(RequantError):
    """No route has the path of the message. `hint` asks whether a similar one was meant."""

    code = "not_found"
    status = 404
    title = "Not found"
    explanation = "No route matches this path. GET /docs lists the routes."

    def __init__(self, detail: str, *, hint: str | None = None) -> None:
        super().__init__(detail)
        self.hint = hint


class MethodNotAllowedError(RequantError):
    """The route of the path does not have the method of the message."""

    code = "method_not_allowed"
    status = 405
    title = "Method not allowed"
    explanation = "The path exists, but not with this method. The `Allow` header lists the methods that it supports."
