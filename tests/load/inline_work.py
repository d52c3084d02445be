"""How long requests hold the event loop: `python -m tests.load.inline_work [word ...]`.

Serves, in this process, requests of every route whose texts and tensors are just small enough that no thread is asked,
and prints the longest step of the loop in CPU, the least of several runs of each request: what all other requests wait
for at most. Beside it is that of the smallest request of the route, which no estimate makes shorter.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.load.case import Case, json_case, model_case, noise, numbers, scale_list, tensor
from tests.support.asgi import post, ready_app
from tests.support.oip_wire import Input

_RUNS = 7
# Of lengths between these, the most expensive that stays on the loop is looked for.
_LENGTHS = (1, 64, 128, 256, 384, 512, 700, 900, 1000, 1200, 2000, 4000)


def _scales_of(length: int, digits: bool) -> str:
    """A list of scales of about so many characters: short ones, all alike, or of 10 digits."""
    if digits:
        return scale_list(max(1, length // 15), zeros=False)
    return "{" + ",".join(f"{1 + index % 8}.0" for index in range(max(1, length // 4))) + "}"


def _texts(length: int) -> Iterator[Case]:
    for digits in (True, False):
        scales = _scales_of(length, digits)
        count = scales.count(",") + 1
        kind = f"{count} {'long' if digits else 'short'} scales"
        i8, i32 = (f"!quant.uniform<{storage}:f32:0, {scales}>" for storage in ("i8", "i32"))
        real, stored, sums = (f"tensor<{count}x{element}>" for element in ("f32", i8, i32))
        yield json_case("/v1/types/parse", kind, lambda i8=i8: {"text": i8})  # type: ignore[misc]
        yield json_case("/v1/types/translate", kind, lambda stored=stored: {"type": stored})  # type: ignore[misc]
        yield json_case("/v1/quantize", kind, lambda real=real, i8=i8, count=count: {  # type: ignore[misc]
            "input": tensor(real, noise((count,))), "output_type": i8})  # fmt: skip
        for scheme in ("litert", "onnx_reference"):
            yield json_case("/v1/requantize", f"{kind}, {scheme}", lambda sums=sums, count=count, scheme=scheme: {  # type: ignore[misc]
                "input": tensor(sums, noise((count,), "i4")), "output_type": "!quant.uniform<i8:f32, 0.05:3>",
                "scheme": scheme})  # fmt: skip
            yield model_case("requantize", f"{kind}, {scheme}",
                             lambda count=count: [Input("x", noise((count,), "i4"))], scheme=scheme,  # type: ignore[misc]
                             input_type=i32, output_type="!quant.uniform<i8:f32, 0.05:3>")  # fmt: skip
        yield model_case("quantize", kind, lambda count=count: [Input("x", noise((count,)))], output_type=i8)  # type: ignore[misc]
        yield model_case("dequantize", kind, lambda count=count: [Input("x", noise((count,), "i1"))], input_type=i8)  # type: ignore[misc]
        yield json_case("/v1/matmul", kind, lambda i8=i8, count=count: {  # type: ignore[misc]
            "lhs": tensor("tensor<1x1x!quant.uniform<i8:f32, 0.01:3>>", noise((1, 1), "i1")),
            "rhs": tensor(f"tensor<1x{count}x{i8.replace('f32:0', 'f32:1')}>", noise((1, count), "i1")),
            "output_type": "!quant.uniform<i8:f32, 0.05:3>"})  # fmt: skip
        yield json_case("/v1/fake_quantize", kind, lambda count=count: {  # type: ignore[misc]
            "input": tensor(f"tensor<{count}xf32>", noise((count,))), "axis": 0,
            "minimums": [-each for each in numbers(count)], "maximums": numbers(count, 1.0)})  # fmt: skip
        yield json_case("/v1/parameters/range", kind, lambda count=count: {  # type: ignore[misc]
            "minimums": [-each for each in numbers(count)], "maximums": numbers(count, 1.0), "axis": 0,
            "storage": "i8", "scheme": "litert"})  # fmt: skip
        yield json_case("/v1/parameters/multiplier", kind, lambda count=count: {  # type: ignore[misc]
            "factors": [f"{each!r}" for each in numbers(count)], "scheme": "fbgemm"})  # fmt: skip
    count = max(1, length // 8)
    yield model_case("onnx.QLinearMatMul", f"{count} columns", lambda: [
        Input("a", np.ones((1, 1), "u1")), Input("a_scale", np.array(0.5, "f4")),
        Input("a_zero_point", np.array(3, "u1")),
        Input("b", np.ones((1, count), "i1")), Input("b_scale", np.linspace(0.1, 0.2, count).astype("f4")),
        Input("b_zero_point", np.zeros(count, "i1")), Input("y_scale", np.array(0.5, "f4")),
        Input("y_zero_point", np.array(3, "u1"))])  # fmt: skip
    yield model_case("requantize", f"{count} multipliers", lambda: [
        Input("x", noise((1, count), "i4")), Input("multiplier", np.full(count, 1 << 30, "i8")),
        Input("shift", np.full(count, -7, "i4"))], output_type="!quant.uniform<i8:f32, 0.5>", axis=1)  # fmt: skip


@contextmanager
def longest_steps(found: list[float]) -> Iterator[None]:
    """Note the CPU of every step of event loops."""
    handles: Any = asyncio.Handle
    run: Callable[[asyncio.Handle], None] = handles._run

    def timed(handle: asyncio.Handle) -> None:
        begun = time.thread_time()
        run(handle)
        found.append(time.thread_time() - begun)

    handles._run = timed
    try:
        yield
    finally:
        handles._run = run


def longest(app: Any, case: Case) -> tuple[int, float]:
    """Return the status of the reply, and the longest step of the loop: the least of several runs."""
    body, headers = case.make()
    sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    runs = []
    for _ in range(_RUNS):
        found: list[float] = []
        with longest_steps(found):
            reply = asyncio.run(post(app, case.route, case.query, [body], declared=len(body), headers=sent))
        runs.append(max(found))
    return reply.status, min(runs)


def main() -> None:
    # Every call is planned: nothing is kept.
    app = ready_app(plan_cache_bytes=0)
    for case in _texts(1):
        longest(app, case)
    smallest: dict[str, float] = {}
    worst: dict[str, tuple[float, int, int, str]] = {}
    for length in _LENGTHS:
        for case in _texts(length):
            if all(word in case.route for word in sys.argv[1:]):
                status, seconds = longest(app, case)
                smallest.setdefault(case.route, seconds)
                kept = worst.get(case.route, (0.0, 0, 0, ""))
                worst[case.route] = max(kept, (seconds, status, len(case.make()[0]), case.what))
    for route, (seconds, status, size, what) in sorted(worst.items(), key=lambda each: -each[1][0]):
        times = f"{1e6 * seconds:7.0f} us, the smallest {1e6 * smallest[route]:5.0f}"
        print(f"{times}  {status}  {size:6d} bytes  {route}  {what}")


if __name__ == "__main__":
    main()
