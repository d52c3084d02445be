"""What all calls have in common: their context, tokens, memory, times, metrics and the log, as requests over HTTP.

grpcio receives a message whole before it hands it on, and nobody knows its length before. So only as many messages are
received at a time as would fit into half of the memory budget if each had the largest size; what a message takes is
reserved when it is there. The first of them are received before their handlers are called, which takes a sixth of the
time of an echo less. A stream may receive a message at any time, so the number of open streams is limited by a quarter
of the budget.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import grpc
import numpy as np

from core.errors import (
    MalformedRequestError,
    OverloadedError,
    RequantError,
    SlowRequestError,
    UnauthorizedError,
    UnavailableError,
)
from service.middleware.bearer_auth import holds_a_token
from service.middleware.instrumentation import end_request
from service.oip.grpc.read_ahead import ReadAhead
from service.oip.grpc.statuses import Failure, failure_of, internal_failure
from service.runtime.memory_budget import MemoryBudget, Reservation
from service.runtime.request_context import ClientLeftError, RequestContext, current_request
from service.runtime.runtime import Runtime

_log = logging.getLogger("uvicorn.error")

_METHOD = "POST"  # as gRPC over HTTP/2 says itself
_OK = 200
_AUTHORIZATION = "authorization"
_REQUEST_ID = b"x-request-id"
# Streams that tell of the health of the service. They take no memory for messages, and need no token.
_MOST_WATCHES = 64
# Calls at one time; each takes up to 100 KiB before its message is received.
_MOST_CALLS = 1024
# The memory of a reply up to here is given back before it is sent: to be told when that was takes a tenth of an echo.
_SMALL_REPLY = 64 << 10
# As over HTTP (`service.server.read_timeouts`).
_BYTES_PER_SECOND = 1 << 20

ServicerContext = Any
Metadata = Sequence[tuple[str, Any]]
Choice = Callable[[Metadata], grpc.RpcMethodHandler]
Work = Callable[[bytes, RequestContext], Awaitable[bytes]]
Failed = Callable[[bytes, Failure], bytes]


class NotFoundError(Exception):
    """Holds an error about what a message names in the place of a path: over HTTP its status would be 404."""

    def __init__(self, error: RequantError) -> None:
        super().__init__(error.detail)
        self.error = error


class _Places:
    """A number of places that are taken and given back."""

    def __init__(self, free: int) -> None:
        self.free = free


class Calls:
    """Makes handlers of grpcio out of the work on one message.

    `open_routes` need no token, and are not logged. `call_seconds`: the longest that a connection lasts.
    """

    def __init__(self, running: Runtime, open_routes: Collection[str], call_seconds: float) -> None:
        settings = running.settings
        self._running = running
        self._open = frozenset(open_routes)
        self._logs = settings.access_log
        self.most_bytes = min(settings.max_binary_bytes + settings.max_json_bytes, running.memory_budget.budget)
        messages = running.memory_budget.budget // self.most_bytes
        self._receiving = MemoryBudget(
            max(1, messages // 4) * self.most_bytes,
            settings.max_waiting,
            settings.waiting_seconds,
            running.metrics.rejected,
        )
        self._read_ahead = ReadAhead(messages // 4, call_seconds)
        self._streams = _Places(max(1, messages // 4))
        self._watches = _Places(_MOST_WATCHES)
        self._message_seconds = settings.body_seconds + self.most_bytes / _BYTES_PER_SECOND
        self._idle: set[asyncio.Timeout] = set()

    def close(self) -> None:
        """End the streams that wait for something to happen."""
        for each in self._idle:
            each.reschedule(asyncio.get_running_loop().time())

    def unary(self, route: str, work: Work) -> Choice:
        """Return what chooses the handler of a method with one message and one reply, which `work` makes of it."""

        async def answer(context: ServicerContext, receive: Callable[[RequestContext], Awaitable[bytes]]) -> bytes:
            request = self._begin(context)
            try:
                self._authorize(route, context.invocation_metadata())
                self._take_place()
                with np.errstate(all="ignore"):
                    reply = await work(await receive(request), request)
            except Exception as error:
                failure = self._failure(request, error)
            except (asyncio.CancelledError, ClientLeftError):
                request.client_left = True
                self._end(route, request)
                raise asyncio.CancelledError from None
            else:
                request.status = _OK
                request.bytes_sent = len(reply)
                if _REQUEST_ID in request.headers:
                    context.set_trailing_metadata(((_REQUEST_ID.decode(), request.request_id),))
                if len(reply) <= _SMALL_REPLY:
                    self._end(route, request)
                else:
                    # It takes memory until it is sent.
                    variables = copy_context() if self._logs else None
                    context.add_done_callback(partial(self._end, route, request, variables))
                return reply
            self._end(route, request)
            await _abort(context, failure)
            raise AssertionError

        async def handle_message(message: bytes, context: ServicerContext) -> bytes:
            self._read_ahead.give_back()
            return await answer(context, partial(_received, message))

        async def handle(_: object, context: ServicerContext) -> bytes:
            return await answer(context, partial(self._receive_one, context))

        received = grpc.unary_unary_rpc_method_handler(handle_message)
        # As a stream of one message: so it is read when there is a place for it.
        reading = grpc.stream_unary_rpc_method_handler(handle)

        def choose(metadata: Metadata) -> grpc.RpcMethodHandler:
            return received if self._is_authorized(route, metadata) and self._read_ahead.take() else reading

        return choose

    def stream(self, route: str, work: Work, failed: Failed | None = None) -> Choice:
        """Return the handler of a method that answers each message of a stream, in order.

        `failed` makes the reply to a message that has failed; without it the stream ends.
        """

        async def handle(_: object, context: ServicerContext) -> None:
            async with self._opened(route, context, self._streams):
                async for message in self._messages(context):
                    await self._answer(route, context, message, work, failed)

        return _always(grpc.stream_stream_rpc_method_handler(handle))

    async def _answer(
        self, route: str, context: ServicerContext, message: bytes, work: Work, failed: Failed | None
    ) -> None:
        request = self._begin(context)
        request.bytes_received = len(message)
        try:
            try:
                await _reservation(request).grow(len(message))
                with np.errstate(all="ignore"):
                    reply = await work(message, request)
                request.status = _OK
            except Exception as error:
                failure = self._failure(request, error)
                if failed is None:
                    await _abort(context, failure)
                    raise AssertionError from None
                reply = failed(message, failure)
            async with asyncio.timeout(self._running.settings.body_seconds + len(reply) / _BYTES_PER_SECOND):
                await context.write(reply)
            request.bytes_sent = len(reply)
        except (asyncio.CancelledError, ClientLeftError):
            request.client_left = True
            raise asyncio.CancelledError from None
        finally:
            self._end(route, request, None, context)

    def watch(
        self,
        route: str,
        work: Callable[[bytes, ServicerContext], Awaitable[None]],
        serializer: Callable[[Any], bytes],
    ) -> Choice:
        """Return the handler of a method that answers one message with a stream, which `work` writes until it ends."""

        async def handle(_: object, context: ServicerContext) -> None:
            async with self._opened(route, context, self._watches):
                message = await self._receive(context, self._message_seconds)
                if message is not None:
                    await self._idling(work(message, context), None)

        return _always(grpc.stream_stream_rpc_method_handler(handle, response_serializer=serializer))

    @asynccontextmanager
    async def _opened(self, route: str, context: ServicerContext, places: _Places) -> AsyncIterator[None]:
        """Open a stream if it has a token and there is a place for it. End the call with an error of its own."""
        request = RequestContext(_headers(context))
        opened = False
        try:
            self._authorize(route, context.invocation_metadata())
            if places.free == 0:
                raise OverloadedError("too many open streams for the memory budget")
            places.free -= 1
            opened = True
            yield
            return
        except Exception as error:
            failure = self._failure(request, error)
        finally:
            places.free += opened
        if not opened:
            # What was sent in the stream was counted message by message.
            self._running.metrics.begin()
            self._end(route, request, None, context)
        await _abort(context, failure)

    async def _messages(self, context: ServicerContext) -> AsyncIterator[bytes]:
        """Receive the messages of a stream until the client ends it. Raise what ends it otherwise."""
        while (message := await self._idling(context.read(), self._running.settings.keep_alive_seconds)) is not (
            grpc.aio.EOF
        ):
            yield message

    async def _idling(self, waiting: Awaitable[Any], seconds: float | None) -> Any:
        """Wait for something in a stream, until the service stops or the time is over."""
        try:
            async with asyncio.timeout(seconds) as timeout:
                self._idle.add(timeout)
                try:
                    return await waiting
                finally:
                    self._idle.discard(timeout)
        except TimeoutError:
            if self._running.closing.is_set():
                raise UnavailableError("the service is stopping") from None
            raise SlowRequestError(f"no request came in the stream for {seconds:g} s") from None

    async def _receive_one(self, context: ServicerContext, request: RequestContext) -> bytes:
        """Receive the only message of a call, and reserve the memory for it."""
        if not self._receiving.try_take(self.most_bytes):
            await self._receiving.take(self.most_bytes)
        try:
            message = await self._receive(context, self._message_seconds)
        finally:
            self._receiving.give_back(self.most_bytes)
        if message is None:
            raise MalformedRequestError("the call has no message")
        return await _received(message, request)

    async def _receive(self, context: ServicerContext, seconds: float) -> bytes | None:
        """Receive the next message, None if there is none."""
        # As asyncio.timeout does, at a third of its cost.
        task, late = asyncio.current_task(), False
        assert task is not None

        def end() -> None:
            nonlocal late
            late = True
            task.cancel()

        timer = asyncio.get_running_loop().call_later(seconds, end)
        try:
            message = await context.read()
        except asyncio.CancelledError:
            if late and not task.uncancel():
                raise SlowRequestError("the message did not arrive in time") from None
            raise
        finally:
            timer.cancel()
        return None if message is grpc.aio.EOF else message

    def _begin(self, context: ServicerContext) -> RequestContext:
        request = RequestContext(_headers(context), Reservation(self._running.memory_budget))
        current_request.set(request)
        self._running.metrics.begin()
        return request

    def _take_place(self) -> None:
        """Refuse a call if too many are under way. grpcio's own limit takes a tenth of an echo."""
        if self._running.metrics.in_flight > _MOST_CALLS:
            raise OverloadedError(f"more than {_MOST_CALLS} requests are being served")

    def _end(
        self, route: str, request: RequestContext, variables: Context | None = None, _: ServicerContext = None
    ) -> None:
        """Count and log a request, and give its memory back. `variables`: those of its task, if they are others."""
        if request.reservation is not None:
            request.reservation.shrink(request.reservation.held)
        log = self._logs and route not in self._open
        end = partial(end_request, self._running.metrics, request, route, _METHOD, log=log)
        end() if variables is None else variables.run(end)

    def _is_authorized(self, route: str, metadata: Metadata) -> bool:
        tokens = self._running.tokens
        if tokens is None or route in self._open:
            return True
        return holds_a_token([value.encode() for name, value in metadata if name == _AUTHORIZATION], tokens)

    def _authorize(self, route: str, metadata: Metadata) -> None:
        if not self._is_authorized(route, metadata):
            raise UnauthorizedError(
                "the call has no valid token; expected the metadata 'authorization: Bearer <token>'"
            )

    def _failure(self, request: RequestContext, error: Exception) -> Failure:
        """Return what an error means for the client. What is not the service's own goes on to grpcio."""
        if isinstance(error, grpc.aio.BaseError):
            raise error
        if isinstance(error, RequantError):
            failure = failure_of(error, request.request_id)
        elif isinstance(error, NotFoundError):
            failure = failure_of(error.error, request.request_id, http_status=404)
        else:
            _log.error("Request %s failed.", request.request_id, exc_info=error)
            failure = internal_failure(request.request_id)
        request.status = failure.http_status
        return failure


def _always(handler: grpc.RpcMethodHandler) -> Choice:
    return lambda _: handler


def _headers(context: ServicerContext) -> dict[bytes, bytes]:
    """Return the metadata of a call as header fields; of a repeated one the first."""
    given = reversed(context.invocation_metadata())
    return {name.encode(): value.encode() if isinstance(value, str) else value for name, value in given}


async def _received(message: bytes, request: RequestContext) -> bytes:
    """Return the message of a call, with memory reserved for it."""
    request.bytes_received = len(message)
    request.received = request.elapsed
    reservation = _reservation(request)
    if not reservation.try_grow(len(message)):
        await reservation.grow(len(message))
    return message


def _reservation(request: RequestContext) -> Reservation:
    assert request.reservation is not None
    return request.reservation


async def _abort(context: ServicerContext, failure: Failure) -> None:
    await context.abort(failure.code, failure.detail, failure.trailing_metadata)
