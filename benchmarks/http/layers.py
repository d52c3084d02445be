"""Where the time of a small request goes: bytes given to the server's protocol in this process, layer by layer.

There is no socket and no client: the transport drops what is written. Each layer is measured with all that are outside
of it around the application of `benchmarks.http.floor`, and the last with the real one.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from time import thread_time

import numpy as np
import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from benchmarks.http.case import Case, npy_path, plan_for
from benchmarks.http.floor import app as floor
from requant_service.app import create_app
from requant_service.middleware.request_lifecycle import RequestLifecycle
from requant_service.runtime.runtime import HealthStatus, Runtime
from requant_service.runtime.settings import Settings
from requant_service.server.http1_protocol import HttpProtocol, http_protocol
from requant_service.server.timeouts import RequestLimits

_ROUNDS = 15
_REQUESTS = 500
_SIZE = 1000

_FACES: dict[str, Callable[[Case], bytes]] = {
    ".npy": lambda case: case.as_npy(npy_path()),
    "V2, tensors in binary": lambda case: case.as_inference("/v2/models/quantize/infer"),
    "JSON": lambda case: case.as_json("/v1/quantize"),
}


class _Nowhere(asyncio.Transport):
    """A connection whose client takes everything at once."""

    def __init__(self) -> None:
        super().__init__({"socket": socket.socketpair()[0]})

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop what is written."""

    def is_closing(self) -> bool:
        """Return False: it never ends."""
        return False

    def can_write_eof(self) -> bool:
        """Return True, as sockets do."""
        return True

    def get_write_buffer_size(self) -> int:
        """Return 0: nothing waits."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: nothing waits."""

    def resume_reading(self) -> None:
        """Do nothing: it is never paused."""


def _connection(app: ASGIApp) -> HttpProtocol:
    kind = http_protocol(RequestLimits())
    config = uvicorn.Config(app, http=kind, ws="none", log_config=None, access_log=False, proxy_headers=False)
    config.load()
    made = kind(config, ServerState(), {})
    made.connection_made(_Nowhere())
    return made


async def _served(connection: HttpProtocol, request: bytes) -> None:
    connection.data_received(request)
    exchange = connection.exchange
    assert exchange is not None
    while not exchange.response_complete:
        await asyncio.sleep(0)


async def _measured(request: bytes) -> list[float]:
    """Return the seconds of a request with each layer, all that are outside of it included."""
    app = create_app(Settings())
    running: Runtime = app.state.runtime
    running.status = HealthStatus.READY
    path = request.split(b" ", 2)[1].partition(b"?")[0].decode()
    stacks = [
        _connection(floor),
        _connection(RequestLifecycle(floor, running, {path}, log=False)),
        _connection(app),
    ]
    taken: list[list[float]] = [[] for _ in stacks]
    for connection in stacks:
        await _served(connection, request)
    gc.collect()
    gc.freeze()
    for _ in range(_ROUNDS):
        for connection, samples in zip(stacks, taken, strict=True):
            begun = thread_time()
            for _ in range(_REQUESTS):
                await _served(connection, request)
            samples.append((thread_time() - begun) / _REQUESTS)
    return [median(samples) for samples in taken]


def _kernel(case: Case) -> float:
    """Return the seconds of the arithmetic alone: a plan that is there, run from array to array."""
    plan = plan_for(case.elements)
    source, target = np.zeros(plan.elements, plan.input_dtype), np.empty(plan.elements, plan.output_dtype)
    samples = []
    for _ in range(_ROUNDS):
        begun = thread_time()
        for _ in range(_REQUESTS):
            plan.run(source, target)
        samples.append((thread_time() - begun) / _REQUESTS)
    return median(samples)


_LAYERS = (
    "HTTP/1.1: parser, limits on the head and on time, reply",
    "memory, id, common headers, Server-Timing, metrics",
    "route, body, types, report, without the kernel",
    "kernel, called by its plan",
)


def layer_rows() -> list[list[str]]:
    """Return a row for each layer: the microseconds that it adds, for each face; and their sum."""
    case = Case.of(_SIZE)
    kernel = _kernel(case)
    columns = []
    for request in (make(case) for make in _FACES.values()):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sums = runner.run(_measured(request))
        parts = [sums[0], *(after - before for before, after in pairwise(sums)), kernel]
        parts[-2] -= kernel
        columns.append([*parts, sums[-1]])
    names = (*_LAYERS, "all")
    return [
        [name, *(f"{1e6 * seconds:.1f}" for seconds in row)]
        for name, row in zip(names, zip(*columns, strict=True), strict=True)
    ]


LAYER_HEADER = ["µs of CPU of a 1 KB request", *_FACES]
