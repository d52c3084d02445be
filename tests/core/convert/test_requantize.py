"""requantize against the oracle, and the derivation of multipliers."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from requant.convert.requantize import plan_requantize
from requant.errors import (
    ParameterError,
    PreconditionError,
    RequantError,
    TypeFitError,
    UnsupportedError,
)
from requant.kernels.simd.fixed_point import high_multiply, rounding_divide_by_power_of_two
from requant.mlir import parse_type
from requant.schemes import Multiplier
from tests.oracles import quantization as oracle
from tests.support.cases import examples, sample
from tests.support.drawn_types import tensor
from tests.support.lanes import of_lanes
from tests.vector_cases import load

RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "u16": (0, 65535), "i32": (-(2**31), 2**31 - 1)}


def scaled(profile: str, v: int, m: int, shift: int) -> int | None:
    """What the profile's scheme makes of v, None where it is not defined."""
    if profile == "litert":
        return oracle.multiply_double(v, m, shift) if -(2**31) <= v < 2**31 else None
    if profile == "litert_single_rounding":
        return oracle.multiply_single(v, m, shift) if -(2**31) <= v < 2**31 else None
    return oracle.tosa_rescale(v, m, shift, double=profile == "tosa_double_round")


def multiplier_of(profile: str, scale_in: float, scale_out: float) -> tuple[int, int]:
    if profile.startswith("litert"):
        d = float(np.float32(scale_in)) / float(np.float32(scale_out))
        return oracle.litert_multiplier(d, single=profile != "litert")
    return oracle.tosa_multiplier(scale_in / scale_out)


def values_for(storage: str, zero_point: int, m: int, shift_right: int, rng: np.random.Generator) -> np.ndarray:
    """All values of 8-bit storage; else the bounds, a sample, and values whose products lie at and beside ties."""
    lowest, highest = RANGES[storage]
    if highest - lowest < 256:
        return np.arange(lowest, highest + 1)
    ties = [
        zero_point + ((2 * k + 1) << shift_right) // (2 * max(m, 1)) + d for k in range(-130, 131) for d in (-1, 0, 1)
    ]
    edges = [lowest, lowest + 1, -1, 0, 1, highest]
    inside = np.array([value for value in ties + edges if lowest <= value <= highest], np.int64)
    return np.concatenate([inside, rng.integers(lowest, highest, 300)])


PROFILES = ["litert", "litert_single_rounding", "tosa", "tosa_double_round"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("source", "target", "profile"), sample(list(product(RANGES, RANGES, PROFILES)), 33))
def test_requantize_every_pair(profile: str, source: str, target: str) -> None:
    rng = np.random.default_rng(5)
    lowest, highest = RANGES[target]
    compared = 0
    for scale_in, scale_out in ((0.5, 1.0), (1.0, 1.0), (0.1, 0.3), (0.75, 0.1), (1e-3, 7.0), (3.0, 1.0)):
        byte_in, byte_out = source in ("i8", "u8"), target in ("i8", "u8")
        zero_in, zero_out = (5 if byte_in else 0), (-3 if target == "i8" else 9 if byte_out else 0)
        input_type = f"!quant.uniform<{source}:f32, {scale_in:.17e}:{zero_in}>"
        output_type = f"!quant.uniform<{target}:f32, {scale_out:.17e}:{zero_out}>"
        m, shift = multiplier_of(profile, scale_in, scale_out)
        q = values_for(source, zero_in, m, 31 - shift if profile.startswith("litert") else shift, rng)
        results = [scaled(profile, int(v) - zero_in, m, shift) for v in q]
        kept = [(v, y) for v, y in zip(q, results, strict=True) if y is not None]
        values = np.array([v for v, _ in kept])
        try:
            plan = plan_requantize(tensor(f"tensor<{values.size}x{input_type}>"), parse_type(output_type), profile)
        except UnsupportedError:
            # TOSA takes one unsigned side at most, and none together with i32.
            assert profile.startswith("tosa")
            assert source[0] == "u" or target[0] == "u"
            return
        assert plan.multipliers == (Multiplier(m, shift),)
        stored = np.empty(values.size, plan.output_dtype)
        report = plan.run(values.astype(plan.input_dtype), stored)
        rescaled = oracle.rescaled_litert if profile.startswith("litert") else oracle.rescaled
        expected = [rescaled(y, zero_out, lowest, highest) for _, y in kept]
        assert stored.tolist() == [each.value for each in expected]
        assert report.saturated_low == sum(each.low for each in expected)
        assert report.saturated_high == sum(each.high for each in expected)
        undefined = [v for v, y in zip(q, results, strict=True) if y is None]
        if undefined:
            mixed = np.array([0, undefined[0], 0]).astype(plan.input_dtype)
            with pytest.raises(PreconditionError) as caught:
                plan_requantize(tensor(f"tensor<3x{input_type}>"), parse_type(output_type), profile).run(
                    mixed, np.empty(3, plan.output_dtype)
                )
            assert caught.value.index == 1
        compared += values.size
    assert compared > 500


@settings(max_examples=examples(400))
@given(
    profile=st.sampled_from(["litert", "litert_single_rounding", "tosa", "tosa_double_round"]),
    m=st.one_of(st.integers(2**30, 2**31 - 1), st.integers(0, 2**31 - 1)),
    right=st.integers(1, 62),
    near=st.lists(st.tuples(st.integers(-(2**16), 2**16), st.integers(-1, 1)), min_size=1, max_size=20),
    zero_out=st.integers(-128, 127),
)
@example("litert", 2**31 - 1, 62, [(0, 0)], 0)
@example("tosa_double_round", 1 << 30, 32, [(0, 1), (1, 0), (-1, 0)], 0)
def test_requantize_accumulators_at_ties(
    profile: str, m: int, right: int, near: list[tuple[int, int]], zero_out: int
) -> None:
    """int32 accumulators whose exact product is a tie of the last rounding, and one beside it."""
    shift = 31 - right if profile.startswith("litert") else max(right, 2)
    values = [((2 * k + 1) << right) // (2 * max(m, 1)) + d for k, d in near]
    values = [v for v in values if -(2**31) <= v < 2**31 and scaled(profile, v, m, shift) is not None]
    plan = plan_requantize(
        tensor(f"tensor<{len(values)}x!quant.uniform<i32:f32, 1.0>>"),
        parse_type(f"!quant.uniform<i8:f32, 1.0:{zero_out}>"),
        profile,
        [Multiplier(m, shift)],
    )
    stored = np.empty(len(values), np.int8)
    plan.run(np.array(values, np.int32), stored)
    results = [scaled(profile, v, m, shift) for v in values]
    rescaled = oracle.rescaled_litert if profile.startswith("litert") else oracle.rescaled
    assert stored.tolist() == [rescaled(y, zero_out, -128, 127).value for y in results if y is not None]


@pytest.mark.parametrize(("shape", "axis"), [((4,), 0), ((3, 4), 1), ((3, 4), 0), ((2, 3, 80), 1), ((5, 3, 2), 1)])
@pytest.mark.parametrize("per_axis", ["input", "output", "both"])
def test_per_axis_in_any_pieces(shape: tuple[int, ...], axis: int, per_axis: str) -> None:
    count, size = shape[axis], prod(shape)
    rng = np.random.default_rng(6)
    scales = [0.01 * (i + 1) for i in range(count)]
    listed = ", ".join(f"{s:.17e}:{i % 3}" for i, s in enumerate(scales))
    single = "!quant.uniform<i8:f32, 2.0:1>"
    vector = f"!quant.uniform<i8:f32:{axis}, {{{listed}}}>"
    input_type = single if per_axis == "output" else vector
    output_type = single if per_axis == "input" else vector
    plan = plan_requantize(tensor(f"tensor<{'x'.join(map(str, shape))}x{input_type}>"), parse_type(output_type))
    q = rng.integers(-128, 128, size).astype(np.int8)
    channel = np.broadcast_to(
        np.arange(count).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
    ).ravel()
    expected = []
    for v, c in zip(q.tolist(), channel.tolist(), strict=True):
        s_in, z_in = (2.0, 1) if per_axis == "output" else (scales[c], c % 3)
        s_out, z_out = (2.0, 1) if per_axis == "input" else (scales[c], c % 3)
        m, shift = multiplier_of("litert", s_in, s_out)
        expected.append(oracle.rescaled(oracle.multiply_double(v - z_in, m, shift), z_out, -128, 127).value)
    for pieces in (size, 1, 7):
        stored, counts = np.empty(size, np.int8), plan.new_counts()
        for start in range(0, size, pieces):
            plan.step(q[start : start + pieces], stored[start : start + pieces], start, counts)
        assert stored.tolist() == expected
    assert len(plan.multipliers) == count


def test_large_narrow_inputs_are_widened_piece_by_piece() -> None:
    """More elements than the widening buffer holds, and channels that do not start anew with each piece."""
    rows = 14000
    plan = plan_requantize(
        tensor(f"tensor<{rows}x3x!quant.uniform<u8:f32, 0.5:128>>"),
        parse_type("!quant.uniform<i8:f32:1, {0.25:-3, 0.5:1, 1.0:7}>"),
    )
    q = np.random.default_rng(7).integers(0, 256, (rows, 3)).astype(np.uint8)
    stored = np.empty(rows * 3, np.int8)
    plan.run(q.ravel(), stored)
    halved = [oracle.nearest_up(Fraction(int(v) - 128, 2)) for v in q[:, 2]]
    expected = np.stack(
        [(q[:, 0].astype(int) - 128) * 2 - 3, q[:, 1].astype(int) - 128 + 1, np.array(halved) + 7], axis=1
    )
    assert stored.reshape(rows, 3).tolist() == np.clip(expected, -128, 127).tolist()


def test_high_multiply_and_rounding_shift_equal_their_vectors() -> None:
    data = load("tflite_multiplier")
    for case in data["srdhm"]:
        assert of_lanes(high_multiply, case["a"], case["b"]) == case["y"]
    for case in data["rounding_divide_by_pot"]:
        assert of_lanes(rounding_divide_by_power_of_two, case["x"], case["e"]) == case["y"]


I8, U8, I16 = ("!quant.uniform<i8:f32, 1.0>", "!quant.uniform<u8:f32, 1.0>", "!quant.uniform<i16:f32, 1.0>")
I16_SHIFTED = "!quant.uniform<i16:f32, 1.0:1>"


@pytest.mark.parametrize(
    ("input_type", "output_type", "profile", "multipliers", "error", "says"),
    [
        (f"4x{I8}", I8, "mlir", None, UnsupportedError, "does not define"),
        (f"4x{U8}", U8, "tosa", None, UnsupportedError, "unsigned"),
        (f"4x{I16_SHIFTED}", I8, "tosa", None, UnsupportedError, "zero point"),
        (f"4x{I16_SHIFTED}", I16, "litert", None, UnsupportedError, "zero point"),
        (f"4x{I8}", "!quant.uniform<i8:f32, 1.0e-38>", "litert_xnnpack", None, UnsupportedError, "subnormal"),
        (f"4x{I8}", I8, "litert", [(1, 0)] * 3, TypeFitError, "3 multipliers"),
        (f"4x{I8}", I8, "litert", [(1, 32)], ParameterError, "shift 32"),
        (f"4x{I8}", I8, "tosa", [(1, 63)], ParameterError, "shift 63"),
        (f"4x{I8}", I8, "tosa", [(-1, 30)], ParameterError, "multiplier -1"),
        ("4x!quant.uniform<i8:f32, 1.0e30>", I8, "tosa", None, ParameterError, "channel 0"),
        (f"4x{I8}", "!quant.uniform<i8:f16, 1.0>", "litert", None, UnsupportedError, "f16"),
    ],
)
def test_refusals(
    input_type: str,
    output_type: str,
    profile: str,
    multipliers: list[tuple[int, int]] | None,
    error: type[RequantError],
    says: str,
) -> None:
    given = None if multipliers is None else [Multiplier(*pair) for pair in multipliers]
    with pytest.raises(error) as caught:
        plan_requantize(tensor(f"tensor<{input_type}>"), parse_type(output_type), profile, given)
    assert says in caught.value.detail


def test_two_axes_are_brought_to_one_granularity() -> None:
    """Rows on one side, columns on the other."""
    q = np.arange(-12, 12, dtype=np.int8)
    rows = [0.5, 1.0, 1.5, 2.0]
    columns = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    listed_rows = ", ".join(f"{s:.17e}" for s in rows)
    listed_columns = ", ".join(f"{s:.17e}:{i}" for i, s in enumerate(columns))
    source = tensor(f"tensor<4x6x!quant.uniform<i8:f32:0, {{{listed_rows}}}>>")
    plan = plan_requantize(source, parse_type(f"!quant.uniform<i8:f32:1, {{{listed_columns}}}>"))
    assert len(plan.multipliers) == 24
    stored = np.empty(24, np.int8)
    plan.run(q, stored)
    for element, (row, column) in enumerate(np.ndindex(4, 6)):
        m, shift = multiplier_of("litert", rows[row], columns[column])
        y = oracle.multiply_double(int(q[element]), m, shift)
        assert stored[element] == oracle.rescaled(y, column, -128, 127).value
