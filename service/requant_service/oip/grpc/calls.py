"""gRPC over HTTP/2: each stream of a connection is a call (the protocol is in grpc's own PROTOCOL-HTTP2.md).

A message begins with its length. That is compared with the limit of its method as soon as it is there, and memory is
reserved before more of the message may come: four times what has come, or 256 KiB once 8 KiB have. So a client holds
memory for what it sends, never for what it promises; a call that only opens holds none. While half of the budget is
free, a message of up to 4 MiB has its memory at once, and later messages of its connection need no further window.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from requant.errors import (
    LargeHeadError,
    LimitError,
    MalformedRequestError,
    OverloadedError,
    RequantError,
    SlowRequestError,
    UnauthorizedError,
    UnavailableError,
    UnimplementedError,
    excerpt,
)
from requant_service.http.request_body import CODINGS, PIECE_BYTES, PieceInflater
from requant_service.http2.connection import Http2Connection
from requant_service.http2.frames import Fields, literal_field
from requant_service.http2.stream import INITIAL_WINDOW, Stream
from requant_service.middleware.access import holds_a_token
from requant_service.middleware.request_lifecycle import UNMATCHED, end_request
from requant_service.oip.grpc.statuses import (
    REQUEST_ID,
    Failure,
    NotFoundError,
    StatusCode,
    failure_of,
    internal_failure,
    trailers_of,
)
from requant_service.runtime.executor import start_eagerly
from requant_service.runtime.memory_budget import Reservation
from requant_service.runtime.request_context import ClientLeftError, HeaderFields, RequestContext, current_request
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import MIN_BYTES_PER_SECOND

_log = logging.getLogger("uvicorn.error")

_METHOD = "POST"
_OK = 200

# Concurrent calls of all connections, and streams of health of one connection.
_MAX_CALLS = 1024
_MAX_WATCHES = 16
# How much more is reserved than has come.
_GROWTH = 4
_MIN_GROWTH = 256 << 10
# What is reserved for a whole message of which little has come, as long as half of the budget is free.
_MAX_WHOLE = 4 << 20
# Of the places for messages that wait for memory, a connection has as many as if there were so many connections.
_WAITING_CONNECTIONS = 8

_PREFIX_BYTES = 5
# What numpy aligns memory to.
_ALIGNMENT = 16
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS: Mapping[bytes, float] = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_CONTENT_TYPE = re.compile(rb"application/grpc([+;].*)?", re.IGNORECASE | re.DOTALL)

# :status is 200: an entry of HPACK's static table.
_HEAD = b"".join(
    (
        b"\x88",
        literal_field(b"content-type", b"application/grpc"),
        literal_field(b"grpc-accept-encoding", b"identity,deflate,gzip"),
    )
)
_OK_TRAILERS = trailers_of(StatusCode.OK)
# Header fields of a call that the request context keeps.
_KEPT_FIELDS = frozenset((REQUEST_ID, b"traceparent"))

Message = bytes | memoryview
Work = Callable[[Message, RequestContext], Awaitable[bytes]]
Failed = Callable[[Message, Failure], bytes]
# Takes a message and what sends one, and returns what ends that.
Subscribe = Callable[[Message, Callable[[bytes], None]], Callable[[], None]]


class MethodKind(Enum):
    """How many messages a method takes and returns."""

    UNARY = "one message, one reply"
    STREAM = "a reply to each message"
    WATCH = "one message, many replies"


@dataclass(frozen=True, slots=True)
class Method:
    """A method: the most bytes of a message, and the work on one.

    `failed` makes the reply to a message of a stream that has failed; without it the stream ends. `subscribe` is in the
    place of `work` for `MethodKind.WATCH`. `is_open`: it needs no token, and is not logged.
    """

    route: str
    max_bytes: int
    kind: MethodKind = MethodKind.UNARY
    work: Work | None = None
    failed: Failed | None = None
    subscribe: Subscribe | None = None
    is_open: bool = False


class Calls:
    """Makes calls of streams, with what they all have in common."""

    def __init__(self, running: Runtime, methods: Iterable[Method]) -> None:
        self.running = running
        self.loop = asyncio.get_running_loop()
        self.methods = {method.route.encode(): method for method in methods}
        self.stopping = False
        self.receiving: set[Call] = set()
        """Calls with memory for a message that is not complete."""
        self.waiting: Counter[Http2Connection] = Counter()
        """How many messages of each connection wait for memory."""

    def open_stream(self, connection: Http2Connection, number: int, fields: Fields) -> Call:
        """Return the call that a stream is."""
        return Call(self, connection, number, fields)

    def make_room(self, call: Call, byte_count: int) -> bool:
        """Refuse a message that is being received, if its connection has more memory than that of `call` will have.

        So connections share what there is: those that hold much, and send slowly, lose it to others. Return whether a
        message was refused.
        """
        held = self._held()
        return self._refuse_largest(held, held[call.connection] + byte_count)

    def make_room_elsewhere(self) -> None:
        """Do the same for a request that waits at another worker. Called several times a second."""
        wanted = self.running.memory_budget.wanted_elsewhere
        if wanted:
            self._refuse_largest(self._held(), wanted)

    def _held(self) -> Counter[Http2Connection]:
        held: Counter[Http2Connection] = Counter()
        for each in self.receiving:
            held[each.connection] += each.memory.held
        return held

    def _refuse_largest(self, held: Counter[Http2Connection], byte_count: int) -> bool:
        """Refuse a message of the connection that holds the most, if that is more than `byte_count`."""
        largest = max(held, key=held.__getitem__, default=None)
        if largest is None or held[largest] <= byte_count:
            return False
        victim = max((each for each in self.receiving if each.connection is largest), key=lambda each: each.memory.held)
        victim.fail(OverloadedError("the memory of the message is needed for messages of other connections"))
        return True

    def stop_streams(self, connections: Collection[Http2Connection]) -> None:
        """End the streams: at once, or after the message that is in work."""
        self.stopping = True
        for connection in list(connections):
            for stream in list(connection.streams.values()):
                if isinstance(stream, Call):
                    stream.stop()


class _CallMemory(Reservation):
    """The memory of a request. When there is too little, connections that receive more give up some."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.calls.running.memory_budget)
        self._call = call

    async def grow(self, byte_count: int) -> None:
        """Hold `byte_count` bytes more. Raise LimitError or OverloadedError."""
        if self.try_grow(byte_count):
            return
        call, budget = self._call, self._call.calls.running.memory_budget
        while budget.reserved + byte_count > budget.budget and call.calls.make_room(call, byte_count):
            pass
        waiting, settings = call.calls.waiting, call.calls.running.settings
        if waiting[call.connection] >= max(1, settings.max_waiting // _WAITING_CONNECTIONS):
            raise OverloadedError(f"{waiting[call.connection]} messages of the connection wait for memory already")
        waiting[call.connection] += 1
        try:
            await super().grow(byte_count)
        finally:
            waiting[call.connection] -= 1
            if not waiting[call.connection]:
                del waiting[call.connection]


class Call(Stream):
    """One call."""

    __slots__ = (
        "_begun",
        "_buffer",
        "_busy",
        "_compressed",
        "_deadline",
        "_due",
        "_encoding",
        "_fields",
        "_filled",
        "_headers",
        "_length",
        "_message",
        "_method",
        "_request",
        "_rest",
        "_rest_memory",
        "_since",
        "_task",
        "_unsubscribe",
        "calls",
    )  # fmt: skip

    connection: Http2Connection

    def __init__(self, calls: Calls, connection: Http2Connection, number: int, fields: Fields) -> None:
        super().__init__(connection, number)
        self.calls = calls
        self._fields: Fields = fields
        self._headers: Mapping[bytes, bytes] = {}
        self._method = _UNKNOWN
        self._request = _NO_REQUEST
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._encoding = ""
        # Whether the request is counted as one that is being served.
        self._begun = False
        # Whether a message is in work, or its reply is being sent.
        self._busy = False
        self._since = calls.loop.time()
        # What came and belongs to no message yet, or has to wait.
        self._rest = bytearray()
        self._rest_memory = Reservation(calls.running.memory_budget)
        # The message that is being received: its length is -1 as long as that is not known.
        self._length = -1
        self._compressed = False
        self._buffer: memoryview | None = None
        self._filled = 0
        # How much of it has come when there is something to do: memory to be reserved, or the message is complete.
        self._due = 0
        self._message: Message | None = None

    def begin(self) -> None:
        """Check what the header fields say. Refuse the call at once if it is not to be served."""
        fields, self._fields = self._fields, ()
        named = dict(reversed(fields))
        self._headers = {name: named[name] for name in _KEPT_FIELDS if name in named}
        self._new_request()
        if named[b":method"] != b"POST" or not _CONTENT_TYPE.fullmatch(named.get(b"content-type", b"")):
            status = b"415" if named[b":method"] == b"POST" else b"405"
            self.connection.end_with(self, literal_field(b":status", status))
            return
        try:
            self._check(fields, named)
        except RequantError as error:
            self.fail(error)

    def _check(self, fields: Fields, named: Mapping[bytes, bytes]) -> None:
        """Check the header fields of the call. Raise what is wrong with them."""
        calls = self.calls
        method = calls.methods.get(named[b":path"])
        if method is None:
            raise UnimplementedError(f"no method is named {excerpt(named[b':path'].decode('latin-1'))!r}")
        self._method = method
        self.is_wanted = not method.is_open
        if self.connection.exceeds_limits(fields):
            limits = self.connection.limits
            raise LargeHeadError(
                f"the metadata has more than {limits.head_bytes} bytes or {limits.header_fields} fields"
            )
        if b"te" not in named:
            raise MalformedRequestError("the call has no 'te: trailers'; a proxy between drops what calls end with")
        self._encoding = named.get(b"grpc-encoding", b"identity").decode("latin-1").lower()
        if self._encoding != "identity" and self._encoding not in CODINGS:
            raise UnimplementedError(
                f"the grpc-encoding is {excerpt(self._encoding)!r}; supported are gzip and deflate"
            )
        tokens = calls.running.tokens
        if tokens is not None and not method.is_open:
            credentials = [value for name, value in fields if name == b"authorization"]
            if not holds_a_token(credentials, tokens):
                raise UnauthorizedError(
                    "the call has no valid token; expected the metadata 'authorization: Bearer <token>'"
                )
        if method.kind is MethodKind.WATCH and self._watches() > _MAX_WATCHES:
            raise OverloadedError(f"the connection has {_MAX_WATCHES} streams of {method.route} already")
        if method.kind is not MethodKind.UNARY and calls.stopping:
            raise UnavailableError(_STOPPING)
        if b"grpc-timeout" in named:
            timeout = _TIMEOUT.fullmatch(named[b"grpc-timeout"])
            if timeout is None:
                raise MalformedRequestError("the grpc-timeout is not a number of up to 8 digits and a unit")
            seconds = int(timeout[1]) * _SECONDS[timeout[2]]
            self._deadline = calls.loop.call_later(seconds, self._deadline_over)

    def _watches(self) -> int:
        streams = self.connection.streams.values()
        return sum(1 for each in streams if isinstance(each, Call) and each._method is self._method)

    def _new_request(self) -> None:
        self._request = RequestContext(HeaderFields(self._headers.items()), _CallMemory(self))
        self._begun = False

    @property
    def memory(self) -> Reservation:
        """The memory that the request holds."""
        assert self._request.reservation is not None
        return self._request.reservation

    # Receiving.

    def room(self, byte_count: int) -> memoryview | None:
        """Return a part of the message's own memory."""
        if self._buffer is None or self._filled == len(self._buffer):
            return None
        return self._buffer[self._filled : self._filled + byte_count]

    def filled(self, byte_count: int) -> None:
        """Count what came into `room`."""
        self._filled += byte_count
        if self._filled >= self._due:
            self._progress()

    def received(self, data: memoryview) -> None:
        """Take data."""
        if self._buffer is not None:
            filled = self._filled + len(data)
            if filled < self._due:
                self._buffer[self._filled : filled] = data
                self._filled = filled
            else:
                self._take(data)
            return
        if self._message is not None and self._method.kind is not MethodKind.STREAM:
            self.fail(MalformedRequestError("the call has more than one message"))
        elif self._busy and not self._rest_memory.try_grow(len(data)):
            self.fail(OverloadedError("no memory for the messages that wait in a stream"))
        else:
            self._rest += data
            if not self._busy:
                self._next()

    def _take(self, data: memoryview) -> None:
        """Take a part of the message that is being received, and what comes after it."""
        while len(data) and self._buffer is not None:
            taken = min(len(data), len(self._buffer) - self._filled)
            if not taken and not self._grow(len(data)):
                # It waits for memory. No more may come than the window that every stream has.
                if len(self._rest) + len(data) > INITIAL_WINDOW:
                    self.fail(OverloadedError("no memory for a message that was sent in a larger window"))
                    return
                self._rest += data
                return
            self._buffer[self._filled : self._filled + taken] = data[:taken]
            self._filled += taken
            data = data[taken:]
            if taken:
                self._progress()
        if len(data) and not self.closed:
            self.received(data)

    def _grow(self, coming: int) -> bool:
        """Make room for more of the message. Return whether there is some: else wait for memory, and go on then."""
        if self._task is not None:
            return False
        assert self._buffer is not None
        capacity = self._capacity(self._filled + coming)
        if not self._memory_is_free():
            self.connection.narrow_windows()
        if self.memory.try_grow(capacity - len(self._buffer)):
            self._extend(capacity)
            return True
        self._start(self._wait_for_memory(capacity))
        return not (self.closed or self._is_waiting())

    def _is_waiting(self) -> bool:
        return self._task is not None

    def _capacity(self, come: int) -> int:
        """Return how much of the message may be received, of which something has come.

        Each time that it grows, the client waits for a window. Clients that only state lengths hold half of the budget.
        """
        if self._length <= _MAX_WHOLE and self._memory_is_free():
            return self._length
        floor = _MIN_GROWTH if 2 * come >= INITIAL_WINDOW else 0
        return min(self._length, max(_GROWTH * come, floor))

    def _memory_is_free(self) -> bool:
        """Return whether half of the budget is free, beside this message."""
        budget = self.calls.running.memory_budget
        return 2 * (budget.reserved + self._length) <= budget.budget

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a piece of work. One that ends at once may have begun another, which stays."""
        task = start_eagerly(work, self.calls.loop)
        if task is not None:
            self._task = task

    async def _wait_for_memory(self, capacity: int) -> None:
        assert self._buffer is not None
        current_request.set(self._request)
        try:
            await self.memory.grow(capacity - len(self._buffer))
        except RequantError as error:
            self._task = None
            self.fail(error)
            return
        except asyncio.CancelledError:
            self._task = None
            self._end()
            raise
        self._task = None
        self._extend(capacity)
        data, self._rest = bytes(self._rest), bytearray()
        if data:
            self._take(memoryview(data))
        elif not self.closed:
            # It may be that all came that was granted: more has to be.
            self._progress()
        if self.ended:
            self._check_end()

    def _extend(self, capacity: int) -> None:
        assert self._buffer is not None
        # Raw contents are what a message ends with: they are aligned if its end is, and need not be copied then.
        start = -self._length % _ALIGNMENT
        memory = np.empty(start + capacity, np.uint8)
        larger = memoryview(memory)[start:]  # type: ignore[arg-type]  # it has the buffer protocol
        larger[: self._filled] = self._buffer[: self._filled]
        self._buffer = larger
        self.calls.receiving.add(self)

    def _progress(self) -> None:
        """A part of the message has come: ask for more, or go on with it if it is complete."""
        assert self._buffer is not None
        if self._filled == self._length:
            self._message, self._buffer = self._buffer, None
            self.calls.receiving.discard(self)
            self._complete()
            return
        capacity = len(self._buffer)
        if capacity < self._length and 2 * self._filled >= capacity and self._task is None:
            larger = self._capacity(self._filled)
            if self.memory.try_grow(larger - capacity):
                self._extend(larger)
                capacity = larger
            elif self._filled == capacity:
                # No more comes by itself.
                self._start(self._wait_for_memory(larger))
                return
        self._due = capacity if capacity == self._length else capacity // 2
        if capacity == self._length <= _MAX_WHOLE and self._outstanding < capacity - self._filled:
            # The next message may be like it, and then need not wait for a window.
            self.connection.widen_windows(1 << (_PREFIX_BYTES + self._length - 1).bit_length())
        self._grant(capacity - self._filled)

    @property
    def _outstanding(self) -> int:
        return self.connection.outstanding(self)

    def _grant(self, byte_count: int) -> None:
        """Let as much come as is wanted, beside what may come already."""
        self.connection.grant(self, byte_count - self._outstanding)

    def _next(self) -> None:
        """Continue with the next message, as far as it has arrived."""
        if self.closed or self._busy or self._buffer is not None or self._message is not None:
            return
        rest = self._rest
        if len(rest) < _PREFIX_BYTES:
            self._await_message()
            return
        length = int.from_bytes(rest[1:_PREFIX_BYTES], "big")
        limit = self._method.max_bytes
        if length > limit:
            self.fail(LimitError(f"the message has {length} bytes; the limit is {limit}", limit=limit))
            return
        if rest[0] > 1 or (rest[0] and self._encoding == "identity"):
            self.fail(MalformedRequestError("the message is marked as compressed, and the call has no grpc-encoding"))
            return
        if self._length < 0:
            self._length, self._compressed = length, bool(rest[0])
            if self._method.kind is MethodKind.STREAM:
                self._since = self.calls.loop.time()
        end = _PREFIX_BYTES + length
        if len(rest) >= end and length <= INITIAL_WINDOW and self.memory.try_grow(length):
            self._message = bytes(rest[_PREFIX_BYTES:end])
            del rest[:end]
            self._complete()
        elif len(rest) > _PREFIX_BYTES:
            self._rest, self._buffer, self._filled, self._due = bytearray(), memoryview(b""), 0, 0
            self._take(memoryview(rest)[_PREFIX_BYTES:])
            if self.ended:
                self._check_end()
        elif self.ended:
            self.fail(MalformedRequestError(_TRUNCATED))

    def _await_message(self) -> None:
        """There is no message: the client has ended the call, or has to send one."""
        is_stream = self._method.kind is MethodKind.STREAM
        if self.ended and self._rest:
            self.fail(MalformedRequestError(_TRUNCATED))
        elif self.ended and is_stream:
            self._request.status = _OK
            self.connection.respond(self, _HEAD, (), _OK_TRAILERS)
        elif self.ended:
            self.fail(MalformedRequestError("the call has no message"))
        elif is_stream and self.calls.stopping:
            self.fail(UnavailableError(_STOPPING))
        elif is_stream:
            self._grant(INITIAL_WINDOW - len(self._rest))

    def half_closed(self) -> None:
        """The client sends no more."""
        self._check_end()
        if self._message is not None and not self._busy:
            self._complete()
        else:
            self._next()

    def _check_end(self) -> None:
        """Refuse a message that cannot come any more, unless what came of it waits for memory."""
        if self._buffer is not None and self._task is None and not self.closed:
            self.fail(MalformedRequestError(_TRUNCATED))

    def _complete(self) -> None:
        """A message is complete. One that has to be the only one is served when the client has said that it is."""
        if self._method.kind is not MethodKind.STREAM and not self.ended:
            if self._rest:
                self.fail(MalformedRequestError("the call has more than one message"))
            return
        message, self._message, self._length = self._message, None, -1
        assert message is not None
        self._busy = True
        self._request.bytes_received = len(message)
        self._begin_request()
        if self.calls.running.metrics.in_flight > _MAX_CALLS:
            self.fail(OverloadedError(f"more than {_MAX_CALLS} requests are being served"))
            return
        self._start(self._serve(message))

    # Serving.

    async def _serve(self, message: Message) -> None:
        """Do the work on a message, and send what comes of it. It ends the call, or the client does."""
        request, method = self._request, self._method
        current_request.set(request)
        try:
            with np.errstate(all="ignore"):
                if self._compressed:
                    message = await self._inflated(message)
                if method.work is None:
                    assert method.subscribe is not None
                    self._task = None
                    request.status = _OK
                    self._unsubscribe = method.subscribe(message, self._send)
                    # From now on it takes nothing of others.
                    self._end_request()
                    return
                reply = await method.work(message, request)
            request.status = _OK
        except Exception as error:
            self._task = None
            self._failed(error, message)
        except (asyncio.CancelledError, ClientLeftError):
            self._task = None
            request.client_left = True
            self._end()
        else:
            self._task = None
            self._send(reply, last=method.kind is MethodKind.UNARY)

    def _failed(self, error: Exception, message: Message) -> None:
        """End the call with an error, or answer the message with it and go on."""
        if self._method.failed is None:
            self.fail(error)
            return
        failure = self._failure(error)
        self._send(self._method.failed(message, failure))

    async def _inflated(self, message: Message) -> bytes:
        """Return a message as it was before compression. What is inflated is reserved before."""
        inflater = PieceInflater(self._encoding, self._method.max_bytes, "message")
        inflater.add(bytes(message))
        pieces: list[bytes] = []
        size = 0
        while True:
            await self.memory.grow(PIECE_BYTES)
            piece = await self.calls.running.executor.run_array(inflater.weight, inflater.next_piece)
            self.memory.shrink(PIECE_BYTES - len(piece))
            if not piece and not inflater.waiting:
                break
            pieces.append(piece)
            size += len(piece)
        inflater.finish()
        await self.memory.grow(size)
        whole = await self.calls.running.executor.run_array(size, partial(b"".join, pieces))
        pieces.clear()
        self.memory.shrink(size)
        return whole

    def _send(self, reply: bytes, *, last: bool = False) -> None:
        """Send a reply."""
        if self.closed:
            self._end()
            return
        self._request.bytes_sent += len(reply)
        trailers = None
        if last:
            trailers = _OK_TRAILERS
            if REQUEST_ID in self._headers:
                trailers += literal_field(REQUEST_ID, self._request.request_id.encode())
        self.connection.respond(self, _HEAD, (b"\0" + len(reply).to_bytes(4, "big"), reply), trailers)

    def written(self) -> None:
        """Go on with a stream: the reply to a message has left."""
        if self._method.kind is not MethodKind.STREAM or self.closed:
            return
        self._end_request()
        self._busy = False
        self._since = self.calls.loop.time()
        self._new_request()
        if self._rest_memory.held:
            self._rest_memory.shrink(self._rest_memory.held)
        if self._rest:
            self.calls.loop.call_soon(self._next)
        else:
            self._next()

    def fail(self, error: Exception) -> None:
        """End the call with an error."""
        failure = self._failure(error)
        if self.closed:
            self._end()
            return
        self._cancel()
        self._begin_request()
        self._end_with(trailers_of(failure.code, failure.detail, failure.trailing_metadata))

    def _end_with(self, trailers: bytes) -> None:
        self.connection.end_with(self, trailers if self.head_sent else _HEAD + trailers)

    def _failure(self, error: Exception) -> Failure:
        """Return what an error means for the client."""
        request = self._request
        if isinstance(error, RequantError):
            failure = failure_of(error, request.request_id)
        elif isinstance(error, NotFoundError):
            failure = failure_of(error.error, request.request_id, http_status=404)
        else:
            _log.error("Request %s failed.", request.request_id, exc_info=error)
            failure = internal_failure(request.request_id)
        request.status = failure.http_status
        return failure

    def _deadline_over(self) -> None:
        """End the call: the client has given it up."""
        self._request.client_left = True
        self._cancel()
        self._end_with(trailers_of(StatusCode.DEADLINE_EXCEEDED, "the deadline of the call has passed"))

    def left(self) -> None:
        """Stop the work: the client has left."""
        self._request.client_left = True
        if self._task is None:
            self._end()
        self._cancel()

    def _cancel(self) -> None:
        """Cancel the work. It ends the call when it has ended itself."""
        if self._task is not None:
            # Not at once: a task that has not begun would end, and leave the work where it is.
            self.calls.loop.call_soon(self._task.cancel)

    def sent(self) -> None:
        """The response has left."""
        if self._task is None:
            self._end()

    def stop(self) -> None:
        """End a stream, unless a message is in work: then after its reply."""
        if self._unsubscribe is not None or (self._method.kind is MethodKind.STREAM and not self._busy):
            self.fail(UnavailableError(_STOPPING))

    def tick(self, now: float) -> None:
        """End a call whose message does not come."""
        if self._busy or self._task is not None:
            return
        settings = self.calls.running.settings
        if self._method.kind is MethodKind.STREAM and self._length < 0:
            if now > self._since + settings.keep_alive_seconds:
                self.fail(SlowRequestError(f"no request came in the stream for {settings.keep_alive_seconds:g} s"))
        elif now > self._since + settings.body_seconds + max(0, self._length) / MIN_BYTES_PER_SECOND:
            self.fail(SlowRequestError("the message did not arrive in time"))

    def _begin_request(self) -> None:
        """Count the request as one that is being served."""
        if not self._begun:
            self._begun = True
            self.calls.running.metrics.begin()

    def _end_request(self) -> None:
        """Count and log a request that is over, and give its memory back."""
        self.memory.shrink(self.memory.held)
        if not self._begun:
            return
        self._begun = False
        running, request, route = self.calls.running, self._request, self._method.route
        log = running.settings.access_log and not self._method.is_open
        if not log:
            end_request(running.metrics, request, route, _METHOD, log=False)
            return

        def end() -> None:
            current_request.set(request)
            end_request(running.metrics, request, route, _METHOD, log=True)

        copy_context().run(end)

    def _end(self) -> None:
        """The call is over."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._buffer, self._message = None, None
        self.calls.receiving.discard(self)
        self._rest = bytearray()
        self._rest_memory.shrink(self._rest_memory.held)
        self._end_request()


_UNKNOWN = Method(UNMATCHED, 0)
_NO_REQUEST = RequestContext()
_STOPPING = "the service is stopping"
_TRUNCATED = "the call ends within a message"
