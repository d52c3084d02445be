"""Scaling by integer multipliers and shifts (`core.kernels.requantize`).

A plan proves from the bounds of the storage and the multipliers, where it can, that no element fails a demand of the
scheme. Only where it cannot are the elements checked one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.kernels.requantize import REQUANTIZE, REQUANTIZE_CHECKED, FixedPointRule
from core.parameters.schemes import FixedPoint, Multiplier, Sum
from core.parameters.schemes.scheme import INT32, INT32_MAX
from core.plan import Array
from core.requantize.application import Application, Sides

# Bounds that no sum of a product in int64 and a zero point of 33 bits passes.
_ANY = (-(1 << 63), (1 << 63) - 1)
# |y| is below its f64 estimate times this, plus what two roundings add.
_ESTIMATE, _ROUNDINGS = 1 + 1e-6, 2.0


def _is_defined_for_all(
    stage: FixedPoint, total: Sum, factors: Array, shifts: Array, widths: Array, sides: Sides
) -> bool:
    """Whether no source can fail a demand, or wrap."""
    if not sides.in_int32 or int(np.abs(factors).max()) > INT32_MAX:
        return False
    reach = sides.reach
    # The kernel multiplies numbers of 32 bits.
    defined = sides.within(np.minimum(widths, 31))
    if stage.rule in (FixedPointRule.DOUBLE, FixedPointRule.DOUBLE_UP):
        defined &= sides.within(31 - np.maximum(31 - shifts, 0))
    scaled = np.ldexp(reach * np.abs(factors).astype(np.float64) * _ESTIMATE, -shifts) + _ROUNDINGS
    if stage.scaled is not None:
        defined &= bool(np.all(scaled < min(-stage.scaled[0], stage.scaled[1])))
    if total is not Sum.EXACT:
        defined &= bool(np.all(scaled + np.abs(sides.zeros_out) < INT32_MAX))
    return defined


def sum_rule(stage: FixedPoint, sides: Sides) -> Sum:
    """Return what becomes of sums that do not fit int32. No system has unsigned 32-bit targets to say it for them."""
    return Sum.EXACT if sides.target.storage == "u32" else stage.total


def apply_fixed_point(stage: FixedPoint, multipliers: Sequence[Multiplier], sides: Sides) -> Application:
    """Return the kernel of a stage for these multipliers: one, or one for each block of the common granularity."""
    prepared = np.array([(p.multiplier, p.shift, p.width) for p in map(stage.prepare, multipliers)], np.int64)
    factors, shifts, widths = (np.broadcast_to(column, sides.zeros_in.shape) for column in prepared.T)
    total = sum_rule(stage, sides)
    defined = _is_defined_for_all(stage, total, factors, shifts, widths, sides)
    sums = INT32 if total is Sum.ERROR else _ANY
    return Application(
        kernel=REQUANTIZE if defined else REQUANTIZE_CHECKED,
        rule=int(stage.rule),
        parameters=(factors, shifts, widths, sides.zeros_in, sides.zeros_out),
        bounds=np.array([sides.target.minimum, sides.target.maximum, *(stage.scaled or _ANY), *sums], np.int64),
        wraps=total is Sum.WRAPS and not defined,
    )
