"""The context of one request: what it spends its time with, and whether its client still waits for the reply.

The header `Server-Timing` of each reply tells the times in milliseconds: `recv` until the last byte of the body was
there, `wait` in line for a thread, `work` in kernels and codecs, and `total` until the head of the reply. What is done
while a reply leaves is in none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any

from starlette.types import Scope

from core.errors import DeadlineError

HEADER = b"server-timing"

_KEPT = "context"


class ClientLeftError(BaseException):
    """The client has left, and the work for it ends here. It is no error: nothing but `service.app` catches it."""


@dataclass(slots=True)
class RequestContext:
    """Seconds, added to on the event loop and in the threads that work for the request; and whether it is over.

    `worked` are seconds of the clock, `computed` seconds of CPU, which a busy machine does not make more.
    `queues` are the pools of threads in which the request has had a place (`service.runtime.executor`).
    """

    began: float = field(default_factory=perf_counter)
    received: float = 0.0
    waited: float = 0.0
    worked: float = 0.0
    computed: float = 0.0
    client_left: bool = False
    queues: set[str] = field(default_factory=set)

    @property
    def elapsed(self) -> float:
        """The seconds since the head of the request."""
        return perf_counter() - self.began

    def check(self, present: float = 0.0, limit: float = inf) -> None:
        """Raise ClientLeftError when the client has left: nobody wants the rest of the work.

        Raise DeadlineError when the work took more than `limit` seconds of CPU, with those of the present piece, which
        are not counted yet.
        """
        if self.client_left:
            raise ClientLeftError
        if self.computed + present > limit:
            raise DeadlineError(f"the request took {limit:g} seconds of CPU; that is the limit", limit=limit)

    def server_timing(self) -> bytes:
        """Return the value of the header."""
        return b"recv;dur=%.3f, wait;dur=%.3f, work;dur=%.3f, total;dur=%.3f" % (
            1e3 * self.received,
            1e3 * self.waited,
            1e3 * self.worked,
            1e3 * self.elapsed,
        )


current_request: ContextVar[RequestContext] = ContextVar("current_request")
"""The context of the request that is served, in its task and in the threads that work for it."""


def begin_request(scope: Scope) -> RequestContext:
    """Begin the context of a request."""
    context = RequestContext()
    current_request.set(context)
    scope.setdefault("state", {})[_KEPT] = context
    return context


def context_of(scope: Mapping[str, Any]) -> RequestContext | None:
    """Return the context of a request, if it has begun."""
    found: RequestContext | None = scope.get("state", {}).get(_KEPT)
    return found


def client_left(scope: Mapping[str, Any]) -> None:
    """Note that the client of a request has left. The server says so."""
    context = context_of(scope)
    if context is not None:
        context.client_left = True
