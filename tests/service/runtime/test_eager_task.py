"""Coroutines that begin at once: when they need a task, and what they see."""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar, copy_context
from pathlib import Path

import pytest
import uvloop

import requant_service
from requant_service.runtime.executor import start_eagerly

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="outside")


@LOOPS
def test_a_coroutine_that_never_waits_has_ended(loop: type) -> None:
    async def run() -> None:
        seen = []

        async def work() -> None:
            seen.append(VARIABLE.get())
            VARIABLE.set("inside")

        assert start_eagerly(work(), asyncio.get_running_loop()) is None
        assert seen == ["outside"]
        assert VARIABLE.get() == "outside"

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@LOOPS
def test_its_context_is_a_copy_of_the_one_around_it(loop: type) -> None:
    async def run() -> None:
        seen = []

        async def work() -> None:
            seen.append(VARIABLE.get())
            VARIABLE.set("inside")

        around = copy_context()
        around.run(VARIABLE.set, "around")
        assert start_eagerly(work(), asyncio.get_running_loop(), around) is None
        assert seen == ["around"]
        assert around[VARIABLE] == "around"
        assert VARIABLE.get() == "outside"

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@LOOPS
def test_one_that_waits_goes_on_in_a_task_with_its_own_context(loop: type) -> None:
    async def run() -> None:
        seen: list[object] = []
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        failing: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            token = VARIABLE.set("inside")
            seen.append(await future)
            await asyncio.sleep(0)
            seen.append(await asyncio.sleep(0.001, "slept"))
            try:
                await failing
            except ValueError as error:
                seen.append(type(error))
            seen.append(VARIABLE.get())
            VARIABLE.reset(token)
            seen.append(VARIABLE.get())

        task = start_eagerly(work(), asyncio.get_running_loop())
        assert task is not None
        await asyncio.sleep(0)
        assert seen == []
        future.set_result("first")
        await asyncio.sleep(0.01)
        failing.set_exception(ValueError())
        await task
        assert seen == ["first", "slept", ValueError, "inside", "outside"]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@LOOPS
def test_cancelling_the_task_cancels_the_work(loop: type) -> None:
    async def run() -> None:
        ended = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append(True)
                await asyncio.sleep(0)
                ended.append(True)
                raise

        task = start_eagerly(work(), asyncio.get_running_loop())
        assert task is not None
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True, True]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_what_is_raised_before_the_first_wait_is_raised_to_the_caller() -> None:
    async def run() -> None:
        async def work() -> None:
            raise KeyError

        with pytest.raises(KeyError):
            start_eagerly(work(), asyncio.get_running_loop())

    asyncio.run(run())


def test_what_serves_requests_over_http_does_not_ask_for_the_current_task() -> None:
    """There is none until a request waits for the first time. gRPC's calls are tasks of grpcio."""
    asking = re.compile(r"asyncio\.(?:timeout|wait_for|TaskGroup|current_task|gather)\b|\banyio\b")
    root = Path(requant_service.__file__).parent
    exempt = {root / "server" / "servers.py", *(root / "oip" / "grpc").rglob("*.py")}
    found = [path for path in sorted(root.rglob("*.py")) if path not in exempt and asking.search(code_of(path))]
    assert found == []


def code_of(path: Path) -> str:
    return re.sub(r"#.*", "", path.read_text())
