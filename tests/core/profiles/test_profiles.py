"""Every profile, expressed type, storage and granularity against the oracle, element by element and count by count."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.errors import PreconditionError, UnsupportedError
from requant.mlir import parse_type
from requant.plan.plan import Plan
from requant.profiles import PROFILES, Operation
from requant.profiles.rule import ZeroPointRange
from tests.oracles import profiles as profile_oracle
from tests.oracles.profiles import Target, target
from tests.oracles.quantization import Stored
from tests.support.cases import sample_array, sample_each
from tests.support.drawn_types import tensor
from tests.support.float_samples import SPECIAL, around_ties, patterns, sixteen_bits

Array = NDArray[Any]
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
# One scale that divides nothing evenly, one that does, and zero points that tell the orders apart.
PARAMETERS = ((0.0237, 3), (0.5, 0), (0.25, -1))
# Beside the scales that are subnormal in f32, and those whose reciprocal is.
AT_THE_LIMITS = (
    (2.0**-126, 3),
    (1.5 * 2.0**-126, 0),
    (2.0**-125, -1),
    (2.0**126, 3),
    (1.5 * 2.0**126, 0),
    (2.0**127, 1),
)


def combinations(operation: Operation) -> list[tuple[str, str, str]]:
    """(profile, expressed, storage) for the integer storages; of i1 to u32 a telling few."""
    widths = {1, 2, 3, 4, 7, 8, 12, 16, 24, 31, 32}
    return [
        (name, expressed, storage)
        for name, profile in PROFILES.items()
        if operation in profile.operations
        for expressed in profile.operations[operation].expressed
        for storage in profile.operations[operation].storages
        if storage[0] in "iu" and int(storage[1:]) in widths and name != "litert_single_rounding"
    ]


def sampled(operation: Operation) -> Sequence[tuple[str, str, str]]:
    """The same, in a sample some storages of each profile and expressed type."""
    return sample_each(combinations(operation), lambda each: each[:2], 3)


def stored_bits(values: Array, expressed: str) -> Array:
    """Values as the arrays that plans take: bf16 as its bit pattern."""
    narrowed = values.astype(NUMPY[expressed])
    return narrowed.view(np.uint16) if expressed == "bf16" else narrowed


def real_values(array: Array, expressed: str) -> list[float]:
    real = array.view(ml_dtypes.bfloat16) if expressed == "bf16" else array
    return [float(value) for value in real]


def compare(plan: Plan, source: Array, expected: list[Stored | None]) -> None:
    """Run what is defined, compare all of it, and see the first undefined element refused."""
    undefined = [index for index, each in enumerate(expected) if each is None]
    if undefined:
        with pytest.raises(PreconditionError) as caught:
            plan.run(source, np.empty(source.size, plan.output_dtype))
        assert caught.value.index == undefined[0]
    counts = plan.new_counts()
    stored = np.empty(source.size, plan.output_dtype)
    plan.step(source, stored, 0, counts)
    wrong = [
        (index, got, each.value)
        for index, (got, each) in enumerate(zip(stored.tolist(), expected, strict=True))
        if each is not None and got != each.value
    ]
    assert not wrong, f"{len(wrong)} of {source.size} differ, first (index, got, expected): {wrong[:3]}"
    if not undefined:
        defined = [each for each in expected if each is not None]
        tally = [sum(getattr(each, name) for each in defined) for name in ("low", "high", "nan")]
        assert counts.tolist()[:3] == tally


def spelled(values: list[float]) -> list[str]:
    """Equal where the values are, NaN included."""
    return [value.hex() for value in values]


def expected_of(profile: str, reals: list[float], scale: float, z: int, t: Target) -> list[Stored | None]:
    """What the oracle makes of numbers of one scale. The last of an odd number of 4 bits has a byte of its own."""
    oracle = profile_oracle.QUANTIZE[profile]
    last = len(reals) - 1
    alone = replace(t, alone=t.storage in ("i4", "u4"))
    return [oracle(x, scale, z, alone if at == last and at % 2 == 0 else t) for at, x in enumerate(reals)]


def zero_point_for(wanted: int, t: Target) -> int:
    return min(max(wanted, t.type_lo), t.type_hi)


@pytest.mark.parametrize(("profile", "expressed", "storage"), sampled(Operation.QUANTIZE))
def test_quantize(profile: str, expressed: str, storage: str) -> None:
    t = target(storage, expressed)
    rng = np.random.default_rng(11)
    for scale, wanted in PARAMETERS + (AT_THE_LIMITS if expressed == "f32" and storage in ("i8", "u8") else ()):
        z = zero_point_for(wanted, t)
        ties = around_ties(scale, z, max(t.lo, -300), min(t.hi, 300), rng)
        edges = (np.array([t.lo, t.hi, t.lo - 1, t.hi + 1, t.hi - 0.5, t.lo + 0.5]) - z) * scale
        # Signalling NaNs and what overflows the narrow types are meant to be among the inputs.
        with np.errstate(all="ignore"):
            ties = sample_array(ties[:: max(1, ties.size // 250)], 80)
            values = np.concatenate([SPECIAL, ties, edges, sample_array(patterns(60, rng), 20)])
            source = stored_bits(values.astype(np.float64), expressed)
        plan = plan_quantize(
            tensor(f"tensor<{source.size}x{expressed}>"),
            parse_type(f"!quant.uniform<{storage}:{expressed}, {scale:.17e}:{z}>"),
            profile,
        )
        compare(plan, source, expected_of(profile, real_values(source, expressed), scale, z, t))


# On both sides of where oneDNN leaves scales out, and the smallest of each expressed type, whose reciprocal may be
# infinite, so that 0 becomes NaN.
ODD_SCALES = (0.9999999403953552, 1.0000009536743164, 0.9999989867210388, 1.0000010728836060)
SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-149}


@pytest.mark.parametrize(("profile", "expressed", "storage"), sampled(Operation.QUANTIZE))
def test_quantize_within_narrow_bounds_by_odd_scales(profile: str, expressed: str, storage: str) -> None:
    """NaN, and NaN from 0 times infinity, are as little within bounds as the rule says."""
    whole = target(storage, expressed)
    t = replace(whole, lo=whole.lo + 1, hi=whole.hi - 1) if whole.hi - whole.lo > 2 else whole
    t = replace(t, lo=max(t.lo, -8), hi=min(t.hi, 7))
    rng = np.random.default_rng(15)
    # XNNPACK refuses scales that are subnormal.
    smallest = 2.0**-126 if profile == "litert_xnnpack" else SMALLEST[expressed]
    for scale, wanted in ((smallest, 0), *((each, 3) for each in ODD_SCALES)):
        z = min(max(wanted, t.lo), t.hi)
        with np.errstate(all="ignore"):
            ties = (np.arange(t.lo - 3, t.hi + 3) - z + 0.5) * np.array([[1.0], [scale]])
            values = np.concatenate([SPECIAL, ties.ravel(), patterns(20, rng)])
            source = stored_bits(values.astype(np.float64), expressed)
        bounds = f"{storage}<{t.lo}:{t.hi}>"
        plan = plan_quantize(
            tensor(f"tensor<{source.size}x{expressed}>"),
            parse_type(f"!quant.uniform<{bounds}:{expressed}, {scale:.17e}:{z}>"),
            profile,
        )
        compare(plan, source, expected_of(profile, real_values(source, expressed), scale, z, t))


@pytest.mark.sample(3)
@pytest.mark.parametrize("expressed", ["f16", "bf16"])
@pytest.mark.parametrize("profile", ["stablehlo", "mlir", "onnx", "onnx_reference", "torch_decomposed"])
def test_quantize_every_pattern_of_sixteen_bits(profile: str, expressed: str) -> None:
    """All 65,536 patterns; the other profiles have neither type."""
    scale, z = 0.0237, 3
    t = target("i8", expressed)
    source = sixteen_bits()
    source = source if expressed == "bf16" else source.view(np.float16)
    plan = plan_quantize(
        tensor(f"tensor<{source.size}x{expressed}>"),
        parse_type(f"!quant.uniform<i8:{expressed}, {scale}:{z}>"),
        profile,
    )
    oracle = profile_oracle.QUANTIZE[profile]
    compare(plan, source, [oracle(x, scale, z, t) for x in real_values(source, expressed)])


@pytest.mark.parametrize("profile", [name for name in PROFILES if Operation.QUANTIZE in PROFILES[name].operations])
def test_sixteen_bit_floats_are_defined_or_refused(profile: str) -> None:
    for expressed in ("f16", "bf16", "f64"):
        storage = "!quant.quantile<i1:f16, {0.0, 1.0}>" if profile == "quantile" else "i8"
        types = tensor(f"tensor<4x{expressed}>"), parse_type(f"!quant.uniform<{storage}:{expressed}, 0.5>")
        if expressed in PROFILES[profile].operations[Operation.QUANTIZE].expressed:
            plan_quantize(*types, profile)
        else:
            with pytest.raises(UnsupportedError, match=expressed):
                plan_quantize(*types, profile)


@pytest.mark.parametrize(("profile", "expressed", "storage"), sampled(Operation.DEQUANTIZE))
def test_dequantize(profile: str, expressed: str, storage: str) -> None:
    """Every stored value up to 8 bits; of the others the extremes and a sample."""
    t = target(storage, expressed)
    rng = np.random.default_rng(12)
    if t.hi - t.lo < 256:
        codes = sample_array(np.arange(t.lo, t.hi + 1), 60)
    else:
        codes = np.unique(np.append(sample_array(rng.integers(t.lo, t.hi, 300), 60), [t.lo, t.hi]))
    rule = PROFILES[profile].operations[Operation.DEQUANTIZE]
    parameters = [(0.1, 0), (0.0237, 3), (1e-3, t.lo), *((each, 3) for each in ODD_SCALES)]
    if rule.zero_points is ZeroPointRange.INT32:
        # Beyond 2^24 integers and their f32 differ, and near 2^31 differences wrap.
        wide = ((1 << 24) + 1, -(1 << 24) - 3, (1 << 25) + 3, (1 << 31) - 1, -(1 << 31))
        parameters += [(scale, z) for scale in (0.1, 0.9999999403953552) for z in wide]
    for scale, wanted in parameters:
        fitting = wanted if rule.zero_points is ZeroPointRange.INT32 else zero_point_for(wanted, t)
        z = 0 if storage in rule.symmetric else fitting
        text = f"tensor<{codes.size}x!quant.uniform<{storage}:{expressed}, {scale:.17e}:{z}>>"
        plan = plan_dequantize(tensor(text), None, profile)
        target_array = np.empty(codes.size, plan.output_dtype)
        plan.run(codes.astype(plan.input_dtype), target_array)
        expected = [profile_oracle.dequantize(profile, int(q), scale, z, t) for q in codes]
        assert spelled(real_values(target_array, expressed)) == spelled(expected)


BLOCKS = [
    ((2, 50), {1: 32}, "onnx"),
    ((2, 64), {0: 1, 1: 32}, "mlir"),
    ((6, 5), {0: 3, 1: 1}, "mlir"),
    ((7, 5), {0: 3, 1: 1}, "onnx"),
    ((4, 6), {0: 2, 1: 3}, "torch_decomposed"),
    ((2, 3, 40), {0: 1, 1: 1, 2: 8}, "mlir"),
    ((4, 3, 6), {0: 2, 1: 1, 2: 2}, "mlir"),
    ((4, 6, 2, 3), {1: 2}, "mlir"),
    ((4, 1, 9), {0: 2, 2: 3}, "onnx_reference"),
    ((3, 4), {}, "mlir"),
    ((128, 6), {0: 32, 1: 1}, "onnx"),
    ((3, 5), {0: 1, 1: 2}, "onnx"),
    ((3, 7), {0: 1, 1: 9}, "onnx"),
    ((5, 8), {0: 1, 1: 3}, "onnx"),
    ((3, 5), {0: 1, 1: 1}, "onnx"),
    ((9, 3, 5), {0: 2}, "onnx"),
]


@pytest.mark.parametrize(("shape", "blocks", "profile"), BLOCKS)
@pytest.mark.parametrize("storage", ["i4", "i8", "i32"])
def test_blocks_in_any_pieces(shape: tuple[int, ...], blocks: dict[int, int], profile: str, storage: str) -> None:
    """Blocks along any axes, short last blocks where the profile has them, cut anywhere: element by element."""
    counts = [-(-size // blocks.get(axis, size)) for axis, size in enumerate(shape)]
    rng = np.random.default_rng(13)
    scales = np.round(rng.uniform(0.05, 0.5, counts), 3).astype(np.float32)
    zero_points = rng.integers(-2, 3, counts)
    symmetric = storage in PROFILES[profile].operations[Operation.DEQUANTIZE].symmetric
    zero_points = np.zeros_like(zero_points) if symmetric else zero_points

    def nested(axis: int, index: tuple[int, ...]) -> str:
        if axis == len(counts):
            return f"{float(scales[index]):.17e}:{zero_points[index]}"
        return "{" + ", ".join(nested(axis + 1, (*index, i)) for i in range(counts[axis])) + "}"

    listed = ", ".join(f"{axis}:{size}" for axis, size in blocks.items())
    output = parse_type(f"!quant.uniform<{storage}:f32:{{{listed}}}, {nested(0, ())}>")
    dimensions = "x".join(map(str, shape))
    plan = plan_quantize(tensor(f"tensor<{dimensions}xf32>"), output, profile)
    x = (rng.integers(-60, 60, prod(shape)) / 8).astype(np.float32) * np.float32(0.25)
    if profile != "mlir":
        odd = rng.random(x.size) < 0.4
        x[odd] = rng.choice([np.nan, np.inf, -np.inf, -1e30, 1e10], x.size)[odd]
    sizes = [blocks.get(axis, size) for axis, size in enumerate(shape)]
    along = max((axis for axis, size in enumerate(sizes) if size > 1), default=len(shape) - 1)
    outer = prod(shape[along + 1 :]) > 1
    granularity = "sub_channel_outer" if outer else "sub_channel"
    where = [
        tuple(i // blocks.get(axis, shape[axis]) for axis, i in enumerate(index))
        for index in itertools.product(*(range(size) for size in shape))
    ]
    if profile != "mlir":
        for number in range(0, x.size, 7):
            # Exactly -2^31 steps, which fit int32; with a negative zero point the sum does not.
            x[number] = scales[where[number]] * np.float32(-(2.0**31))
    oracle = profile_oracle.QUANTIZE[profile]
    expected = []
    for number, (value, place) in enumerate(zip(x, where, strict=True)):
        alone = number ^ 1 >= x.size or where[number ^ 1] != place
        t = target(storage, "f32", granularity, alone=alone)
        expected.append(oracle(float(value), float(scales[place]), int(zero_points[place]), t))
    if None not in expected:
        compare(plan, x, expected)
        for piece in (1, 7, 33):
            stored, tally = np.empty(x.size, plan.output_dtype), plan.new_counts()
            for start in range(0, x.size, piece):
                plan.step(x[start : start + piece], stored[start : start + piece], start, tally)
            assert stored.tolist() == [each.value for each in expected if each is not None]
    q = rng.integers(-7, 8, x.size).astype(plan.output_dtype)
    back = plan_dequantize(plan.output_type, None, profile)
    for piece in (x.size, 5):
        real = np.empty(x.size, np.float32)
        for start in range(0, x.size, piece):
            back.step(q[start : start + piece], real[start : start + piece], start, back.new_counts())
        assert real.tolist() == [
            profile_oracle.dequantize(profile, int(v), float(scales[w]), int(zero_points[w]), t)
            for v, w in zip(q, where, strict=True)
        ]


@pytest.mark.parametrize("profile", ["torch", "torch_2_14", "onednn", "torch_decomposed", "onnx_reference", "mlir"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 40), 0), ((5, 3), 1), ((2, 3, 4), 1)])
def test_per_axis_of_the_general_kernels(profile: str, shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(14)
    count = shape[axis]
    scales = np.round(rng.uniform(0.05, 0.5, count), 3).astype(np.float32)
    listed = ", ".join(f"{float(s):.17e}:{i - 1}" for i, s in enumerate(scales))
    plan = plan_quantize(
        tensor(f"tensor<{'x'.join(map(str, shape))}xf32>"),
        parse_type(f"!quant.uniform<i8:f32:{axis}, {{{listed}}}>"),
        profile,
    )
    x = rng.normal(0, 2, prod(shape)).astype(np.float32)
    x[:1] = np.nan if profile != "mlir" else 0
    channel = np.broadcast_to(np.arange(count).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
    t = target("i8", "f32", "per_axis")
    oracle = profile_oracle.QUANTIZE[profile]
    compare(
        plan, x, [oracle(float(v), float(scales[c]), int(c) - 1, t) for v, c in zip(x, channel.ravel(), strict=True)]
    )
