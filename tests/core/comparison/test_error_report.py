"""The error of a conversion against its input, and which parameters belong to which element."""

from __future__ import annotations

from fractions import Fraction
from math import log10

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.comparison.comparison import ErrorSums, conversion_error
from requant.comparison.real_values import parameter_indices, real_values
from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.kernels.statistics.error_sums import BLOCK
from requant.mlir import parse_type
from requant.mlir.types import TensorType, UniformPerAxisType, UniformSubChannelType, UniformType


def tensor(text: str) -> TensorType:
    parsed = parse_type(text)
    assert isinstance(parsed, TensorType)
    return parsed


@pytest.mark.parametrize("storage", ["i8", "u8", "i16", "u16", "i32"])
@pytest.mark.parametrize("size", [7, 1000, 3000])
def test_the_error_of_a_quantization(storage: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.normal(0, 100, (2, size)).astype(np.float32)
    x[0, 1:4] = np.nan, np.inf, -np.inf
    plan = plan_quantize(
        tensor(f"tensor<2x{size}xf32>"), parse_type(f"!quant.uniform<{storage}:f32:0, {{0.75:3,0.1}}>")
    )
    stored = np.empty(2 * size, plan.output_dtype)
    plan.run(x.ravel(), stored)
    found = conversion_error(plan, x.ravel(), stored)
    scales = (Fraction(0.75), Fraction(float(np.float32(0.1))))
    exact = [
        (Fraction(float(v)), (int(q) - (3, 0)[row]) * scales[row])
        for row in (0, 1)
        for v, q in zip(x[row], stored.reshape(2, size)[row], strict=True)
        if np.isfinite(v)
    ]
    errors = [abs(q - v) for v, q in exact]
    assert found.left_out == 3
    assert found.max_absolute_error == pytest.approx(float(max(errors)), rel=1e-14)
    assert found.mean_absolute_error == pytest.approx(float(sum(errors) / len(errors)), rel=1e-13)
    sqnr = 10 * log10(sum(v * v for v, _ in exact) / sum(e * e for e in errors))
    assert found.sqnr_db == pytest.approx(sqnr, rel=1e-12)


def test_an_exact_conversion_has_no_error() -> None:
    plan = plan_dequantize(tensor("tensor<4x!quant.uniform<i8:f32, 0.5:3>>"))
    stored = np.array([-128, 0, 3, 127], np.int8)
    real = np.empty(4, np.float32)
    plan.run(stored, real)
    found = conversion_error(plan, stored, real)
    assert (found.left_out, found.max_absolute_error, found.mean_absolute_error) == (0, 0.0, 0.0)
    assert found.sqnr_db is None


def test_blocks_may_come_in_any_order() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 10 * BLOCK + 77))
    side = real_values(tensor(f"tensor<{a.size}xf64>"), "a")
    reports = []
    for piece in (BLOCK, 3 * BLOCK, 16 * BLOCK):
        starts = list(range(0, a.size, piece))
        rng.shuffle(starts)
        sums = ErrorSums(side, side, a.size)
        for start in starts:
            sums.add(a[start : start + piece], b[start : start + piece], start)
        reports.append(sums.report())
    assert reports[0] == reports[1] == reports[2]


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    blocks=st.lists(st.integers(1, 8), min_size=4, max_size=4),
    named=st.lists(st.booleans(), min_size=4, max_size=4),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_parameters_of_elements(
    shape: list[int], blocks: list[int], named: list[bool], cut: tuple[float, float]
) -> None:
    """Against the index of each element, taken apart; last blocks may be short."""
    uniform = tensor("tensor<1x!quant.uniform<i8:f32, 1.0>>").element
    assert isinstance(uniform, UniformType)
    used = {axis: blocks[axis] for axis in range(len(shape)) if named[axis]}
    counts = tuple(-(-size // used.get(axis, size)) for axis, size in enumerate(shape))
    element = UniformSubChannelType(uniform.storage, uniform.expressed, tuple(used.items()), counts, (), ())
    size = int(np.prod(shape))
    start, stop = sorted(int(part * size) for part in cut)
    expected = []
    for flat in range(start, stop):
        position = np.unravel_index(flat, shape)
        block = [int(i) // used.get(axis, shape[axis]) for axis, i in enumerate(position)]
        expected.append(int(np.ravel_multi_index(block, counts)))
    assert parameter_indices(element, tuple(shape), start, stop).tolist() == expected


def test_parameters_along_an_axis() -> None:
    element = tensor("tensor<2x3x2x!quant.uniform<i8:f32:1, {0.5,0.25,0.125}>>").element
    assert isinstance(element, UniformPerAxisType)
    assert parameter_indices(element, (2, 3, 2), 1, 12).tolist() == [0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
