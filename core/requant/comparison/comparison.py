"""Compare two tensors of one shape: which elements differ, by how many steps or ulps, and how large the error is.

What is compared depends on the two element types:

    integers                            the integers; differences in steps of 1
    quantized with equal parameters     the stored integers; differences in steps
    floats of one type                  the values; differences in ulps of the type
    floats of two types                 the values, both exact in f32, or in f64 if one of them is f64; ulps of that
    other quantized, quantized, float   the reals (q - z) * s in f64; RNE((b - a) / s), s the scale of a, or of b if
                                        only b is quantized

Two elements match when they are equal as numbers, so +0 matches -0, or are both NaN. Where both tensors have one type,
elements whose bits differ are counted too: there the sign of zero and the payload of NaN matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cache
from math import isfinite, log10, prod
from typing import Any

import numpy as np

from requant.comparison.real_values import Array, RealValues, as_f64, look_up, real_values
from requant.convert.small_floats import decode_table
from requant.errors import ParameterError, TypeFitError, UnsupportedError, error_side, excerpt
from requant.formats.elements import FloatElement, IntegerElement
from requant.kernels.statistics.compare import (
    BIT_MISMATCHES,
    BUCKETS,
    COMPARE_FLOATS,
    COMPARE_INTEGERS,
    COUNTS,
    LARGEST_EXACT,
    MISMATCHES,
    RANKS,
    UNDEFINED,
    ZERO,
    compare_reals,
)
from requant.kernels.statistics.error_sums import BLOCK, ERROR_SUMS
from requant.mlir.printer import print_type
from requant.mlir.types import TensorType, UniformPerAxisType, UniformSubChannelType
from requant.plan.plan import Plan, check_flat


class DifferenceUnit(StrEnum):
    """The unit of the differences."""

    STEPS = "steps"
    """Integers; of quantized elements, scales."""

    ULPS = "ulps"
    """Neighbouring values of a float type."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The number of elements whose difference is `low` to `high`, both included."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """The differences b - a, as whole numbers of `unit`.

    `buckets` ascend without gaps from the lowest to the highest that is not empty. Differences of -16 to 16 have
    buckets of their own; beyond, bounds are powers of two. The outermost buckets end at +-(2^63 - 1) and hold what lies
    beyond, which only elements of 64 bits and quotients of real numbers reach. `undefined` counts the elements of which
    one is NaN and the other is not. The counts of the buckets and `undefined` add up to all elements.
    """

    unit: DifferenceUnit
    buckets: tuple[Bucket, ...]
    undefined: int


def _magnitudes(rank: int) -> tuple[int, int]:
    """Return the smallest and the largest magnitude of a rank (`requant.kernels.statistics.compare`)."""
    if rank <= LARGEST_EXACT:
        return rank, rank
    return max(1 << (rank - 13), LARGEST_EXACT + 1), (1 << (rank - 12)) - 1


def _bounds(bucket: int) -> tuple[int, int]:
    low, high = _magnitudes(abs(bucket - ZERO))
    return (low, high) if bucket >= ZERO else (-high, -low)


def histogram_of(tally: Sequence[int], unit: DifferenceUnit) -> Histogram:
    """Return the histogram of a finished tally."""
    filled = [bucket for bucket in range(BUCKETS) if tally[bucket]]
    span = range(filled[0], filled[-1] + 1) if filled else range(0)
    assert len(tally) > UNDEFINED
    assert _magnitudes(RANKS - 1)[1] == (1 << 63) - 1
    return Histogram(unit, tuple(Bucket(*_bounds(bucket), tally[bucket]) for bucket in span), tally[UNDEFINED])


PIECE = 64 * BLOCK
"""A good number of elements to measure at once: the arrays in between stay in the cache."""

_DIRECT = {"i1": 0, "i2": 0, "i4": 0, "u1": -(1 << 7), "u2": -(1 << 15), "u4": -(1 << 31)}


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """The error of b against a, over the elements of which both are finite; `left_out` counts the others.

    max |b - a|, mean |b - a|, and SQNR 10 log10(sum a^2 / sum (b - a)^2) in decibels. None stands for what is not a
    finite number: all three without elements, SQNR without error or without signal, and all that overflow binary64.
    """

    left_out: int
    max_absolute_error: float | None
    mean_absolute_error: float | None
    sqnr_db: float | None


def _in_order(terms: Array) -> float:
    # numpy's cumsum adds strictly from left to right; its sum, and Python's, do not promise an order.
    return float(np.cumsum(terms)[-1]) if terms.size else 0.0


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


class ErrorSums:
    """The sums over a tensor, filled piece by piece in any order."""

    def __init__(self, a: RealValues, b: RealValues, elements: int, *, padding: int = 0) -> None:
        """Prepare for `elements` elements of `a`, the reference, and `b`.

        `padding`: how many of them are zeros on both sides that only fill up blocks, and do not count.
        """
        self._a = a
        self._b = b
        self._elements = elements
        self._padding = padding
        blocks = -(-elements // BLOCK)
        self._signal, self._noise, self._absolute, self._largest = np.zeros((4, blocks))
        self._left_out = np.zeros(blocks, np.int64)

    def add(self, a: Array, b: Array, start: int) -> None:
        """Measure the stored elements `a` and `b` from flat index `start`, a multiple of BLOCK.

        Both are 1-D and contiguous; their number is a multiple of BLOCK too, unless they are the last.
        """
        affine_a, affine_b = self._a.affine, self._b.affine
        code = a.dtype.str[1:]
        if a.dtype == b.dtype and code in _DIRECT and affine_a is not None and affine_b is not None:
            flip = _DIRECT[code]
            a, b = (each.view(f"i{each.itemsize}") for each in (a, b))
            # Flipped integers are lower by 2^(N-1), and so are their zero points.
            parameters = (flip, affine_a[0] + flip, affine_a[1], affine_b[0] + flip, affine_b[1])
        else:
            a, b = self._a.reals(a, start), self._b.reals(b, start)
            parameters = (0, 0.0, 1.0, 0.0, 1.0)
            if a.dtype != b.dtype:
                a, b = as_f64(a), as_f64(b)
        blocks = slice(start // BLOCK, -(-(start + a.size) // BLOCK))
        ERROR_SUMS[a.dtype.kind == "f"](
            a,
            b,
            *parameters,
            self._signal[blocks],
            self._noise[blocks],
            self._absolute[blocks],
            self._largest[blocks],
            self._left_out[blocks],
        )

    def report(self) -> ErrorReport:
        """Return the report after the last piece."""
        left_out = int(self._left_out.sum())
        measured = self._elements - self._padding - left_out
        if not measured:
            return ErrorReport(left_out, None, None, None)
        with np.errstate(over="ignore"):
            signal, noise, absolute = (_in_order(terms) for terms in (self._signal, self._noise, self._absolute))
        defined = 0 < signal < float("inf") and 0 < noise < float("inf")
        # A quotient could overflow where its logarithm does not.
        decibels = 10 * (log10(signal) - log10(noise)) if defined else None
        return ErrorReport(left_out, _finite(float(self._largest.max())), _finite(absolute / measured), decibels)


def conversion_error(plan: Plan, source: Array, target: Array) -> ErrorReport:
    """Return the error that a conversion made: of the real numbers of its output against those of its input.

    `source` and `target` are the flat arrays that `plan.run` took and filled. Elements that are NaN or infinite, before
    or after, are left out and counted. Raise UnsupportedError for elements that do not stand for real numbers.
    """
    sums = ErrorSums(
        real_values(plan.input_type, "the input"), real_values(plan.output_type, "the output"), plan.elements
    )
    for start in range(0, plan.elements, PIECE):
        sums.add(source[start : start + PIECE], target[start : start + PIECE], start)
    return sums.report()


MAX_REPORTED = 1000
"""The most mismatches that are listed."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One element that differs: its flat row-major index, its position, and both sides as decimal text.

    `a` and `b` are the integers that are stored, or the values of floats: the fewest digits that read back the same (in
    f32, for narrower types but f16), or NaN, Infinity, -Infinity. `real_a` and `real_b` are the reals that quantized
    elements stand for, in f64; None for others.
    """

    index: int
    position: tuple[int, ...]
    a: str
    b: str
    real_a: str | None
    real_b: str | None


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """How two tensors differ. `first` is in order of index. `bit_mismatches` is None for tensors of two types."""

    elements: int
    mismatches: int
    bit_mismatches: int | None
    first: tuple[Mismatch, ...]
    histogram: Histogram
    error: ErrorReport

    @property
    def equal(self) -> bool:
        """Whether every element matches."""
        return self.mismatches == 0


class _Kind(Enum):
    INTEGERS = auto()
    FLOATS = auto()
    REALS = auto()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of tensors of two types, decided before the first element is seen. See `plan_comparison`."""

    a: RealValues
    b: RealValues
    kind: _Kind

    @property
    def elements(self) -> int:
        """The number of elements of either tensor."""
        return prod(self.a.shape)

    def run(self, a: Array, b: Array, max_reported: int = 10) -> ComparisonReport:
        """Compare two flat tensors: 1-D, contiguous, of the dtypes `self.a.dtype` and `self.b.dtype`.

        At most `max_reported` mismatches are listed, 0 to MAX_REPORTED. Raise ParameterError if it is another number,
        TensorDataError if the arrays are not as said or hold what their types do not.
        """
        if not 0 <= max_reported <= MAX_REPORTED:
            raise ParameterError(f"{max_reported} mismatches to be listed; 0 to {MAX_REPORTED} are")
        for side, array, dtype in (("a", a, self.a.dtype), ("b", b, self.b.dtype)):
            check_flat(array, dtype, self.elements, side)
        counts = np.zeros(COUNTS, np.int64)
        positions = np.empty(min(max_reported, self.elements), np.int64)
        sums = ErrorSums(self.a, self.b, self.elements)
        # What is alike and finite has no error; its signal only matters beside an error elsewhere.
        may_wait = self.kind is _Kind.INTEGERS and self.a.always_finite
        waiting = []
        for start in range(0, self.elements, PIECE):
            piece_a, piece_b = a[start : start + PIECE], b[start : start + PIECE]
            mismatches = counts[MISMATCHES]
            self._count(piece_a, piece_b, start, counts, positions)
            if may_wait and counts[MISMATCHES] == mismatches:
                waiting.append(start)
            else:
                sums.add(piece_a, piece_b, start)
        for start in waiting if counts[MISMATCHES] else ():
            sums.add(a[start : start + PIECE], b[start : start + PIECE], start)
        tally = counts.tolist()
        listed = positions[: min(tally[MISMATCHES], positions.size)].tolist()
        one_type = self.a.tensor.element == self.b.tensor.element
        unit = DifferenceUnit.ULPS if self.kind is _Kind.FLOATS else DifferenceUnit.STEPS
        return ComparisonReport(
            elements=self.elements,
            mismatches=tally[MISMATCHES],
            bit_mismatches=tally[BIT_MISMATCHES] if one_type else None,
            first=tuple(self._mismatch(index, a, b) for index in listed),
            histogram=histogram_of(tally, unit),
            error=sums.report(),
        )

    def _count(self, a: Array, b: Array, start: int, counts: Array, positions: Array) -> None:
        """Add one piece to the tally."""
        if self.kind is _Kind.REALS:
            scaled = self.a if self.a.quantized else self.b
            # Copied where every element has one scale: the kernel reads a step for each.
            steps = np.ascontiguousarray(scaled.steps(start, a.size))
            reals = (as_f64(side.reals(piece, start)) for side, piece in ((self.a, a), (self.b, b)))
            compare_reals(*reals, steps, start, counts, positions)
        elif self.kind is _Kind.FLOATS:
            patterns_a, patterns_b, infinity = self._patterns(a, b, start)
            COMPARE_FLOATS(patterns_a, patterns_b, start, infinity, counts, positions)
        else:
            if a.dtype != b.dtype:
                wide = np.uint64 if np.uint64 in (a.dtype, b.dtype) else np.int64
                a, b = a.astype(wide), b.astype(wide)
            flip = 0 if a.dtype.kind == "i" else -(1 << (8 * a.itemsize - 1))
            signed = f"i{a.itemsize}"
            COMPARE_INTEGERS(a.view(signed), b.view(signed), start, flip, counts, positions)

    def _patterns(self, a: Array, b: Array, start: int) -> tuple[Array, Array, int]:
        """Return both pieces as patterns of one float type, sign and magnitude, and the pattern of its infinity."""
        element = self.a.float_element
        assert element is not None
        if element != self.b.float_element:
            a, b = self.a.reals(a, start), self.b.reals(b, start)
            if a.dtype != b.dtype:
                a, b = as_f64(a), as_f64(b)
        elif element.width < 16:
            keys = _keys_of_patterns(element.name)
            return look_up(keys, a, start, self.a.side), look_up(keys, b, start, self.b.side), _KEY_OF_INFINITY
        signed = f"i{a.itemsize}"
        return (
            a.view(signed),
            b.view(signed),
            _INFINITIES["bf16" if element.name == "bf16" and a.itemsize == 2 else signed],
        )

    def _mismatch(self, index: int, a: Array, b: Array) -> Mismatch:
        texts = []
        reals = []
        for side, stored in ((self.a, a[index : index + 1]), (self.b, b[index : index + 1])):
            real = side.reals(stored, index)[0]
            element = side.float_element
            shown = stored[0] if element is None or element.name == "f16" else real
            texts.append(_text(shown))
            reals.append(_text(real) if side.quantized else None)
        position = tuple(int(i) for i in np.unravel_index(index, self.a.shape))
        return Mismatch(index, position, *texts, *reals)


_INFINITIES = {"i2": 0x7C00, "bf16": 0x7F80, "i4": 0x7F800000, "i8": 0x7FF0 << 48}
_KEY_OF_INFINITY = 0x7EFF


@cache
def _keys_of_patterns(name: str) -> Array:
    """Return 16-bit patterns of sign and magnitude, in the order of the values, for the patterns of a small float.

    Neighbouring magnitudes are 1 apart. Each NaN has a pattern of its own beyond _KEY_OF_INFINITY.
    """
    values = decode_table(name)
    missing = np.isnan(values)
    magnitudes = np.unique(np.abs(values[~missing]))
    keys = np.searchsorted(magnitudes, np.abs(values)) | np.signbit(values).astype(np.int64) << 15
    keys[missing] = _KEY_OF_INFINITY + 1 + np.flatnonzero(missing)
    return keys.astype("<u2").view("<i2")


def _text(value: Any) -> str:
    if isinstance(value, np.floating) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value)


def _equal_parameters(a: RealValues, b: RealValues) -> bool:
    """Whether stored integers of both tensors stand for the same reals."""
    if not (np.array_equal(a.scales, b.scales) and np.array_equal(a.zero_points, b.zero_points)):
        return False
    return _spread(a) == _spread(b)


def _spread(side: RealValues) -> object:
    """Return along which axes parameters change, and how fast."""
    element = side.tensor.element
    if isinstance(element, UniformPerAxisType):
        return {element.axis: 1}
    return dict(element.blocks) if isinstance(element, UniformSubChannelType) else {}


def _kind(a: RealValues, b: RealValues) -> _Kind:
    elements = (a.tensor.element, b.tensor.element)
    if a.quantized or b.quantized:
        if a.quantized and b.quantized and _equal_parameters(a, b):
            return _Kind.INTEGERS
        if not any(isinstance(element, IntegerElement) for element in elements):
            return _Kind.REALS
    elif all(isinstance(element, FloatElement) for element in elements):
        return _Kind.FLOATS
    elif all(isinstance(element, IntegerElement) for element in elements):
        dtypes = (a.dtype, b.dtype)
        if np.uint64 not in dtypes or all(dtype.kind == "u" for dtype in dtypes):
            return _Kind.INTEGERS
    shown = " and ".join(excerpt(print_type(element)) for element in elements)
    raise UnsupportedError(
        f"the elements are {shown}; integers are compared with integers (of more than 32 unsigned bits with unsigned "
        "ones), floats with floats, quantized elements with quantized ones and with floats"
    )


def plan_comparison(a_type: TensorType, b_type: TensorType) -> Comparison:
    """Plan the comparison of `b` with `a`, the reference. Both types are static tensors of one shape.

    Raise TypeFitError if a shape is not static, if the shapes differ or if parameters do not fit; UnsupportedError for
    elements that do not stand for numbers, or for two kinds of numbers that have no common steps. Each is about "a" if
    that is wrong by itself, else about "b".
    """
    with error_side("a"):
        a = real_values(a_type, "a")
    with error_side("b"):
        b = real_values(b_type, "b")
        if a.shape != b.shape:
            detail = f"a has shape {_shape_text(a.shape)}, and b {_shape_text(b.shape)}; they must be the same"
            raise TypeFitError(detail)
        return Comparison(a, b, _kind(a, b))


def _shape_text(shape: tuple[int, ...]) -> str:
    return excerpt("x".join(map(str, shape))) or "scalar"
