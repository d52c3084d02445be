"""Which parameter belongs to which element: every layout, from every element on, in rows of every length."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.float_encoding import Encoder, encoder
from requant.convert.small_floats import SMALL_FLOATS, decoder, has_decoder
from requant.formats.rounding import Rounding
from requant.formats.rules import Overflow, Quotient
from requant.kernels.convert.dequantize.native import DEQUANTIZE
from requant.kernels.convert.quantize.general import QUANTIZE_ANY, Addition
from requant.kernels.convert.quantize.general import Field as Rule
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.integer_lanes import storage_of
from requant.kernels.simd.widen import FloatKind
from requant.plan.channels import channels_of
from requant.profiles import PROFILES
from tests.support.cases import sample

Array = NDArray[Any]
# A shape, and the size of a block along each dimension.
LAYOUTS = [
    ((200,), (200,)),
    ((3, 160), (1, 32)),
    ((4, 96), (4, 32)),
    ((6, 64), (2, 16)),
    ((6, 64), (3, 1)),
    ((2, 5, 64), (1, 1, 16)),
    ((2, 5, 48), (2, 1, 48)),
    ((2, 5, 49), (2, 1, 49)),
    ((2, 5, 17), (1, 1, 17)),
    ((3, 512), (1, 256)),
    ((3, 544), (1, 272)),
    ((5, 40), (5, 1)),
    ((5, 40), (1, 1)),
    ((5, 40), (1, 8)),
    ((2, 3, 70), (2, 3, 1)),
    ((7, 33), (2, 32)),
    ((2, 7, 32), (1, 2, 32)),
    ((9001,), (9001,)),
    ((3, 4128), (1, 32)),
    ((3000, 3), (3000, 1)),
]


def parameters_of(shape: tuple[int, ...], blocks: tuple[int, ...]) -> Array:
    """The index of each element's parameter: row-major over the blocks."""
    counts = [-(-size // block) for size, block in zip(shape, blocks, strict=True)]
    places = np.indices(shape).reshape(len(shape), -1)
    within = [place // block for place, block in zip(places, blocks, strict=True)]
    return np.ravel_multi_index(within, counts)


def pieces_of(size: int) -> list[tuple[int, int]]:
    """Where a piece of a tensor may begin and end."""
    ends = ((0, size), (0, 1), (1, size), (15, 47), (16, size - 1), (33, size), (31, 132), (64, 160), (4090, 8200))
    return [(start, min(stop, size)) for start, stop in ends if start < size]


@pytest.mark.parametrize(
    ("kind", "double"),
    [(FloatKind.F32, False), (FloatKind.F32, True), (FloatKind.F16, False), (FloatKind.BF16, False)],
)
@pytest.mark.parametrize("storage", ["int8", "uint8", "int16", "uint16", "int32"])
def test_dequantize_from_any_element(storage: str, kind: FloatKind, double: bool) -> None:
    dtype = np.dtype(storage)
    target_dtype = np.dtype("<f4" if kind is FloatKind.F32 else "<u2")
    narrow: Any = {FloatKind.F32: np.float32, FloatKind.F16: np.float16, FloatKind.BF16: ml_dtypes.bfloat16}[kind]
    rng = np.random.default_rng(5)
    for shape, blocks in LAYOUTS:
        index, channels = parameters_of(shape, blocks), channels_of(shape, blocks)
        count, size = index.max() + 1, prod(shape)
        scales = (rng.random(count) + 0.5).astype("<f4")
        zero_points = rng.integers(-9, 9, count)
        limits = np.iinfo(dtype)
        source = rng.integers(limits.min, limits.max, size, dtype=dtype, endpoint=True)
        difference = source.astype(np.int64) - zero_points[index]
        if double:
            value = (difference * scales[index].astype(np.float64)).astype(np.float32)
        else:
            value = difference.astype(np.int32).astype(np.float32) * scales[index]
        with np.errstate(over="ignore"):
            expected = value.astype(narrow).view(target_dtype)
        for start, stop in pieces_of(size):
            # What comes after the target stays as it is.
            target = np.full(stop - start + 64, 77, target_dtype)
            DEQUANTIZE[double, target.itemsize](
                source[start:stop].view(np.uint8),
                target[: stop - start],
                start,
                np.array([*channels.layout, storage_of(dtype), kind, Precision.NATIVE, False], np.int64),
                channels.lay_out(scales, "<f4"),
                channels.lay_out(zero_points, "<i4"),
            )
            assert target[: stop - start].tolist() == expected[start:stop].tolist()
            assert (target[stop - start :] == 77).all()


ALL_FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
# How often what is beyond the largest value comes, and what is no number: the first NaN is then in the second span.
SPECIAL = {"plain": (0, 0), "overflows": (7, 0), "rare": (5000, 4500), "often": (5, 11)}


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("divides", [False, True])
@pytest.mark.parametrize("source", ALL_FLOATS)
def test_encode_from_any_element(source: str, divides: bool, special: str) -> None:
    """Scaled to f8E4M3FN, saturating: codes, counts, and the index of the first NaN."""
    rng = np.random.default_rng(6)
    rule = PROFILES["onnx"].cast_rule()
    made = encoder(rule, "f8E4M3FN", refuses_nan=True)
    assert isinstance(made, Encoder)
    scaled = made.scaling(source, divides)
    every, missing = SPECIAL[special]
    for shape, blocks in LAYOUTS:
        index, channels = parameters_of(shape, blocks), channels_of(shape, blocks)
        size = prod(shape)
        factors = (rng.random(index.max() + 1) + 0.5).astype("<f4")
        x = np.clip(rng.normal(0, 30, size), -200, 200)
        if every:
            x[every - 1 :: every] *= 1000
        if missing:
            x[missing - 1 :: missing] = np.nan
            x[missing::missing] = -np.inf
        narrow: Any = ALL_FLOATS[source]
        with np.errstate(over="ignore"):
            x = x.astype(narrow)
        wide = x.astype(np.float32)
        y = wide / factors[index] if divides else wide * factors[index]
        expected = np.clip(y, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        nan = np.isnan(y)
        for start, stop in pieces_of(size):
            codes, counts = np.full(stop - start + 64, 77, np.uint8), np.array([1, 2, 3, -1])
            here = slice(start, stop)
            scaled.encode_scaled(
                x[here], codes[: stop - start], start, counts, channels.layout, channels.lay_out(factors, "<f4")
            )
            assert (codes[: stop - start] == expected[here]).all()
            assert (codes[stop - start :] == 77).all()
            found = np.flatnonzero(nan[here])
            tally = [(y[here] < -464).sum() + 1, (y[here] > 464).sum() + 2, found.size + 3]
            assert counts.tolist() == [*tally, start + found[0] if found.size else -1]


DECODED = [name for name in SMALL_FLOATS if has_decoder(name)]


@pytest.mark.parametrize(("name", "target", "every"), sample(list(product(DECODED, ALL_FLOATS, [0, 5000, 3])), 18))
def test_decode_from_any_element(name: str, target: str, every: int) -> None:
    """Codes that are finite, and every so many anything."""
    rng = np.random.default_rng(7)
    format_ = SMALL_FLOATS[name]
    values = np.array([format_.value(code) for code in range(1 << format_.width)])
    finite = np.flatnonzero(np.isfinite(values))
    narrow: Any = ALL_FLOATS[target]
    for shape, blocks in LAYOUTS:
        index, channels = parameters_of(shape, blocks), channels_of(shape, blocks)
        size = prod(shape)
        scales = (rng.random(index.max() + 1) + 0.5).astype("<f4")
        source = rng.choice(finite, size).astype(np.uint8)
        if every:
            source[every - 1 :: every] = rng.integers(0, 1 << format_.width, source[every - 1 :: every].size)
        with np.errstate(over="ignore"):
            expected = (values[source].astype(np.float32) * scales[index]).astype(narrow).astype(np.float32)
        nan = np.isnan(values[source])
        for start, stop in pieces_of(size):
            here = slice(start, stop)
            found, counts = np.full(stop - start + 64, 77, narrow), np.array([1, 2, 3, -1])
            decoder(name, target).decode(
                source[here],
                found[: stop - start].view(f"<u{found.itemsize}"),
                counts,
                start,
                channels.layout,
                channels.lay_out(scales, "<f4"),
            )
            real = found[: stop - start].astype(np.float32)
            assert (np.isnan(real) == nan[here]).all()
            assert (real.view("<u4")[~nan[here]] == expected[here].view("<u4")[~nan[here]]).all()
            assert (np.signbit(real) == np.signbit(expected[here]))[~nan[here]].all()
            assert (found[stop - start :] == 77).all()
            assert counts.tolist() == [1, 2, 3 + nan[here].sum(), -1]


ROUNDINGS: dict[Rounding, Any] = {
    Rounding.NEAREST_EVEN: np.rint,
    Rounding.TOWARD_ZERO: np.trunc,
    Rounding.FLOOR: np.floor,
    Rounding.CEILING: np.ceil,
    Rounding.NEAREST_UP: lambda y: np.floor(y.astype(np.float64) + 0.5),
    Rounding.NEAREST_DOWN: lambda y: np.ceil(y.astype(np.float64) - 0.5),
}
# How often a value comes that is beyond the bounds, far beyond them, and NaN.
OUTSIDE = {"within": (0, 0, 0), "beyond": (7, 0, 0), "far": (5, 4500, 0), "rare": (0, 4999, 4500), "often": (5, 11, 7)}


@pytest.mark.parametrize("often", OUTSIDE)
@pytest.mark.parametrize("overflow", [Overflow.SATURATE, Overflow.INDEFINITE, Overflow.UNDEFINED])
@pytest.mark.parametrize(("lane", "bits"), [("<f4", 8), ("<f4", 16), ("<f4", 32), ("<f8", 8)])
def test_quantize_by_any_rule_from_any_element(lane: str, bits: int, overflow: Overflow, often: str) -> None:
    """Integers, counts, and the index of the first element that is undefined."""
    rng = np.random.default_rng(9)
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    wide = bits == 32 or lane == "<f8"
    integer = "<i8" if wide else "<i4"
    # For zero points of -9 to 8. Those of 32 bits do not hold it, nor look at it.
    from_int32 = (8 - (1 << 31), (1 << 31) - 10) if wide else (0, 0)
    # Narrower than the type: what is between is stored as the bound, and is defined.
    minimum, maximum = lowest + 20, highest - 10
    for number, (shape, blocks) in enumerate(LAYOUTS):
        rounding = list(ROUNDINGS)[number % len(ROUNDINGS)]
        index, channels = parameters_of(shape, blocks), channels_of(shape, blocks)
        count, size = index.max() + 1, prod(shape)
        scales = (rng.random(count) + 0.5).astype(lane)
        zeros = rng.integers(-9, 9, count)
        nans = rng.integers(minimum, maximum, count)
        whole = rng.integers(minimum + 10, maximum - 9, size)
        halves = rng.integers(-1, 2, size) / 2
        for at, bound in ((3, minimum), (5, maximum)):
            whole[at::97], halves[at::97] = bound, 0
        x = ((whole - zeros[index] + halves) * scales[index]).astype(lane)
        x[-1] = 0
        for every, value in zip(OUTSIDE[often], (1.5 * highest, 1e30, np.nan), strict=True):
            if every:
                signs = rng.choice([-1.0, 1.0], x[every - 1 :: every].size)
                x[every - 1 :: every] = (value * signs * scales[index][every - 1 :: every]).astype(lane)
        y = x / scales[index]
        nan = np.isnan(y)
        rounded = np.where(nan, 0, ROUNDINGS[rounding](y)).astype(np.float64)
        fits = (rounded >= -(2.0**31)) & (rounded < 2.0**31)
        near = np.clip(rounded, -(2.0**40), 2.0**40).astype(np.int64)
        if overflow is Overflow.INDEFINITE:
            near = np.where(fits, near, -(1 << 31))
            total = (near + zeros[index]).astype(np.int32).astype(np.int64)
        else:
            total = near + zeros[index]
        low, high = (total < minimum) & ~nan, (total > maximum) & ~nan
        if overflow is Overflow.INDEFINITE:
            low |= ~fits & ~high & ~nan
        expected = np.where(nan, nans[index], np.clip(total, minimum, maximum)).astype(f"<i{bits // 8}")
        wrong = nan.copy()
        if overflow is Overflow.UNDEFINED:
            wrong |= ((total < lowest) | (total > highest)) & ~nan
        rules = {
            Rule.SOURCE: FloatKind.F64 if lane == "<f8" else FloatKind.F32,
            Rule.QUOTIENT: Quotient.DIVISION.code,
            Rule.PRECISION: Precision.NATIVE,
            Rule.ADDITION: Addition.NONE,
            Rule.ROUNDING: rounding.code,
            Rule.OVERFLOW: overflow.code,
            Rule.NAN_UNDEFINED: True,
            Rule.SEED: 0,
            Rule.BYTES: bits // 8,
        }
        for start, stop in pieces_of(size):
            here = slice(start, stop)
            stored, counts = np.full(stop - start + 64, 77, expected.dtype), np.array([1, 2, 3, -1])
            QUANTIZE_ANY[lane, wide](
                x[here].view(np.uint8),
                stored.view(np.uint8),
                start,
                stop - start,
                channels.layout,
                channels.lay_out(scales, lane),
                channels.lay_out(np.zeros(count), lane),
                channels.lay_out(zeros, integer),
                channels.lay_out(nans, integer),
                np.array([int(rules[field]) for field in Rule], np.int64),
                np.array([minimum, maximum, minimum, maximum, lowest, highest, *from_int32], integer),
                counts,
            )
            assert (stored[: stop - start] == expected[here]).all()
            assert (stored[stop - start :] == 77).all()
            first = np.flatnonzero(wrong[here])
            tally = [low[here].sum() + 1, high[here].sum() + 2, nan[here].sum() + 3]
            assert counts.tolist() == [*tally, start + first[0] if first.size else -1]
