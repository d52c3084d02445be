"""Rule `mlir` against MLIR's fakeQuantAttrsToType, as TensorFlow's pass quant-convert-fake-quant-to-qdq calls it.

The pass asks for i8, leaves operators of other widths as they are, and prints the type, whose scales are f64. It widens
ranges of at most 1e-6 before, so that the function's own answer to an empty range is not seen; tests/oracles has it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.interop.conformance import systems
from tests.interop.range_cases import Array, RangeComparison, beside, ranges
from tests.interop.seed_of_the_day import generator

tensorflow: Any = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.interop

_TYPE = re.compile(r'"quantization.qcast".*!quant\.uniform<i8(<-?\d+:-?\d+>)?:f32(?::0)?, \{?([^>}]*)')
_LEAST_WIDTH = 1e-6


def widened(lows: Array, highs: Array) -> tuple[Array, Array]:
    """The ranges as the pass hands them on, f64."""
    lows, highs = lows.astype(np.float64), highs.astype(np.float64)
    narrow = highs - lows <= _LEAST_WIDTH
    half = _LEAST_WIDTH / 2
    return np.where(narrow, np.minimum(lows, -half), lows), np.where(narrow, np.maximum(highs, half), highs)


def constant(name: str, numbers: Array) -> str:
    """A tensor of f32 written by its bits; of one number, without dimensions."""
    bits = ", ".join(f"0x{pattern:08X}" for pattern in numbers.view(np.uint32).tolist())
    type_ = "tensor<f32>" if numbers.size == 1 else f"tensor<{numbers.size}xf32>"
    dense = bits if numbers.size == 1 else f"[{bits}]"
    return f'%{name} = "tf.Const"() {{value = dense<{dense}> : {type_}}} : () -> {type_}'


def fake_quantize(index: int, lows: Array, highs: Array, narrow: bool) -> str:
    """A function of one operator, with a range for each channel if there are several."""
    count = lows.size
    operator, ends = "FakeQuantWithMinMaxVars", "tensor<f32>"
    if count > 1:
        operator, ends = "FakeQuantWithMinMaxVarsPerChannel", f"tensor<{count}xf32>"
    type_ = f"tensor<{count}xf32>"
    return f"""func.func @f{index}(%x: {type_}) -> {type_} {{
      {constant("low", lows)}
      {constant("high", highs)}
      %r = "tf.{operator}"(%x, %low, %high) {{num_bits = 8 : i64, narrow_range = {str(narrow).lower()}}}
        : ({type_}, {ends}, {ends}) -> {type_}
      return %r : {type_}
    }}"""


def parameters(functions: list[str], narrow: bool) -> list[tuple[float, int]]:
    """Scales and zero points of the types that the pass makes."""
    found = tensorflow.mlir.experimental.run_pass_pipeline(
        "\n".join(functions), "func.func(quant-convert-fake-quant-to-qdq)"
    )
    types = _TYPE.findall(found)
    assert {bounds for bounds, _ in types} == {"<-127:127>" if narrow else ""}
    pairs = [each.partition(":") for _, listed in types for each in listed.split(",")]
    return [(number(scale), int(zero_point or 0)) for scale, _, zero_point in pairs]


def number(text: str) -> float:
    """An f64, which MLIR writes in decimals or, where that would be long, by its bits."""
    return float(np.uint64(int(text, 16)).view(np.float64)) if text.startswith("0x") else float(text)


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("narrow", [False, True], ids=["full", "narrow"])
def test_ranges(narrow: bool, per_channel: bool) -> None:
    rng = generator(119, narrow, per_channel)
    lows, highs = beside(*ranges(rng, 800))
    # Each range that the pass hands on once.
    wide, first = np.unique(np.stack(widened(lows, highs)), axis=1, return_index=True)
    lows, highs = lows[first], highs[first]
    parts = np.array_split(np.arange(lows.size), 10 if per_channel else lows.size)
    functions = [fake_quantize(index, lows[part], highs[part], narrow) for index, part in enumerate(parts)]
    theirs = parameters(functions, narrow)
    comparison = RangeComparison(systems.TENSORFLOW, "mlir", "i8", **({"narrow": True} if narrow else {}))
    for (low, high, scale, zero_point), found in zip(comparison.pairs(*wide), theirs, strict=True):
        comparison.add((low, high), (scale, zero_point), found)
    comparison.finish(4000)
