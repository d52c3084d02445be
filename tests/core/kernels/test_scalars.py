"""Pieces of kernels on scalars and lanes: fixed point, fused products, reciprocals, signatures."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba import types
from numpy.typing import NDArray

from requant.convert.quantize import plan_quantize
from requant.kernels.jit.jit import Kernel, intrinsic, kernel
from requant.kernels.jit.signature import F32, I64, U8, Bool, In, Out, Real, signature_of
from requant.kernels.scalar.multiply_add import _by_rounding_to_odd
from requant.kernels.scalar.reciprocal import reciprocals_agree
from requant.kernels.simd import narrow, widen
from requant.kernels.simd.fixed_point import (
    high_multiply,
    multiply_double_rounding,
    multiply_double_rounding_up,
    rounding_divide_by_power_of_two,
    rounding_shift_away,
    rounding_shift_right,
    wrap_int32,
)
from requant.kernels.simd.memory import load, store
from requant.kernels.simd.vector import LANES
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from tests.oracles import quantization as oracle
from tests.support.cases import EXHAUSTIVE
from tests.support.float_samples import SPECIAL, neighbours, patterns
from tests.support.lanes import of_lanes

int32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from((-(2**31), 2**31 - 1, 0, 1, -1)))


@st.composite
def beside_ties(draw: st.DrawFn, most: int = 31) -> tuple[int, int]:
    """A value of 32 bits at or one beside a tie of value / 2^exponent, and the exponent."""
    exponent = draw(st.integers(1, most))
    odd = 2 * draw(st.integers(-(2 ** (31 - exponent)), 2 ** (31 - exponent) - 1)) + 1
    value = odd * 2 ** (exponent - 1) + draw(st.integers(-1, 1))
    return min(max(value, -(2**31)), 2**31 - 1), exponent


def exact_high_multiply(a: int, b: int) -> int:
    return min(oracle.nearest_up(Fraction(a * b, 2**31)), 2**31 - 1)


@given(a=int32, b=int32)
@example(-(2**31), -(2**31))
@example(2**30, 1)
@example(-(2**30), 1)
@example(2**15, -(2**15))
def test_high_multiply(a: int, b: int) -> None:
    assert of_lanes(high_multiply, a, b) == exact_high_multiply(a, b)


@given(beside_ties())
def test_roundings_by_a_power_of_two(drawn: tuple[int, int]) -> None:
    value, exponent = drawn
    exact = Fraction(value, 2**exponent)
    assert of_lanes(rounding_divide_by_power_of_two, value, exponent) == oracle.nearest_away(exact)
    assert of_lanes(rounding_shift_right, value, exponent) == oracle.nearest_up(exact)
    assert of_lanes(rounding_shift_away, value, exponent) == oracle.nearest_away(exact)


@given(value=int32, multiplier=int32, shift=st.integers(1, 62))
@example(-1, 2**30, 32)
@example(2**30, 2**31 - 1, 30)
def test_two_roundings(value: int, multiplier: int, shift: int) -> None:
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    product = exact_high_multiply((value * 2**left + 2**31) % 2**32 - 2**31, multiplier)
    exact = Fraction(product, 2**right)
    assert of_lanes(multiply_double_rounding, value, multiplier, shift) == oracle.nearest_away(exact)
    assert of_lanes(multiply_double_rounding_up, value, multiplier, shift) == oracle.nearest_up(exact)


@given(value=int32, multiplier=st.integers(0, 2**31 - 1), shift=st.integers(1, 61))
@example(1, 2**30, 31)
@example(-1, 2**30, 31)
@example(3, 2**30, 31)
def test_one_rounding(value: int, multiplier: int, shift: int) -> None:
    exact = Fraction(value * multiplier, 2**shift)
    assert of_lanes(rounding_shift_right, value * multiplier, shift) == oracle.nearest_up(exact)


@given(value=st.integers(-(2**40), 2**40))
def test_wrapping(value: int) -> None:
    assert of_lanes(wrap_int32, value) == oracle.wrap32(value)


@intrinsic
def emulated(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    return a(a, b, c), lambda context, builder, signature, arguments: _by_rounding_to_odd(builder, *arguments)


@kernel()
def of_numbers(a: In[F32], b: In[F32], c: In[F32], target: Out[F32]) -> None:
    for i in range(a.size):
        target[i] = emulated(a[i], b[i], c[i])


@kernel()
def of_vectors(a: In[F32], b: In[F32], c: In[F32], target: Out[F32]) -> None:
    for i in range(0, a.size, LANES):
        store(target, i, emulated(load(a, i), load(b, i), load(c, i)))


def nearest_f32(exact: Fraction) -> float:
    """RNE, also to subnormals; overflow gives infinity."""
    magnitude = abs(exact)
    exponent = -126
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    last_place = Fraction(2) ** (exponent - 23)
    rounded = round(magnitude / last_place) * last_place
    value = float("inf") if rounded >= Fraction(2) ** 128 else float(rounded)
    return -value if exact < 0 else value


def operands() -> NDArray[np.float32]:
    """Rows of a, b and c: products a hair beside half of c's last place, which f64 alone rounds to a tie; products near
    subnormals, near the largest f32, and of any bits."""
    random = np.random.default_rng(5)
    count = 3000 if EXHAUSTIVE else 300
    i = random.integers(1, 5, count)
    a = ((1 << 23) + i) * 2.0 ** random.integers(-40, 40, count)
    b = ((1 << 23) - i) * random.choice([-1.0, 1.0], count) * 2.0**-40
    # a * b is just below a power of two, half of the last place of c or a quarter of it.
    half = np.floor(np.log2(np.abs(a * b))) + 1
    c = ((1 << 23) + random.integers(0, 1 << 20, count)) * 2.0 ** (half + random.integers(0, 3, count))
    beside_ties = np.stack([a, b, c * random.choice([-1.0, 1.0], count)])
    wide = random.integers(-(1 << 24), 1 << 24, (6, count))
    tiny = np.stack([wide[0] * 2.0**-80, wide[1] * 2.0**-93, wide[2] * 2.0**-149])
    large = np.stack([wide[3] * 2.0**60, wide[4] * 2.0**20, wide[5] * 2.0**103])
    bits = random.integers(0, 1 << 32, (3, count), np.uint32).view(np.float32)
    any_bits = np.where(np.isfinite(bits), bits, np.float32(0.5))
    cancelling = np.stack([a, b, -(a * b).astype(np.float32)])
    return np.concatenate([beside_ties, tiny, large, any_bits, cancelling], axis=1).astype(np.float32)


@pytest.mark.sample(1)
@pytest.mark.parametrize("run", [of_numbers, of_vectors], ids=["numbers", "vectors"])
def test_it_is_rounded_once(run: Kernel) -> None:
    a, b, c = operands()
    target = np.zeros_like(a)
    whole = a.size - a.size % LANES
    run(a[:whole].copy(), b[:whole].copy(), c[:whole].copy(), target[:whole])
    expected = [
        nearest_f32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a[:whole], b[:whole], c[:whole], strict=True)
    ]
    assert target[:whole].tolist() == expected
    with np.errstate(over="ignore"):
        in_f64 = (a.astype(np.float64) * b + c).astype(np.float32)
    assert np.count_nonzero(in_f64[:whole] != target[:whole]) > (100 if EXHAUSTIVE else 10), (
        "no case that f64 alone rounds twice"
    )


def test_infinities_nan_and_zeros() -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38], np.float32)
    a, b, c = (each.ravel().copy() for each in np.meshgrid(values, values, values))
    target = np.zeros_like(a)
    of_vectors(a, b, c, target)
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64) * b.astype(np.float64) + c).astype(np.float32)
    assert np.array_equal(np.isnan(target), np.isnan(expected))
    numbers = ~np.isnan(expected)
    assert np.array_equal(target[numbers].view(np.uint32), expected[numbers].view(np.uint32))


Array = NDArray[Any]
Source = TypeVar("Source")
Target = TypeVar("Target")


def on_arrays(function: Callable[[Any], Any], source: Any, target: Any) -> Kernel:
    @kernel({Source: source, Target: target})
    def convert(values: In[Source], results: Out[Target]) -> None:
        for i in range(0, values.size, LANES):
            store(results, i, function(load(values, i)))

    return convert


def whole_vectors(values: Array) -> Array:
    return np.resize(values, -(-values.size // LANES) * LANES)


def assert_same_floats(found: Array, expected: Array) -> None:
    """All bits, but those of a NaN's payload."""
    nan = np.isnan(expected)
    integer = f"<u{found.itemsize}"
    assert (found.view(integer)[~nan] == expected.view(integer)[~nan]).all()
    assert np.isnan(found[nan]).all()
    assert (np.signbit(found[nan]) == np.signbit(expected[nan])).all()


def samples() -> Array:
    """Every f16 and bf16, every middle between two of either, and the f32 beside those; and anything else."""
    codes = np.arange(1 << 16, dtype="<u2")
    with np.errstate(invalid="ignore", over="ignore"):
        halves = codes.view("<f2").astype("<f4")
        steps = np.unique(np.append(halves[np.isfinite(halves)], [65536.0, -65536.0])).astype("<f4")
        near = neighbours(np.concatenate([steps, (steps[:-1] + steps[1:]) / 2]))
    brains = np.concatenate([codes.astype("<u4") << 16 | low for low in (0x7FFF, 0x8000, 0x8001)]).view("<f4")
    return np.concatenate([halves, near, brains, SPECIAL, patterns(100_000, np.random.default_rng(3))])


@pytest.mark.parametrize("function", ["f16_of_f32", "_f16_of_f32_by_arithmetic", "bf16_of_f32"])
def test_narrowing(function: str) -> None:
    values = whole_vectors(samples())
    to_bf16 = function == "bf16_of_f32"
    if to_bf16:
        # A NaN with nothing in its upper half is none in bf16; none comes out of arithmetic.
        values = values[~(np.isnan(values) & (values.view("<u4") & 0x7FFFFF < 0x400000))]
        values = values[: values.size // LANES * LANES]
    found = np.empty(values.size, np.int16)
    on_arrays(getattr(narrow, function), types.float32, types.int16)(values, found)
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.bfloat16 if to_bf16 else np.float16)
    if to_bf16:
        assert_same_floats(found.view(ml_dtypes.bfloat16), expected)
        return
    bits, nan = values.view("<u4"), np.isnan(values)
    quiet = (bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x1FF).astype("<u2")
    assert np.count_nonzero(nan & (bits & 0x400000 == 0)) > 100, "no signalling NaN"
    assert np.array_equal(found.view("<u2"), np.where(nan, quiet, expected.view("<u2")))


@pytest.mark.parametrize("function", ["f32_of_f16", "_f32_of_f16_by_arithmetic", "f32_of_bf16"])
def test_widening(function: str) -> None:
    codes = np.arange(1 << 16, dtype="<u2")
    found = np.empty(codes.size, np.float32)
    kind = types.uint16 if function == "f32_of_bf16" else types.int16
    on_arrays(getattr(widen, function), kind, types.float32)(codes, found)
    if function == "f32_of_bf16":
        assert np.array_equal(found.view("<u4"), codes.astype("<u4") << 16)
        return
    expected = codes.view("<f2").astype("<f4").view("<u4")
    is_nan = codes & 0x7FFF > 0x7C00
    assert np.array_equal(found.view("<u4"), np.where(is_nan, expected | 0x400000, expected))


SIGNIFICANDS = (np.arange(1 << 23, dtype=np.uint32) | np.uint32(0x3F800000)).view(np.float32)
BESIDE_TIES = 4
# For these, found by search, one integer or more would differ: at zero point 0, at 3 if it is added first, and where
# ties go away from zero.
REFUSED, REFUSED_BEFORE = float.fromhex("0x1.f6e87ep-4"), float.fromhex("0x1.f0eafep-1")
REFUSED_AWAY, REFUSED_EVEN = float.fromhex("0x1.bc7b7ep-1"), float.fromhex("0x1.f9acfep-2")
# For this one the two quotients of one significand differ in the last place, and no integer of 16 bits does.
DIFFERING, SIGNIFICAND = float(np.uint32(1055642063).view(np.float32)), 4940525


def agree(scale: float, zero_point: int, before: bool, away: bool = False) -> bool:
    scales, found = np.array([scale], np.float32), np.empty((2, 1), np.float32)
    taken: bool = reciprocals_agree(scales, np.array([zero_point], np.float32), before, away, found[0], found[1])
    return taken


def quantized(x: np.ndarray, storage: str, scale: float, zero_point: int, profile: str) -> np.ndarray:
    real, target_type = parse_type(f"tensor<{x.size}xf32>"), f"!quant.uniform<{storage}:f32, {scale:.17e}:{zero_point}>"
    assert isinstance(real, TensorType)
    plan = plan_quantize(real, parse_type(target_type), profile)
    target = np.empty(x.size, plan.output_dtype)
    plan.run(x, target)
    return target


def divided(x: np.ndarray, scale: float, zero_point: int, before: bool) -> np.ndarray:
    """What both profiles give within the bounds of the storage, which the caller must not leave."""
    quotient = x / np.float32(scale)
    steps = np.rint(quotient + np.float32(zero_point)) if before else np.rint(quotient) + np.float32(zero_point)
    return steps.astype(np.int64)


def divided_away(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """What LiteRT gives: ties away from zero. The sum is exact in f64."""
    quotient = (x / np.float32(scale)).astype(np.float64)
    return (np.copysign(np.floor(np.abs(quotient) + 0.5), quotient) + zero_point).astype(np.int64)


def significands(exponent: int) -> np.ndarray:
    """Every significand. In a sample those whose products with 2^exponent are at and beside ties, and a few others."""
    first = int(2.0**exponent)
    ties = (np.arange(first, max(2 * first, 1)) + 0.5) / 2.0**exponent
    beside = ((ties - 1) * 2.0**23).astype(np.int64)[:, None] + np.arange(-BESIDE_TIES, BESIDE_TIES + 1)
    others = np.arange(0, SIGNIFICANDS.size, 1009)
    return SIGNIFICANDS if EXHAUSTIVE else SIGNIFICANDS[np.union1d(np.clip(beside, 0, SIGNIFICANDS.size - 1), others)]


@pytest.mark.parametrize("scale", [0.1, 1 / 255, 0.0237, DIFFERING, REFUSED, REFUSED_BEFORE, REFUSED_AWAY])
@pytest.mark.parametrize("exponent", [-1, 0, 6, 14])
@pytest.mark.parametrize("sign", [1, -1])
def test_every_significand(scale: float, exponent: int, sign: int) -> None:
    x = significands(exponent) * np.float32(sign * scale * 2.0**exponent)
    assert np.array_equal(quantized(x, "i16", scale, 3, "onnx"), divided(x, scale, 3, before=False).clip(-32768, 32767))
    assert np.array_equal(
        quantized(x, "i16", scale, 3, "stablehlo"), divided(x, scale, 3, before=True).clip(-32768, 32767)
    )
    assert np.array_equal(quantized(x, "i8", scale, 3, "litert"), divided_away(x, scale, 3).clip(-128, 127))


def test_quotients_of_32_bits_are_divided() -> None:
    """The integers of 32 bits differ where those of 16 do not, so the proof says nothing of them."""
    assert agree(DIFFERING, 0, before=False)
    x = SIGNIFICANDS[SIGNIFICAND : SIGNIFICAND + 1] * np.float32(2.0) ** np.arange(18, 30, dtype=np.float32)
    for profile, before in (("onnx", False), ("stablehlo", True)):
        assert np.array_equal(quantized(x, "i32", DIFFERING, 0, profile), divided(x, DIFFERING, 0, before)), profile


def test_what_the_proof_refuses() -> None:
    assert not agree(REFUSED, 0, before=False)
    assert not agree(REFUSED_BEFORE, 3, before=True)
    assert not agree(REFUSED_AWAY, 0, before=False, away=True)
    assert agree(REFUSED_AWAY, 0, before=False)
    assert not agree(REFUSED_EVEN, 0, before=False)
    assert agree(REFUSED_EVEN, 0, before=False, away=True)
    assert not agree(2.0**-70, 0, before=False)
    assert not agree(float("nan"), 0, before=False)


def test_nearly_all_scales_are_taken() -> None:
    rng = np.random.default_rng(8)
    taken = sum(agree(scale, 0, before=False) for scale in rng.uniform(1e-3, 1, 20_000))
    assert 19_960 <= taken < 20_000


def scale(source: In[Real], factor: F32, target: Out[Real], counts: Out[I64], counting: Bool) -> None:
    raise NotImplementedError


def found(source: In[U8], start: I64) -> I64:
    raise NotImplementedError


def array(element: types.Type, readonly: bool) -> types.Array:
    return types.Array(element, 1, "C", readonly=readonly)


@pytest.mark.parametrize("real", [types.float32, types.float64])
def test_a_type_variable_is_what_it_is_bound_to(real: types.Type) -> None:
    expected = (array(real, True), types.float32, array(real, False), array(types.int64, False), types.boolean)
    assert signature_of(scale, {Real: real}) == types.void(*expected)


def test_a_result_has_its_type() -> None:
    assert signature_of(found, {}) == types.int64(array(types.uint8, True), types.int64)


def test_a_type_variable_has_to_be_bound() -> None:
    with pytest.raises(KeyError):
        signature_of(scale, {})
