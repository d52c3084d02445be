"""Fake quantization by range: the real systems' vectors, exact fractions, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES, FakeQuantizePlan, plan_fake_quantize
from requant.errors import (
    ParameterError,
    PreconditionError,
    RequantError,
    TypeFitError,
    UnknownNameError,
    UnsupportedError,
)
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from tests.oracles import ranges as oracle
from tests.vector_cases import fake_quant_cases

Array = np.ndarray[Any, Any]


def tensor(*shape: int) -> TensorType:
    found = parse_type(f"tensor<{''.join(f'{size}x' for size in shape)}f32>")
    assert isinstance(found, TensorType)
    return found


def run(plan: FakeQuantizePlan, x: Array) -> Array:
    target = np.empty_like(x)
    plan.run(x, target)
    return target


def same(a: Array, b: Array) -> bool:
    """Equal bits; one NaN is as good as another."""
    return bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


def test_vectors() -> None:
    counts: Counter[str] = Counter()
    for case in fake_quant_cases():
        plan = plan_fake_quantize(
            tensor(*case.shape),
            *case.ranges,
            num_bits=case.num_bits,
            narrow_range=case.narrow_range,
            scheme=case.scheme,
            axis=len(case.shape) - 1 if case.per_channel else None,
        )
        assert same(run(plan, case.x), case.y), case
        counts[case.scheme] += case.x.size
    assert counts == {"tf_fake_quant": 629 + 1152 + 1344, "tf_fake_quant_vars": 1176, "litert": 165}


LARGEST = float(np.finfo(np.float32).max)
ENDS = st.floats(-300, 300, width=32) | st.sampled_from([0.0, -1.0, 1.0, 2.0**-127, -(2.0**-127), 3e38, -3e38])


@pytest.mark.parametrize("scheme", FAKE_QUANTIZE_SCHEMES)
@given(ends=st.tuples(ENDS, ENDS).map(sorted), bits=st.integers(2, 16), narrow=st.booleans(), data=st.data())
def test_against_fractions(scheme: str, ends: list[float], bits: int, narrow: bool, data: st.DataObject) -> None:
    low, high = (float(np.float32(end)) for end in ends)
    lowest, highest = int(narrow), (1 << bits) - 1
    ranges = np.array([low]), np.array([high])
    step = (high - low) / (highest - lowest)
    near_ties = st.integers(-1, highest + 1).map(lambda count: low + (count + 0.5) * step)
    numbers = st.floats(width=32, allow_infinity=False) | near_ties.filter(lambda x: abs(x) < LARGEST)
    x = np.array(data.draw(st.lists(numbers, min_size=1, max_size=20)), np.float32)
    expected = [oracle.fake_quantize(float(value), low, high, lowest, highest, scheme) for value in x]
    try:
        plan = plan_fake_quantize(tensor(x.size), *ranges, num_bits=bits, narrow_range=narrow, scheme=scheme)
    except (ParameterError, PreconditionError):
        assert expected == [None] * x.size
        return
    assert same(run(plan, x), np.array(expected, np.float32))


@pytest.mark.parametrize("shape", [(7, 5), (3, 2, 40), (2, 300), (1, 1), (0, 4), (4, 3000)])
def test_channels_in_any_pieces(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    channels = shape[-1]
    lows, highs = -rng.uniform(0, 3, channels), rng.uniform(0, 3, channels)
    lows[channels // 2] = highs[channels // 2] = 0.0
    plan = plan_fake_quantize(tensor(*shape), lows, highs, axis=len(shape) - 1)
    x = rng.standard_normal(int(np.prod(shape))).astype(np.float32)
    whole = run(plan, x)
    columns = x.reshape(-1, channels)
    for channel in range(channels):
        one = plan_fake_quantize(tensor(columns.shape[0]), lows[channel : channel + 1], highs[channel : channel + 1])
        column = np.ascontiguousarray(columns[:, channel])
        assert same(run(one, column), np.ascontiguousarray(whole.reshape(-1, channels)[:, channel]))
    pieces = np.empty_like(x)
    for start in range(0, x.size, 17):
        plan.step(x[start : start + 17], pieces[start : start + 17], start)
    assert same(pieces, whole)


ONE = (np.array([-1.0]), np.array([1.0]))
TWO = (np.array([-1.0, -1.0]), np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("type_text", "ranges", "options", "error"),
    [
        ("tensor<4xf16>", ONE, {}, UnsupportedError),
        ("tensor<4xi8>", ONE, {}, UnsupportedError),
        ("tensor<?xf32>", ONE, {}, TypeFitError),
        ("tensor<4xf32>", TWO, {}, TypeFitError),
        ("tensor<4xf32>", TWO, {"axis": 0}, TypeFitError),
        ("tensor<2x4xf32>", TWO, {"axis": 0}, UnsupportedError),
        ("tensor<f32>", ONE, {"axis": 0}, UnsupportedError),
        ("tensor<4x2xf32>", TWO, {"axis": 1, "scheme": "litert"}, UnsupportedError),
        ("tensor<4x2xf32>", TWO, {"axis": 1, "scheme": "tf_fake_quant_vars"}, UnsupportedError),
        ("tensor<4xf32>", ONE, {"num_bits": 1}, ParameterError),
        ("tensor<4xf32>", ONE, {"num_bits": 17}, ParameterError),
        ("tensor<4xf32>", ONE, {"scheme": "torch"}, UnknownNameError),
        ("tensor<4xf32>", (np.array([2.0]), np.array([1.0])), {}, ParameterError),
        ("tensor<4xf32>", (np.array([1.0]), np.array([1.0])), {}, ParameterError),
        ("tensor<4xf32>", (np.array([0.0]), np.array([0.0])), {"scheme": "litert"}, ParameterError),
        ("tensor<4xf32>", (np.array([np.nan]), np.array([1.0])), {}, ParameterError),
        ("tensor<4xf32>", (np.array([-3e38]), np.array([3e38])), {}, PreconditionError),
        ("tensor<4xf32>", (np.array([0.0]), np.array([1e-36])), {}, PreconditionError),
        ("tensor<4xf32>", (np.array([-1e-40]), np.array([1e-40])), {"scheme": "litert"}, PreconditionError),
    ],
)
def test_refused(
    type_text: str, ranges: tuple[Array, Array], options: dict[str, Any], error: type[RequantError]
) -> None:
    type_ = parse_type(type_text)
    assert isinstance(type_, TensorType)
    with pytest.raises(error):
        plan_fake_quantize(type_, *ranges, **options)
