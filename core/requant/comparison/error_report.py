"""How far one tensor of real numbers is from another: largest and mean absolute error, and SQNR.

The sums are those of `requant.kernels.statistics.error_sums`, block by block, and the blocks are added in order. So a
report depends on the numbers only: not on the pieces that they came in, nor on how many threads there were.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log10

import numpy as np

from requant.comparison.real_values import Array, RealValues, as_f64, real_values
from requant.kernels.statistics.error_sums import BLOCK, ERROR_SUMS
from requant.plan.plan import Plan

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
