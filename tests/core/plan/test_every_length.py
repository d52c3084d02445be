"""Bits and reports depend neither on how many elements there are nor on where each of them stands.

Kernels take elements in groups, and what is left of them with a mask; what is rare they first pass over, and look for
where the extremes of a stretch betray it. So every length up to a group of 64 and what follows it is converted, with
one special number at each position among ordinary ones, which do not betray it. The result is compared with that of the
same elements one at a time, and these with the oracle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES, FakeQuantizePlan, plan_fake_quantize
from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.quantize_plans import ROUNDINGS
from requant.convert.requantize import plan_requantize
from requant.errors import RequantError
from requant.integer.add import AddPlan, plan_add
from requant.mlir import parse_type
from requant.plan.plan import Plan
from requant.profiles import PROFILES, Operation, Rounding
from requant.schemes import SCHEMES
from tests.oracles import casts as cast_oracle
from tests.oracles import profiles as profile_oracle
from tests.oracles import schemes as scheme_oracle
from tests.oracles.profiles import Target, target
from tests.support.cases import EXHAUSTIVE, sample, sample_each
from tests.support.comparison import compared
from tests.support.drawn_types import FLOATS, as_expressed, tensor

Array = NDArray[Any]
LENGTHS = tuple(range(68)) if EXHAUSTIVE else (1, 16, 35)
# Of these every special number stands first and last.
TELLING = (1, 16, 17, 67) if EXHAUSTIVE else (16,)
LAYOUTS = ("per_tensor", "cycle", "rows")
STORAGES = ("i2", "u2", "i4", "u4", "i7", "i8", "u8", "i12", "i16", "u16", "i24", "i31", "i32", "u32")
# Powers of two, so that quotients are what they are meant to be. With that of f16 they reach 2^31.
SCALE = {"f16": 2.0**-16, "bf16": 0.5, "f32": 0.5, "f64": 0.5}
ORACLES = {**profile_oracle.QUANTIZE, "litert_single_rounding": profile_oracle.litert}


@dataclass(frozen=True)
class Conversion:
    """What converts the elements of a tensor, any piece of them from an index on, and adds to a tally."""

    elements: int
    dtype: np.dtype[Any]
    step: Callable[[Array, Array, int, Array], Any]
    tally: int = 4

    @classmethod
    def of(cls, plan: Plan) -> Conversion:
        return cls(plan.elements, plan.output_dtype, plan.step, plan.new_counts().size)

    def run(self, values: Array, start: int = 0) -> tuple[list[int], list[int]]:
        """The bits of each element, and the tally: saturated low and high, NaN, the first that is undefined or -1."""
        stored, counts = np.zeros(values.size, self.dtype), np.zeros(self.tally, np.int64)
        counts[3:4] = -1
        self.step(values, stored, start, counts)
        return stored.view(f"u{self.dtype.itemsize}").tolist(), counts[:4].tolist()


def halved(turn: int) -> tuple[int, ...]:
    """The even or the odd lengths, by turns."""
    return LENGTHS[turn % 2 :: 2] if EXHAUSTIVE else LENGTHS


def check(conversion: Conversion, ordinary: Array, specials: Array, turn: int = 0) -> None:
    """Convert with a special number at each position: of telling lengths first and last each of them, elsewhere two,
    another two each time.
    """
    count = conversion.elements
    ordinary = np.resize(ordinary, count)
    plain = [conversion.run(ordinary[at : at + 1], at) for at in range(count)]
    compare(conversion, ordinary, plain, "ordinary numbers")
    for at in sample(range(count), 12):
        some = {(turn + 2 * at + step) % specials.size for step in (0, 1)}
        for number in range(specials.size) if at in (0, count - 1) and count in TELLING else some:
            values, alone = ordinary.copy(), [*plain]
            values[at] = specials[number]
            alone[at] = conversion.run(values[at : at + 1], at)
            compare(conversion, values, alone, f"{specials[number]} at {at} of {count}")


def compare(conversion: Conversion, values: Array, alone: Sequence[tuple[list[int], list[int]]], what: str) -> None:
    stored, counts = conversion.run(values)
    undefined = [tally[3] for _, tally in alone if tally[3] >= 0]
    assert counts[3] == min(undefined, default=-1), what
    if not undefined:
        one_by_one = [bits for (bits,), _ in alone]
        wrong = [at for at, bits in enumerate(one_by_one) if bits != stored[at]]
        assert not wrong, f"{what}: {[(at, hex(stored[at]), hex(one_by_one[at])) for at in wrong[:3]]}"
        assert counts[:3] == [sum(tally[kind] for _, tally in alone) for kind in range(3)], what


def quotients(t: Target, z: int) -> list[float]:
    """At and beside the bounds of the type and of int32, at what kernels take for far away, and whatever is odd."""
    beside = [bound - z + step for bound in (t.lo, t.hi) for step in (-1, -0.5, 0, 0.5, 1)]
    int32 = [sign * 2.0**31 * (1 + ulps * 2.0**-23) for sign in (-1, 1) for ulps in (-0.5, 0, 1, 2, 8, 0.5)]
    wrapped = [sign * 2.0**31 + shift for sign in (-1, 1) for shift in (-z, z)]
    far = [sign * 2.0**power for sign in (-1, 1) for power in (14, 15, 16, 21, 22, 24, 30, 32, 40, 50, 52, 63, 100)]
    odd = [0.0, -0.0, 0.5, -0.5, 1.5, 3e9, -3e9, 20000, -20000, 1e-44, -1e-44, np.inf, -np.inf, np.nan, -np.nan]
    return [float(each) for each in (*beside, *int32, *wrapped, *far, *odd)]


def specials(t: Target, z: int) -> Array:
    with np.errstate(all="ignore"):
        return np.unique(as_expressed(np.array(quotients(t, z)) * SCALE[t.expressed], t.expressed))


def ordinary_quotients(t: Target, z: int) -> Array:
    """Integers within the bounds, near 0 if they can be."""
    lowest = min(max(t.lo - z, -3), t.hi - z)
    return lowest + np.arange(67) % (min(t.hi - z - lowest, 6) + 1)


def zero_points(t: Target) -> list[int]:
    """Those of 32 bits also shift numbers beyond int32 to within the bounds, a little and far."""
    wanted = (0, t.lo, t.hi, -5, -1000, 1000) if t.type_hi > 1 << 30 else (0, t.lo, t.hi, 3)
    return [*dict.fromkeys(min(max(z, t.type_lo), t.type_hi) for z in wanted)]


def uniform(t: Target, z: int, count: int, layout: str) -> tuple[str, str]:
    """A shape and a type. The parameters are those of all, of every other element, or of the first of two rows."""
    scale, one = SCALE[t.expressed], min(max(1, t.type_lo), t.type_hi)
    first, second = f"{scale!r}:{z}", f"{2 * scale!r}:{one}"
    head = f"!quant.uniform<{t.storage}<{t.lo}:{t.hi}>:{t.expressed}"
    if layout == "per_tensor" or count == 0:
        return f"{count}", f"{head}, {first}>"
    if layout == "cycle":
        return f"1x{count}", f"{head}:1, {{{', '.join((first, second)[at % 2] for at in range(count))}}}>"
    return f"2x{count}", f"{head}:0, {{{first}, {second}}}>"


def narrowed(t: Target) -> Target:
    """Bounds one within those of the storage."""
    return Target(t.storage, t.lo + 1, t.hi - 1, t.type_lo, t.type_hi, t.expressed)


def quantizing() -> list[tuple[str, str, str]]:
    return [
        (name, expressed, storage)
        for name, profile in PROFILES.items()
        if Operation.QUANTIZE in profile.operations and name != "quantile"
        for expressed in profile.operations[Operation.QUANTIZE].expressed
        for storage in STORAGES
        if storage in profile.operations[Operation.QUANTIZE].storages
    ]


QUANTIZING = sample_each(quantizing(), lambda each: (*each[:2], each[2] == "i32"), 1)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("profile", "expressed", "storage"), QUANTIZING)
def test_quantize(profile: str, expressed: str, storage: str) -> None:
    done, turns = 0, Counter[str]()
    whole = target(storage, expressed)
    for t in (whole, narrowed(whole)) if whole.hi - whole.lo > 3 else (whole,):
        for z, layout in zip(zero_points(t), cycle(LAYOUTS), strict=False):
            # Even and odd lengths by turns: each layout has both.
            for count in halved(turns[layout]):
                shape, element = uniform(t, z, count, layout)
                try:
                    plan = plan_quantize(tensor(f"tensor<{shape}x{expressed}>"), parse_type(element), profile)
                except RequantError:
                    break
                ordinary = as_expressed(ordinary_quotients(t, z) * SCALE[expressed], expressed)
                check(Conversion.of(plan), ordinary, specials(t, z), count)
                done += 1
            else:
                turns[layout] += 1
            check_quantize(profile, t, z)
    assert done


def check_quantize(profile: str, t: Target, z: int) -> None:
    """Compare each special number with the oracle. There are two of each, so that none is alone in its byte."""
    values = np.repeat(specials(t, z), 2)
    shape, element = uniform(t, z, values.size, "per_tensor")
    try:
        plan = plan_quantize(tensor(f"tensor<{shape}x{t.expressed}>"), parse_type(element), profile)
    except RequantError:
        return
    conversion = Conversion.of(plan)
    reals = values.view("<u2").astype("<u4") << 16 if t.expressed == "bf16" else values
    reals = reals.view("<f4") if t.expressed == "bf16" else reals
    for at in range(0, values.size, 2):
        (bits,), tally = conversion.run(values[at : at + 1], at)
        expected = ORACLES[profile](float(reals[at]), SCALE[t.expressed], z, t)
        if expected is None:
            assert tally[3] == at
            continue
        wanted = expected.value % (1 << 8 * plan.output_dtype.itemsize)
        assert (bits, tally[:3]) == (wanted, [expected.low, expected.high, expected.nan]), float(reals[at])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("profile", "storage"), sample([("onnx", "i8"), ("litert", "i32"), ("stablehlo", "i8")], 2))
def test_quantize_by_any_rounding(rounding: Rounding, profile: str, storage: str) -> None:
    t = target(storage)
    for z in (0, -5):
        for count in LENGTHS:
            shape, element = uniform(t, z, count, "per_tensor")
            given = tensor(f"tensor<{shape}xf32>")
            plan = plan_quantize(given, parse_type(element), profile, rounding=rounding, seed=7)
            ordinary = as_expressed(ordinary_quotients(t, z) * SCALE["f32"], "f32")
            check(Conversion.of(plan), ordinary, specials(t, z), count)


CASTS = [
    (profile, source, output)
    for profile, outputs in cast_oracle.TARGETS.items()
    for source in cast_oracle.SOURCES[profile]
    for output in outputs
    if source != output
]


def cast_specials(source: str) -> Array:
    """Powers of two and what is halfway to the next, which are at the bounds of one format or another; and NaNs."""
    powers = [2.0**power for power in (-151, -150, -134, -128, -127, -126, -25, -24, -17, -16, -10, -9, -7, -3, -1)]
    large = [0.0, 0.75, 6, 7, 7.5, 15, 15.5, 28, 30, 240, 248, 448, 464, 480, 496, 57344, 61440, 65504, 65520, 65536]
    huge = [2.0**127, 1.5 * 2.0**127, 3.38e38, 3.3961775292304957e38, 1e39, np.inf, np.nan]
    values = np.array([*powers, *large, *huge])
    with np.errstate(all="ignore"):
        return np.unique(as_expressed(np.concatenate([values, -values]), source))


CASTING = sample_each(CASTS, lambda each: each[1:], 1)


@pytest.mark.parametrize(("profile", "source", "output"), CASTING)
def test_cast(profile: str, source: str, output: str) -> None:
    chosen = (None, False) if profile in cast_oracle.CHOOSE_SATURATION and output.startswith("f8") else (None,)
    # Profiles have kernels in common.
    profiles = [name for name, outputs in cast_oracle.TARGETS.items() if output in outputs]
    for turn, saturate in enumerate(chosen, profiles.index(profile)):
        for count in halved(turn):
            given = tensor(f"tensor<{count}x{source}>")
            plan = plan_quantize(given, parse_type(output), profile, saturate=saturate)
            check(Conversion.of(plan), as_expressed(np.array([1.0, -0.5]), source), cast_specials(source), count)


@pytest.mark.parametrize("storage", FLOATS)
@pytest.mark.parametrize("profile", ["onnx", "onnx_reference", "torch_decomposed", "stablehlo"])
def test_small_floats_by_a_scale(profile: str, storage: str) -> None:
    for count in LENGTHS:
        element = f"!quant.uniform<{storage}:f32, 0.5>"
        try:
            plan = plan_quantize(tensor(f"tensor<{count}xf32>"), parse_type(element), profile)
        except RequantError:
            return
        check(Conversion.of(plan), np.array([1.0, -0.5], "<f4"), cast_specials("f32"), count)
        back = plan_dequantize(tensor(f"tensor<{count}x{element}>"), None, profile)
        codes = np.arange(1 << int(storage[1]), dtype=back.input_dtype)
        check(Conversion.of(back), codes[1:2], codes, count)


@pytest.mark.parametrize("source", sorted({*FLOATS, "f16", "bf16", "f8E8M0FNU"}))
@pytest.mark.parametrize("output", ["f32", "f64", "f16"])
def test_widening_cast(source: str, output: str) -> None:
    if source == output or (source, output) == ("bf16", "f16"):
        return
    for count in LENGTHS:
        plan = plan_dequantize(tensor(f"tensor<{count}x{source}>"), parse_type(output), "ml_dtypes")
        wide = source in ("f16", "bf16")
        codes = np.arange(0, 1 << 16 if wide else 1 << int(source[1]), 1311 if wide else 1).astype(
            f"u{plan.input_dtype.itemsize}"
        )
        check(Conversion.of(plan), codes[1:2].view(plan.input_dtype), codes.view(plan.input_dtype), count)


def integers_at(t: Target, *points: float) -> Array:
    """Stored integers at and beside the bounds, 0, and what else is asked for."""
    near = [round(point) + step for point in (t.lo, t.hi, 0, *points) for step in range(-2, 3)]
    return np.array(sorted({each for each in near if t.lo <= each <= t.hi}), np.int64)


def dequantizing() -> list[tuple[str, str, str]]:
    return [
        (name, expressed, storage)
        for name, profile in PROFILES.items()
        if Operation.DEQUANTIZE in profile.operations and name != "quantile"
        for expressed in profile.operations[Operation.DEQUANTIZE].expressed
        for storage in STORAGES
        if storage in profile.operations[Operation.DEQUANTIZE].storages
    ]


DEQUANTIZING = sample_each(dequantizing(), lambda each: each[:2], 2)


@pytest.mark.parametrize(("profile", "expressed", "storage"), DEQUANTIZING)
def test_dequantize(profile: str, expressed: str, storage: str) -> None:
    t, done = target(storage, expressed), 0
    # Storages and profiles have kernels in common.
    first = [*PROFILES].index(profile) + STORAGES.index(storage)
    for turn, (z, layout) in enumerate(zip(zero_points(t), cycle(LAYOUTS), strict=False), first):
        for count in halved(turn):
            shape, element = uniform(t, z, count, layout)
            try:
                plan = plan_dequantize(tensor(f"tensor<{shape}x{element}>"), None, profile)
            except RequantError:
                break
            stored = integers_at(t, z, 2.0**24, -(2.0**24)).astype(plan.input_dtype)
            check(Conversion.of(plan), stored[:1], stored, count)
            done += 1
            if count in (1, 2) and layout == "per_tensor":
                check_dequantize(profile, plan, stored, t, z)
    assert done


def check_dequantize(profile: str, plan: Plan, stored: Array, t: Target, z: int) -> None:
    for q in stored:
        (bits,), _ = Conversion.of(plan).run(np.array([q]))
        real = profile_oracle.dequantize(profile, int(q), SCALE[t.expressed], z, t)
        expected = as_expressed(np.array([real]), t.expressed).view(f"u{plan.output_dtype.itemsize}")
        # Which NaN the difference of two infinities is, an f16 does not say.
        sign = 1 << 8 * plan.output_dtype.itemsize - 1
        assert bits == expected[0] or (math.isnan(real) and bits % sign == expected[0] % sign), q


PAIRS = [
    (source, output)
    for source in ("i8", "u8", "i16", "u16", "i32")
    for output in ("i8", "u8", "i16", "u16", "i32")
] + [("i4", "i8"), ("i8", "i4"), ("i8", "u4")]  # fmt: skip


REQUANTIZING = sample_each([(scheme, *pair) for scheme in SCHEMES for pair in PAIRS], lambda each: each[0], 2)


@pytest.mark.parametrize(
    ("scheme", "source", "output"),
    REQUANTIZING,
)
def test_requantize(scheme: str, source: str, output: str) -> None:
    a, b, done = target(source), target(output), 0
    points = ((0, 0), (a.lo if a.hi < 1 << 20 else 0, b.hi if b.hi < 1 << 20 else 0), (3, 5))
    for factor, (z_in, z_out), layout in zip((0.25, 0.75, 200.0), points, LAYOUTS, strict=True):
        for count in LENGTHS:
            shape, element = _integers(a, z_in, 1.0, count, layout)
            _, result = _integers(b, z_out, 1 / factor, count, layout)
            try:
                plan = plan_requantize(tensor(f"tensor<{shape}x{element}>"), parse_type(result), scheme=scheme)
            except RequantError:
                break
            saturating = [z_in + (bound - z_out) / factor for bound in (b.lo, b.hi)]
            values = integers_at(a, z_in, *saturating)
            conversion = Conversion.of(plan)
            check(conversion, np.array([z_in], plan.input_dtype), values.astype(plan.input_dtype), count)
            done += 1
            if count == 1:
                check_requantize(conversion, plan, scheme, values, (z_in, z_out), b, factor)
    assert done or scheme.startswith(("tosa", "xnnpack", "cmsis", "ethos"))


def _integers(t: Target, z: int, scale: float, count: int, layout: str) -> tuple[str, str]:
    head, one = f"!quant.uniform<{t.storage}:f32", f"{scale!r}:{z}"
    if layout == "per_tensor" or count == 0:
        return f"{count}", f"{head}, {one}>"
    if layout == "cycle":
        return f"1x{count}", f"{head}:1, {{{', '.join([one] * count)}}}>"
    return f"2x{count}", f"{head}:0, {{{one}, {one}}}>"


def check_requantize(
    conversion: Conversion, plan: Plan, scheme: str, values: Array, zeros: tuple[int, int], b: Target, factor: float
) -> None:
    m, shift = plan.multipliers[0].multiplier, plan.multipliers[0].shift
    beyond = (-(2**200), 2**200)
    for q in values:
        (bits,), tally = conversion.run(np.array([q], plan.input_dtype))
        total = scheme_oracle.requantized(scheme, int(q), zeros[0], m, shift, zeros[1], beyond, factor)
        if total is None:
            assert tally[3] == 0
            continue
        stored = min(max(total, b.lo), b.hi) % (1 << 8 * plan.output_dtype.itemsize)
        assert (bits, tally[:3]) == (stored, [total < b.lo, total > b.hi, 0]), q


def _add_step(plan: AddPlan, rhs: Array, values: Array, stored: Array, start: int, counts: Array) -> None:
    plan.arithmetic.step(values, rhs[: values.size], stored, start, counts)


@pytest.mark.parametrize("profile", [name for name, each in PROFILES.items() if each.addition])
def test_add(profile: str) -> None:
    done = 0
    for storage in ("i8", "u8", "i16"):
        t = target(storage)
        for z in dict.fromkeys((0, t.lo if t.hi < 256 else 0)):
            for count in LENGTHS:
                one = f"tensor<{count}x!quant.uniform<{storage}:f32, 0.5:{z}>>"
                try:
                    total = parse_type(f"!quant.uniform<{storage}:f32, 0.4:{z}>")
                    plan = plan_add(tensor(one), tensor(one), total, profile)
                except RequantError:
                    break
                for other in (z, t.lo, t.hi):
                    rhs = np.full(count, other, plan.output_dtype)

                    step = partial(_add_step, plan, rhs)
                    conversion = Conversion(count, plan.output_dtype, step, plan.arithmetic.new_counts().size)
                    ordinary = np.array([z], plan.output_dtype)
                    check(conversion, ordinary, integers_at(t, z, 2 * z - other).astype(plan.output_dtype), count)
                done += 1
    assert done


def _fake_quantize_step(plan: FakeQuantizePlan, values: Array, stored: Array, start: int, counts: Array) -> None:
    plan.step(values, stored, start)


@pytest.mark.parametrize("scheme", FAKE_QUANTIZE_SCHEMES)
def test_fake_quantize(scheme: str) -> None:
    odd = np.array([-1.0, 2.0, -1.1, 2.1, -np.inf, np.inf, np.nan, 0.0, -0.0, 1e-44, 1e38, 0.5, 1.9999999], "<f4")
    for count in LENGTHS:
        plan = plan_fake_quantize(tensor(f"tensor<{count}xf32>"), np.array([-1.0]), np.array([2.0]), scheme=scheme)
        step = partial(_fake_quantize_step, plan)
        check(Conversion(count, np.dtype("<f4"), step), np.array([0.25, -0.75], "<f4"), odd, count)


@pytest.mark.parametrize("element", ["i8", "ui8", "i32", "i64", "f16", "f32", "f64", "!quant.uniform<u8:f32, 1.0:7>"])
def test_compare(element: str) -> None:
    """Mismatches, and how far apart they are, of one element that is not alike."""
    low, high = (0, 200) if "u" in element.replace("quant", "") else (-100, 100)
    odd = [np.nan, np.inf, -np.inf, -0.0] if element.startswith("f") else []
    for count in [each for each in LENGTHS if each]:
        a = np.full(count, 1)
        for at in sample(range(count), 6):
            for value in (low, high, 2, *odd):
                b = a.astype(np.float64)
                b[at] = value
                together, alone = compared(element, element, a, b), compared(element, element, [1], [value])
                assert together.mismatches == alone.mismatches == 1
                assert together.bit_mismatches == alone.bit_mismatches
                assert [each.index for each in together.first] == [at]
                found, wanted = (
                    {(bucket.low, bucket.high) for bucket in each.histogram.buckets if bucket.count and bucket.low}
                    for each in (together, alone)
                )
                assert found == wanted
                assert together.histogram.undefined == alone.histogram.undefined
