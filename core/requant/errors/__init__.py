"""Every error that Requant raises on purpose, in one tree.

RequantError
├── TypeTextError             the text is not an MLIR type (parser, verifier)          question 1
├── TypeFitError              the type does not fit this tensor (container check)      question 2
├── UnsupportedError          the operation or profile does not take these types       question 3
│   ├── UnknownNameError      no profile, scheme or other named thing of that name
│   └── LoweringError         a pass or the evaluator does not take an operation of a module
├── ModuleTextError           the text is not an MLIR module (parser, verifier)
├── PreconditionError         the arithmetic is not defined for this value
├── ParameterError            a number given by the caller cannot be used (multiplier, factor)
├── TensorDataError           the bytes or values of a tensor are not what its type promises
│   ├── NpyError              the `.npy` container is malformed or of a refused kind
│   └── Base64Error           the text is not base64
├── RequestError              the message around the tensors
│   ├── MalformedRequestError     it cannot be read at all
│   ├── SlowRequestError          it did not arrive in time
│   ├── LargeHeadError            its head is larger, or has more fields, than any is read
│   ├── VersionError              it is in a version of HTTP that is not spoken
│   ├── TransferCodingError       its body is in a transfer coding that is not decoded
│   ├── UnimplementedError        it calls a method of the protocol that is not served
│   ├── CrossOriginError          a page of another origin sent it, or asked whether it may, and it may not
│   ├── HostError                 its Host is none of the names that the service answers to
│   ├── InvalidRequestError       it can be read, and a field of it is missing, unknown or wrong
│   └── UnreadableEncodingError   it is in a media type or content coding that is not served
├── CheckpointError           a checkpoint cannot be converted as asked
│   ├── SafetensorsError          a safetensors file is malformed, or of a refused kind
│   ├── SourceChangedError        a file of the source is not what it was when the plan was made
│   ├── DestinationError          the destination holds something else, or another run works on it
│   ├── StorageError              a place cannot be read or written: missing, no permission, full
│   └── VerificationError         a converted checkpoint is not what it has to be
├── SharedMemoryError         a region of shared memory cannot be registered or used
├── LimitError                a stated limit was passed
│   └── DeadlineError             the work took longer than it may
├── UnauthorizedError         the request does not say who sends it
├── UnavailableError          no work is taken at the moment
│   └── OverloadedError           the memory or the threads for it are in use
└── SelfTestError             this machine does not compute what it has to; never part of an answer

Each class has a stable `code`, which is part of the API: codes are added, never renamed. A message says what was
wrong, where, and what was expected. Of what the caller sent it holds an excerpt; should one hold more, the base class
cuts it to `DETAIL_LIMIT` characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    """

    code: ClassVar[str] = "error"
    side: str | None = None

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


@contextmanager
def default_pointer(pointer: str, *kinds: type[RequantError]) -> Iterator[None]:
    """Put `pointer` on an error that passes through without one; with `kinds`, only on errors of those classes."""
    try:
        yield
    except RequantError as error:
        if error.pointer is None and isinstance(error, kinds or RequantError):
            error.pointer = pointer
        raise


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


class TypeFitError(RequantError):
    """A valid type that does not fit the tensor that it is put on: rank, axis, number of scales, blocks, shape."""

    code = "type_does_not_fit"


class UnsupportedError(RequantError):
    """A valid type that fits, but that the operation or the profile does not take."""

    code = "unsupported"


class UnknownNameError(UnsupportedError):
    """No profile, scheme or operator of that name. The message lists those that exist.

    `hint` asks whether a similar name was meant (`requant.errors.names`).
    """

    code = "unknown_name"

    def __init__(self, detail: str, *, hint: str | None = None, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.hint = hint


class LoweringError(UnsupportedError):
    """A pass or the evaluator does not take an operation. `line` and `column` are its place in the module, from 1."""

    code = "lowering_failed"

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

    def __init__(
        self, detail: str, *, offset: int, line: int, column: int, caret: str, pointer: str | None = None
    ) -> None:
        super().__init__(detail, pointer=pointer)
        self.offset = offset
        self.line = line
        self.column = column
        self.caret = caret


class PreconditionError(RequantError):
    """The named arithmetic is not defined for a value. `index`: the flat row-major index of the first such element."""

    code = "precondition_failed"

    def __init__(self, detail: str, *, index: int | None = None, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.index = index


class ParameterError(RequantError):
    """A number given by the caller, such as a multiplier, a shift or a factor, is not usable.

    `index`: its place, where it is one of a list.
    """

    code = "parameter_invalid"

    def __init__(self, detail: str, *, index: int | None = None, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.index = index


class TensorDataError(RequantError):
    """The data of a tensor disagree with its type: byte count, number of values, a value out of range."""

    code = "tensor_data"


class NpyError(TensorDataError):
    """The `.npy` container is malformed, or holds what is not served (objects, Fortran order, foreign byte order)."""

    code = "npy"


class Base64Error(TensorDataError):
    """The text is not standard base64 with padding (RFC 4648 section 4)."""

    code = "base64"


class RequestError(RequantError):
    """Something around the tensors: the message itself."""

    code = "request"


class MalformedRequestError(RequestError):
    """The message cannot be read: JSON that is not JSON, a body that ended early."""

    code = "request_malformed"


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One wrong field of a request: a JSON pointer, a stable code and a sentence."""

    pointer: str
    code: str
    detail: str


class InvalidRequestError(RequestError):
    """The message can be read, and fields of it are missing, unknown or of the wrong kind. `faults` has at most 16."""

    code = "request_invalid"

    def __init__(self, detail: str, faults: tuple[FieldFault, ...] = (), *, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.faults = faults[:16]

    @classmethod
    def of_field(cls, pointer: str, code: str, detail: str, *, message: str = "") -> InvalidRequestError:
        """Return the error about one field. `message`: of the whole, where that is not the detail."""
        return cls(message or detail, (FieldFault(pointer, code, detail),))


class SlowRequestError(RequestError):
    """The head or the body of a message did not arrive within the time that its size gives it."""

    code = "request_timeout"


class LargeHeadError(RequestError):
    """The head of a message has more bytes or more fields than are read."""

    code = "head_too_large"


class VersionError(RequestError):
    """The message is in a major version of HTTP that is not spoken."""

    code = "http_version"


class TransferCodingError(RequestError):
    """The body of the message is in a transfer coding that is not decoded."""

    code = "transfer_coding"


class UnimplementedError(RequestError):
    """The message calls a method that its protocol has and this service has not."""

    code = "unimplemented"


class CrossOriginError(RequestError):
    """A web page of another origin sent a request that may change something, or asked whether it may (CORS).

    Its origin, the method or a field is not allowed.
    """

    code = "cross_origin"


class HostError(RequestError):
    """The Host of the message is none of the names that the service answers to."""

    code = "host_not_allowed"


class UnreadableEncodingError(RequestError):
    """The media type or content coding of the message is not one that is served here."""

    code = "media_type"


class CheckpointError(RequantError):
    """A checkpoint cannot be converted as asked. `file` and `tensor` name the place where one is known."""

    code = "checkpoint"

    def __init__(
        self, detail: str, *, file: str | None = None, tensor: str | None = None, pointer: str | None = None
    ) -> None:
        super().__init__(detail, pointer=pointer)
        self.file = file
        self.tensor = tensor


class SafetensorsError(CheckpointError):
    """A safetensors file is malformed, or holds what is refused (a tensor name twice, bytes after the last tensor)."""

    code = "safetensors"


class SourceChangedError(CheckpointError):
    """A file of the source is not what it was when the plan was made, or ends before its end."""

    code = "source_changed"


class DestinationError(CheckpointError):
    """The destination holds files of something else, or another run works on it.

    `busy`: the latter, so that the same call may succeed later.
    """

    code = "destination"

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


class VerificationError(CheckpointError):
    """A converted checkpoint is not what it has to be: codes differ, or index, headers and config disagree."""

    code = "verification"


class SharedMemoryError(RequantError):
    """A region of shared memory cannot be registered or used: its object is missing, too small, or not to be opened."""

    code = "shared_memory"


class LimitError(RequantError):
    """A stated limit was passed. `limit` is the number, in the unit that the message names."""

    code = "limit_exceeded"

    def __init__(self, detail: str, *, limit: float, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.limit = limit


class DeadlineError(LimitError):
    """The work was stopped when its time was over. `limit` is that time in seconds."""

    code = "deadline_passed"


class UnavailableError(RequantError):
    """No work is taken at the moment. The same request may be repeated a little later."""

    code = "not_ready"


class OverloadedError(UnavailableError):
    """The service is ready, but what the request needs is in use. The same request may be repeated a little later."""

    code = "overloaded"


class UnauthorizedError(RequantError):
    """The service asks for a token, and the request has none of those that it knows."""

    code = "unauthorized"


class SelfTestError(RequantError):
    """A known answer came out differently on this machine: nothing that it computes can be trusted."""

    code = "self_test"
