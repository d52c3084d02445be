"""Where work runs: light work at once, texts and arrays in threads of their own."""

from __future__ import annotations

import asyncio
import threading
import time

from service.compute import Compute


def test_long_texts_do_not_hold_up_arrays() -> None:
    async def run() -> tuple[str, str, str]:
        compute, release = Compute(1, 1024), threading.Event()
        try:
            busy = [asyncio.create_task(compute.texts(1000, lambda: (release.wait(60), name())[1])) for _ in range(3)]
            await asyncio.sleep(0)
            arrays = await asyncio.wait_for(compute.arrays(2000, name), 30)
            inline = await compute.texts(64, name)
            assert not any(task.done() for task in busy)
            release.set()
            return arrays, inline, (await asyncio.gather(*busy))[0]
        finally:
            release.set()
            compute.shut_down()

    arrays, inline, texts = asyncio.run(run())
    assert arrays.startswith("arrays")
    assert texts.startswith("texts")
    assert inline == threading.current_thread().name


def test_work_of_a_kind_that_took_long_goes_to_a_thread() -> None:
    def slow() -> str:
        until = time.thread_time() + 0.005
        while time.thread_time() < until:
            pass
        return name()

    async def run() -> list[str]:
        compute = Compute(1, 1024)
        try:
            slow_ones = [await compute.whole("slow", 32 << 10, slow) for _ in range(2)]
            quick_ones = [await compute.whole("quick", 32 << 10, name) for _ in range(2)]
            return [*slow_ones, *quick_ones, await compute.whole("new", 1 << 30, name)]
        finally:
            compute.shut_down()

    first, second, *quick, large = asyncio.run(run())
    here = threading.current_thread().name
    assert (first, quick) == (here, [here, here])
    assert second.startswith("arrays")
    assert large.startswith("arrays")


def name() -> str:
    return threading.current_thread().name
