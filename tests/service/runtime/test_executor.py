"""Where work runs: light work at once, texts and arrays in threads of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pytest
from starlette.types import Scope

from requant.errors import DeadlineError, OverloadedError
from requant.errors.cancellation import check_cancelled
from requant.integer.conv2d import conv2d_integers
from requant_service.runtime.executor import Executor
from requant_service.runtime.request_context import ClientLeftError, RequestContext, begin_request, context_of
from tests.load.case import Case, json_case, model_case, noise, tensor
from tests.support.asgi import post, ready_app
from tests.support.oip_wire import Input

Result = TypeVar("Result")


def test_long_texts_do_not_hold_up_arrays() -> None:
    async def run() -> tuple[str, str, str]:
        executor, release = Executor(1, 1024), threading.Event()
        try:
            busy = [
                asyncio.create_task(executor.run_text(1000, lambda: (release.wait(60), name())[1])) for _ in range(3)
            ]
            await asyncio.sleep(0)
            arrays = await asyncio.wait_for(executor.run_array(2000, name), 30)
            inline = await executor.run_text(4, name)
            assert not any(task.done() for task in busy)
            release.set()
            return arrays, inline, (await asyncio.gather(*busy))[0]
        finally:
            release.set()
            executor.shut_down()

    arrays, inline, texts = asyncio.run(run())
    assert arrays.startswith("arrays")
    assert texts.startswith("texts")
    assert inline == threading.current_thread().name


def test_where_work_runs_is_decided_by_its_size_until_its_kind_was_measured() -> None:
    def slow() -> str:
        until = time.thread_time() + 0.005
        while time.thread_time() < until:
            pass
        return name()

    async def run() -> list[str]:
        executor = Executor(1, 64 << 10)
        try:
            slow_ones = [await executor.run_array(32 << 10, slow, "slow") for _ in range(2)]
            quick_ones = [await executor.run_array(128 << 10, name, "quick") for _ in range(2)]
            return [*slow_ones, *quick_ones, await executor.run_array(1 << 30, name, "quick")]
        finally:
            executor.shut_down()

    here = threading.current_thread().name
    small_slow, measured_slow, large_quick, measured_quick, giant = asyncio.run(run())
    assert (small_slow, measured_quick) == (here, here)
    assert all(each.startswith("arrays") for each in (measured_slow, large_quick, giant))


def name() -> str:
    return threading.current_thread().name


def test_a_full_queue_refuses_and_empties() -> None:
    """Who has had a place goes on; who has not is told to come again, and can when the queue is shorter."""

    async def run() -> None:
        executor, release = Executor(1, 0, longest_queue=2), threading.Event()
        for start in (executor.run_array, executor.run_text):
            release.clear()
            own = asyncio.create_task(request(lambda start=start: start(1, lambda: release.wait(60))))  # type: ignore[misc]
            others = [asyncio.create_task(request(lambda start=start: start(1, name))) for _ in range(2)]  # type: ignore[misc]
            await asyncio.sleep(0.01)
            refused = asyncio.create_task(request(lambda start=start: start(1, name)))  # type: ignore[misc]
            await asyncio.wait([refused], timeout=5)
            in_time = refused.done()
            release.set()
            assert in_time, "it was let in, and waits for the thread"
            with pytest.raises(OverloadedError, match="3 requests wait"):
                await refused
            await asyncio.gather(own, *others)
            await request(lambda start=start: start(1, name))  # type: ignore[misc]
        executor.shut_down()

    asyncio.run(run())


def test_pieces_of_a_request_that_was_let_in_are_not_refused() -> None:
    async def run() -> int:
        executor, release = Executor(1, 0, longest_queue=1), threading.Event()

        async def works() -> AsyncIterator[tuple[int, Callable[[], int]]]:
            for number in range(8):
                yield 1 << 30, lambda number=number: number  # type: ignore[misc]

        async def pieces() -> int:
            return sum([number async for number in executor.run_pieces("kind", works())])

        first = asyncio.create_task(request(pieces))
        await asyncio.sleep(0)
        busy = [asyncio.create_task(request(lambda: executor.run_array(1, name))) for _ in range(4)]
        found = await first
        refused = [each for each in await asyncio.gather(*busy, return_exceptions=True) if isinstance(each, Exception)]
        assert all(isinstance(each, OverloadedError) for each in refused)
        release.set()
        executor.shut_down()
        return found

    assert asyncio.run(run()) == sum(range(8))


def test_work_ends_at_its_deadline() -> None:
    """In every pool, on the loop, and between pieces; the time of all pieces counts, and waiting does not."""

    def endless() -> None:
        """As good as endless: without a deadline it comes to its end too, and the test fails."""
        for _ in range(5000):
            spin(0.001)
            check_cancelled()

    async def run(inline_bytes: int) -> None:
        executor = Executor(1, inline_bytes, seconds=0.05)
        for start in (executor.run_array, executor.run_text, lambda _, work: executor.run_module(work)):
            context = begin_request({"type": "http"})
            with pytest.raises(DeadlineError) as caught:
                await start(1, endless)
            assert caught.value.limit == 0.05
            assert 0.05 <= context.computed < 1
            with pytest.raises(DeadlineError):
                await start(1, name)
        begin_request({"type": "http"})
        done: list[int] = []

        def step(number: int) -> None:
            done.append(number)
            spin(0.01)

        async def works() -> AsyncIterator[tuple[int, Callable[[], None]]]:
            for number in range(100):
                yield 1 << 20, partial(step, number)

        with pytest.raises(DeadlineError):
            async for _ in executor.run_pieces("kind", works()):
                pass
        assert 3 <= len(done) <= 8
        executor.shut_down()

    for inline_bytes in (0, 1 << 30):
        asyncio.run(run(inline_bytes))


def test_long_work_ends_when_the_client_leaves() -> None:
    """Two long convolutions hold both threads; once their clients have left, the next request has one."""
    x, w = np.ones((1, 512, 512, 4), np.int8), np.ones((4, 64, 64, 4), np.int8)

    async def convolve(executor: Executor, scope: Scope) -> None:
        begin_request(scope)
        await executor.run_array(1 << 30, lambda: [conv2d_integers(x, w) for _ in range(100)])

    async def run() -> float:
        executor = Executor(2, 0)
        scopes: list[Scope] = [{"type": "http"}, {"type": "http"}]
        tasks = [asyncio.create_task(convolve(executor, scope)) for scope in scopes]
        await asyncio.sleep(0.2)
        for scope in scopes:
            context_of(scope).client_left = True
        begun = time.perf_counter()
        await request(lambda: executor.run_array(1 << 20, name))
        waited = time.perf_counter() - begun
        for task in tasks:
            with pytest.raises(ClientLeftError):
                await task
        executor.shut_down()
        return waited

    conv2d_integers(x[:, :8, :8], w[:, :2, :2])
    # All convolutions take more than a minute.
    assert asyncio.run(run()) < 10


async def request(work: Callable[[], Awaitable[Result]]) -> Result:
    """Do work as a request of its own."""

    async def alone() -> Result:
        begin_request({"type": "http"})
        return await work()

    return await asyncio.create_task(alone())


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


_SCALES = "!quant.uniform<i8:f32:0, {" + ",".join(["1.5"] * 64 + ["2.5"]) + "}>"
_REAL = tensor("tensor<65xf32>", noise((65,)))


@pytest.mark.parametrize(
    "case",
    [
        json_case("/v1/quantize", "", lambda: {"input": _REAL, "output_type": _SCALES}),
        json_case("/v1/matmul", "", lambda: {
            "lhs": tensor("tensor<1x1x!quant.uniform<i8:f32, 0.5>>", noise((1, 1), "i1")),
            "rhs": tensor(f"tensor<1x65x{_SCALES.replace('f32:0', 'f32:1')}>", noise((1, 65), "i1")),
            "output_type": "!quant.uniform<i8:f32, 0.5>"}),
        model_case("quantize", "", lambda: [Input("x", noise((65,)))], output_type=_SCALES),
        json_case("/v1/fake_quantize", "", lambda: {
            "input": _REAL, "axis": 0, "minimums": [-1.0] * 65, "maximums": [1.0] * 65}),
    ],
    ids=lambda case: case.route,
)  # fmt: skip
def test_half_a_millisecond_of_planning_goes_to_a_thread(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """65 scales: `python -m tests.load.inline_work` measures how long fewer hold the loop."""
    threads: list[str] = []
    timed = Executor._timed

    def noted(self: Executor, context: RequestContext, *arguments: Any) -> Any:
        threads.append(name().partition("_")[0])
        return timed(self, context, *arguments)

    monkeypatch.setattr(Executor, "_timed", noted)
    body, headers = case.make()
    sent = [(key.lower().encode(), value.encode()) for key, value in headers.items()]
    reply = asyncio.run(post(ready_app(), case.route, {}, [body], declared=len(body), headers=sent))
    assert reply.status == 200, reply.body
    assert "texts" in threads
