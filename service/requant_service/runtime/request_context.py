"""The state of one request: header fields, id, memory, times, and whether its client still waits for the response.

The header `Server-Timing` of each response has the times in milliseconds: `recv` until the last byte of the body was
received, `wait` in the queue of a thread pool, `work` in kernels and codecs, and `total` until the head of the
response. What is done while a response is sent is in none of them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from requant.errors import DeadlineError, MalformedRequestError, excerpt
from requant_service.runtime.memory_budget import Reservation

_KEY = "requant.context"
_FIELDS_KEY = "requant.fields"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_RANDOM_BYTES = 16
_MAX_DIGITS = 20
# W3C Trace Context: version, trace id, parent id, flags.
_TRACE_PARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class HeaderFields(dict[bytes, bytes]):
    """The header fields of a request by their names in lower case, of a repeated field the first.

    Requests with the same head share them, and what is worked out of them once.
    """

    def __init__(self, fields: Collection[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(reversed(list(fields)))
        self.count = len(fields)

    @cached_property
    def body_bytes(self) -> int | None:
        """The length of the body, None if it is chunked. Raise MalformedRequestError for what is no length."""
        text = self.get(b"content-length")
        if text is None:
            return None if b"transfer-encoding" in self else 0
        if not (text.isdigit() and len(text) < _MAX_DIGITS):
            shown = excerpt(text.decode("latin-1"))
            raise MalformedRequestError(f"the Content-Length is {shown!r}; expected a decimal number")
        return int(text)

    @cached_property
    def request_id(self) -> str | None:
        """The client's own `X-Request-Id`, if it is short and plain."""
        sent = self.get(b"x-request-id")
        return sent.decode("ascii") if sent is not None and _REQUEST_ID.fullmatch(sent) else None


Reserve = Callable[[int], Awaitable[None]]


async def _uncounted(byte_count: int) -> None:
    """Reserve nothing, outside of the service."""


class ClientLeftError(BaseException):
    """The client has closed the connection, so the work for it stops. Only the request lifecycle catches it."""


@dataclass(slots=True)
class RequestContext:
    """What is known of one request. The event loop and the threads that work for the request change it.

    `headers`: the header fields by their names in lower case; of a repeated field the first.
    `request_id`: the client's own `X-Request-Id` if it is short and plain, else 32 random hexadecimal digits.
    `reservation`: the memory that the request holds; None outside of the service, where nothing is counted.
    Times are in seconds: `received` until the end of the body, `waited` in queues, `worked` by the clock, `computed` of
    CPU, which a busy machine does not lengthen.
    `queues`: the thread pools in which the request has had a place (`requant_service.runtime.executor`).
    """

    headers: HeaderFields = field(default_factory=HeaderFields)
    reservation: Reservation | None = None
    began: float = field(default_factory=perf_counter)
    received: float = 0.0
    waited: float = 0.0
    worked: float = 0.0
    computed: float = 0.0
    bytes_received: int = 0
    bytes_sent: int = 0
    status: int = 0
    client_left: bool = False
    queues: set[str] = field(default_factory=set)
    request_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = self.headers.request_id or random.randbytes(_RANDOM_BYTES).hex()

    @property
    def trace_id(self) -> str:
        """The id of the trace that `traceparent` names, or an empty text."""
        matched = _TRACE_PARENT.fullmatch(self.headers.get(b"traceparent", b""))
        return "" if matched is None else matched[1].decode("ascii")

    @property
    def reserve(self) -> Reserve:
        """What reserves so many more bytes until the response is sent, or raises LimitError or OverloadedError."""
        return _uncounted if self.reservation is None else self.reservation.grow

    @property
    def elapsed(self) -> float:
        """The seconds since the head of the request."""
        return perf_counter() - self.began

    def check(self, present: float = 0.0, limit: float = inf) -> None:
        """Raise ClientLeftError if the client has left: the rest of the work is useless.

        Raise DeadlineError if the work took more than `limit` seconds of CPU, together with `present` seconds that are
        not in `computed` yet.
        """
        if self.client_left:
            raise ClientLeftError
        if self.computed + present > limit:
            raise DeadlineError(f"the request took {limit:g} seconds of CPU; that is the limit", limit=limit)

    def server_timing(self) -> bytes:
        """Return the value of the header `Server-Timing`."""
        return b"recv;dur=%.3f, wait;dur=%.3f, work;dur=%.3f, total;dur=%.3f" % (
            1e3 * self.received,
            1e3 * self.waited,
            1e3 * self.worked,
            1e3 * (perf_counter() - self.began),
        )


current_request: ContextVar[RequestContext] = ContextVar("current_request")
"""The context of the request that is served, in its task and in the threads that work for it."""


_ignores_float_exceptions: ContextVar[bool] = ContextVar("ignores_float_exceptions", default=False)


def ignore_float_exceptions() -> None:
    """Let exceptions of IEEE 754 be ordinary results, defined by the profiles, in this context and in copies of it.

    A connection begins with that, and each of its requests runs in a copy of the connection's context.
    """
    if not _ignores_float_exceptions.get():
        np.seterr(all="ignore")
        _ignores_float_exceptions.set(True)


def share_fields(scope: MutableMapping[str, Any]) -> None:
    """Let all requests whose scope is a copy of this one have the same `HeaderFields`."""
    scope[_FIELDS_KEY] = HeaderFields(scope["headers"])


def begin_request(scope: MutableMapping[str, Any], reservation: Reservation | None = None) -> RequestContext:
    """Give a request its context, which is then the current one."""
    fields = scope.get(_FIELDS_KEY)
    context = scope[_KEY] = RequestContext(
        HeaderFields(scope.get("headers", ())) if fields is None else fields, reservation
    )
    current_request.set(context)
    return context


def context_of(scope: MutableMapping[str, Any]) -> RequestContext:
    """Return the context of a request. It is made here if the request never reached the application."""
    context: RequestContext | None = scope.get(_KEY)
    if context is None:
        context = scope[_KEY] = RequestContext(HeaderFields(scope.get("headers", ())))
    return context


def reserve_memory(scope: MutableMapping[str, Any], byte_count: int) -> Awaitable[None]:
    """Reserve `byte_count` more bytes for a request, as its context's `reserve` does."""
    return context_of(scope).reserve(byte_count)
