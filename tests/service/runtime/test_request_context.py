"""The context of a request: its times, and the work that is not begun for a client that has left."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from math import inf

import numpy as np
import pytest
from starlette.types import Message, Receive, Scope, Send

from requant_service.runtime.executor import Executor
from requant_service.runtime.request_context import (
    ClientLeftError,
    RequestContext,
    begin_request,
    context_of,
    current_request,
)
from tests.support.asgi import post, ready_app
from tests.support.oip_wire import Input, body_of


def test_a_piece_is_not_begun_for_a_client_that_has_left() -> None:
    done: list[int] = []

    async def run(inline_bytes: int) -> None:
        scope: Scope = {"type": "http"}
        begin_request(scope)
        executor = Executor(2, inline_bytes)

        async def works() -> AsyncIterator[tuple[int, Callable[[], None]]]:
            for number in range(100):
                if number == 10:
                    context_of(scope).client_left = True
                yield 1 << 20, partial(done.append, number)

        try:
            with pytest.raises(ClientLeftError):
                async for _ in executor.run_pieces("kind", works()):
                    pass
            for start in (executor.run_array, executor.run_text):
                with pytest.raises(ClientLeftError):
                    await start(100, lambda: done.append(1000))
        finally:
            executor.shut_down()

    for inline_bytes in (0, 1 << 20):
        done.clear()
        asyncio.run(run(inline_bytes))
        assert set(range(5)) <= set(done) <= set(range(12))


def test_times_are_added_up_in_all_threads() -> None:
    async def run() -> RequestContext:
        context = begin_request({"type": "http"})
        executor = Executor(1, 0)
        try:
            first = asyncio.create_task(executor.run_array(1, lambda: time.sleep(0.3)))
            second = asyncio.create_task(executor.run_array(1, lambda: current_request.get()))
            await first
            assert await second is context
        finally:
            executor.shut_down()
        return context

    context = asyncio.run(run())
    assert context.worked >= 0.29
    assert context.waited >= 0.05


def test_a_client_that_leaves_in_the_middle_gets_no_more() -> None:
    """A reply is being made piece by piece when the server says that the connection is gone: no error, no more work."""

    file = io.BytesIO()
    np.save(file, np.ones(3 << 20, np.int8))
    app = ready_app()
    budget = app.state.runtime.memory_budget
    query = {"input_type": "!quant.uniform<i8:f32, 0.5>"}
    sent = 0
    plain = app.router

    async def leaving(scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            nonlocal sent
            sent += len(message.get("body", b""))
            if sent > 1 << 20:
                context_of(scope).client_left = True
            await send(message)

        await plain(scope, receive, counting)

    app.router = leaving  # type: ignore[assignment]
    reply = asyncio.run(post(app, "/v1/npy/dequantize", query, [file.getvalue()], declared=len(file.getvalue())))
    assert reply.status == 200
    assert 1 << 20 < len(reply.body) < 4 << 20
    assert budget.reserved == 0


def test_models_look_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    app = ready_app(inline_bytes=1 << 30)
    body, headers = body_of(
        [Input("x", np.ones(5 << 20, np.float32))], parameters={"output_type": "!quant.uniform<i8:f32, 0.5>"}
    )
    looked = 0

    def check(context: RequestContext, present: float = 0.0, limit: float = inf) -> None:
        nonlocal looked
        looked += 1
        # Twice for the texts, once for the work as a whole; then before each piece of a million elements.
        if looked == 6:
            raise ClientLeftError

    monkeypatch.setattr(RequestContext, "check", check)
    header = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    reply = asyncio.run(post(app, "/v2/models/quantize/infer", {}, [body], declared=len(body), headers=header))
    assert not reply.messages
    assert looked == 6
