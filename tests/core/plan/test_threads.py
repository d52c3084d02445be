"""The pieces of one tensor in any number of threads, in any order: the same bits and the same tally."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.requantize import plan_requantize
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Array, Conversion, Plan, merged
from requant.profiles import Rounding
from tests.support.cases import EXHAUSTIVE

ROWS, COLUMNS = 480 if EXHAUSTIVE else 60, 96
AXIS = ", ".join(f"{0.01 + 0.001 * i:.4f}:{i % 7 - 3}" for i in range(COLUMNS))
I8 = "!quant.uniform<i8:f32, 0.05:3>"
TYPES = {
    "per tensor": I8,
    "last axis": f"!quant.uniform<i8:f32:1, {{{AXIS}}}>",
    "i4": "!quant.uniform<i4:f32, 0.5:1>",
    "f8E4M3FN": "!quant.uniform<f8E4M3FN:f32, 0.05>",
}


def tensor(element: str) -> TensorType:
    parsed = parse_type(f"tensor<{ROWS}x{COLUMNS}x{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


def plans() -> dict[str, tuple[Plan, int | None]]:
    """Plans by name, each with the width of its packed output, if that is packed."""
    real = tensor("f32")
    found: dict[str, tuple[Plan, int | None]] = {
        f"f32 to {name}": (plan_quantize(real, parse_type(text), "onnx"), 4 if name == "i4" else None)
        for name, text in TYPES.items()
    }
    drawn = plan_quantize(real, parse_type(I8), "stablehlo", rounding=Rounding.STOCHASTIC, seed=11)
    found["f32 to i8, stochastic"] = drawn, None
    found["i8 to f32"] = plan_dequantize(tensor(TYPES["last axis"]), None, "onnx"), None
    found["i8 to i8"] = plan_requantize(tensor(I8), parse_type(TYPES["last axis"]), "litert"), None
    return found


PLANS = plans()


def source_of(plan: Plan) -> Array:
    rng = np.random.default_rng(12)
    if plan.input_dtype.kind == "f":
        real = (rng.standard_normal(plan.elements) * 3).astype(np.float32)
        real[::97] = np.nan
        return real
    return rng.integers(-128, 128, plan.elements).astype(np.int8)


def converted(plan: Plan, width: int | None, threads: int, size: int) -> tuple[bytes, list[int]]:
    conversion, source = Conversion(plan, packed_out=width), source_of(plan)
    target = np.zeros(conversion.output_entries, conversion.output_dtype)
    pieces = list(conversion.pieces(0, plan.elements, size))
    random.Random(threads).shuffle(pieces)

    def step(piece: tuple[int, int]) -> Array:
        begin, end = piece
        counts = plan.new_counts()
        conversion.step(
            source[begin:end], target[conversion.output_at(begin) : conversion.output_at(end)], begin, counts
        )
        return counts

    with ThreadPoolExecutor(threads) as pool:
        tally: list[int] = merged(pool.map(step, pieces), plan.new_counts()).tolist()
    return target.tobytes(), tally


@pytest.mark.parametrize("name", PLANS)
def test_threads_and_pieces_change_nothing(name: str) -> None:
    plan, width = PLANS[name]
    expected = converted(plan, width, 1, plan.elements)
    for threads in (1, 2, 5):
        for size in (8, 1000, 4096, plan.elements):
            assert converted(plan, width, threads, size) == expected, f"{threads} threads, pieces of {size}"
