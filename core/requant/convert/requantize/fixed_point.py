"""Scaling by integer multipliers and shifts.

A plan proves from the bounds of the storage and the multipliers, where it can, that no element fails a demand of the
scheme, and that the fast kernel's arithmetic is exact (`requant.kernels.convert.requantize.fixed_point`). Where it
cannot, the elements are checked one by one (`requant.kernels.convert.requantize.general`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from requant.convert.requantize.application import Application, Sides
from requant.kernels.convert.requantize.fixed_point import Choice, Parameter, requantize_by_multiplier
from requant.kernels.convert.requantize.general import REQUANTIZE_ANY
from requant.kernels.convert.requantize.rules import FixedPointRule
from requant.plan.plan import Array
from requant.schemes import FixedPoint, Multiplier, Sum
from requant.schemes.scheme import INT32, INT32_MAX

# Bounds that no sum of a product in int64 and a zero point of 33 bits passes.
_ANY = (-(1 << 63), (1 << 63) - 1)
# |y| is below its f64 estimate times this, plus what two roundings add.
_ESTIMATE, _ROUNDINGS = 1 + 1e-6, 2.0
_TWICE = (FixedPointRule.DOUBLE, FixedPointRule.DOUBLE_UP, FixedPointRule.TOSA_DOUBLE)
"""The rules with 2^30 before the last rounding."""
_NUDGED = (FixedPointRule.DOUBLE, FixedPointRule.TOSA_DOUBLE)


def _is_defined_for_all(stage: FixedPoint, factors: Array, shifts: Array, widths: Array, sides: Sides) -> bool:
    """Whether every source meets the scheme's demands, and every factor, difference and sum fits int32."""
    if not sides.in_int32 or int(factors.min()) < 0 or int(factors.max()) > INT32_MAX:
        return False
    scaled = np.ldexp(sides.reach * factors.astype(np.float64) * _ESTIMATE, -shifts) + _ROUNDINGS
    defined = sides.within(np.minimum(widths, 31)) and bool(np.all(scaled + np.abs(sides.zeros_out) < INT32_MAX))
    if stage.scaled is not None:
        defined &= bool(np.all(scaled < min(-stage.scaled[0], stage.scaled[1])))
    return defined


def sum_rule(stage: FixedPoint, sides: Sides) -> Sum:
    """Return what becomes of sums that do not fit int32. No system has unsigned 32-bit targets to say it for them."""
    return Sum.EXACT if sides.target.storage == "u32" else stage.total


def _proven(stage: FixedPoint, factors: Array, shifts: Array, sides: Sides) -> Application | None:
    """Return the fast kernel, or None where its arithmetic is not proved to be exact."""
    twice = stage.rule in _TWICE
    if not twice:
        # With one rounding only the quotient counts; a short multiplier leaves room for a longer shift.
        room = 31 - np.frexp(factors.astype(np.float64))[1]
        longer = np.minimum(np.maximum(32 - shifts, 0), room)
        factors, shifts = factors << longer, shifts + longer
    # A half of a bit below the upper half of the product is the same for all parameters.
    fewest = 31 if twice or int(shifts.max()) <= 31 else 32
    lefts = np.maximum(fewest - shifts, 0)
    if int(lefts.max()) > 31 or not sides.within(31 - lefts):
        return None
    rights = shifts + lefts - 31
    halves = (np.int64(1) << rights) >> 1
    if np.any((((sides.reach << lefts) * factors) >> 31) + halves + 2 > INT32_MAX):
        return None
    nudges = (rights > 0) if stage.rule in _NUDGED else np.zeros_like(rights)
    rows = {
        Parameter.MULTIPLIER: 2 * factors,
        Parameter.HALF: halves,
        Parameter.NEGATIVE: 2 * factors + nudges,
        Parameter.LEFT: lefts,
        Parameter.RIGHT: rights,
        Parameter.ZERO_IN: sides.zeros_in,
        Parameter.ZERO_OUT: sides.zeros_out,
    }
    storage, target_bytes = sides.elements
    choices = {
        Choice.SOURCE: storage,
        Choice.TARGET_BYTES: target_bytes,
        Choice.AWAY: stage.rule is FixedPointRule.NEAREST_AWAY,
        Choice.FIRST: 1 << 31 if fewest == 31 else 0,
        Choice.PLAIN: not (lefts.any() or sides.zeros_in.any()),
        Choice.MINIMUM: sides.target.minimum,
        Choice.MAXIMUM: sides.target.maximum,
        Choice.WORDS: sides.in_words(sides.zeros_out),
    }
    return Application(
        kernel=requantize_by_multiplier,
        # Numbers of 32 bits without a sign keep their bits.
        parameters=tuple(rows[row].astype(np.uint32).view(np.int32) for row in Parameter),
        choices=np.array([int(choices[choice]) for choice in Choice], np.int64),
    )


def apply_fixed_point(stage: FixedPoint, multipliers: Sequence[Multiplier], sides: Sides) -> Application:
    """Return the kernel of a stage for these multipliers: one, or one for each block of the common granularity."""
    # From a generator: numpy's own way through a list of many would let no other thread run.
    numbers = (number for p in map(stage.prepare, multipliers) for number in (p.multiplier, p.shift, p.width))
    prepared = np.fromiter(numbers, np.int64, 3 * len(multipliers)).reshape(-1, 3)
    factors, shifts, widths = (np.broadcast_to(column, sides.zeros_in.shape) for column in prepared.T)
    if sides.target.storage != "u32" and _is_defined_for_all(stage, factors, shifts, widths, sides):
        fast = _proven(stage, factors, shifts, sides)
        if fast is not None:
            return fast
    total = sum_rule(stage, sides)
    sums = INT32 if total is Sum.ERROR else _ANY
    bounds = np.array([sides.target.minimum, sides.target.maximum, *(stage.scaled or _ANY), *sums], np.int64)
    return Application(
        kernel=REQUANTIZE_ANY,
        parameters=(factors, shifts, widths, sides.zeros_in, sides.zeros_out),
        choices=sides.rules(int(stage.rule), wraps=total is Sum.WRAPS),
        bounds=bounds,
    )
