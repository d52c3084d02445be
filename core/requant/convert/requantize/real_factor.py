"""Scaling by real factors.

A plan proves, where it can, that no element fails a demand of the scheme
(`requant.kernels.convert.requantize.real_factor`). Where it cannot, the elements are checked one by one
(`requant.kernels.convert.requantize.general`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from requant.convert.requantize.application import Application, Sides
from requant.errors import ParameterError
from requant.kernels.convert.requantize.general import REQUANTIZE_FLOAT_ANY
from requant.kernels.convert.requantize.real_factor import REQUANTIZE_F32, REQUANTIZE_F64, Choice, Parameter
from requant.kernels.convert.requantize.rules import FloatRule
from requant.plan.plan import Array
from requant.schemes import Float, Multiplier

_ANY = (-float("inf"), float("inf"))
# |y| is below its f64 estimate times this, plus what roundings add.
_ESTIMATE, _ROUNDINGS = 1 + 1e-6, 2.0
_IN_F32 = (FloatRule.F32_EVEN, FloatRule.F32_OFFSET)
# What the kernel of f32 takes.
_LARGEST_ZERO_POINT = 1 << 22
_WIDEST_TARGET = 2


def _offsets(rule: FloatRule, exact: Array, sides: Sides) -> tuple[Array, Array, Array]:
    """Return offsets and the zero points that are left to subtract and to add."""
    none = np.zeros(sides.zeros_in.shape, np.int64)
    if rule is FloatRule.F32_OFFSET:
        with np.errstate(all="ignore"):
            offsets = (sides.zeros_out - sides.zeros_in * exact).astype(np.float32)
        if not np.all(np.isfinite(offsets)):
            raise ParameterError("the merged zero point, z_out - z_in * factor, is larger than the largest f32")
        return offsets.astype(np.float64), none, none
    if rule is FloatRule.F64_EVEN_OFFSET:
        return sides.zeros_out.astype(np.float64), sides.zeros_in, none
    return none.astype(np.float64), sides.zeros_in, sides.zeros_out


def _bounds(rule: FloatRule, sides: Sides) -> tuple[float, float]:
    """Return the storage bounds; for F32_OFFSET as f32 has them, within what the storage holds."""
    target = sides.target
    if rule is not FloatRule.F32_OFFSET:
        return float(target.minimum), float(target.maximum)
    lowest, highest = (float(np.float32(bound)) for bound in (target.minimum, target.maximum))
    return max(lowest, float(target.lowest)), min(highest, float(target.highest))


def _is_defined_for_all(
    stage: Float, factors: Array, widths: Array, zeros_in: Array, zeros_out: Array, sides: Sides
) -> bool:
    """Whether every source meets the scheme's demands, and every number that a kernel takes fits it."""
    defined = sides.in_int32 and sides.target.storage != "u32" and sides.within(np.minimum(widths, 31))
    for limit, added in ((stage.scaled, 0), (stage.summed, np.abs(zeros_out))):
        if defined and limit is not None:
            with np.errstate(over="ignore"):
                reached = sides.reach * np.abs(factors) * _ESTIMATE + _ROUNDINGS + added
            defined = bool(np.all(reached < min(-limit[0], limit[1])))
    if defined and stage.rule in _IN_F32:
        defined = sides.target.dtype.itemsize <= _WIDEST_TARGET and all(
            int(np.abs(zeros).max()) <= _LARGEST_ZERO_POINT for zeros in (zeros_in, zeros_out)
        )
    return defined


def _proven(stage: Float, parameters: dict[Parameter, Array], bounds: tuple[float, float], sides: Sides) -> Application:
    """Return the fast kernel."""
    storage, target_bytes = sides.elements
    choices = {
        Choice.SOURCE: storage,
        Choice.TARGET_BYTES: target_bytes,
        Choice.AWAY: stage.rule is FloatRule.F64_AWAY,
        Choice.MINIMUM: bounds[0],
        Choice.MAXIMUM: bounds[1],
        Choice.WORDS: sides.in_words(parameters[Parameter.ZERO_OUT]),
    }
    in_f32 = stage.rule in _IN_F32
    number = np.float32 if in_f32 else np.float64
    return Application(
        kernel=REQUANTIZE_F32 if in_f32 else REQUANTIZE_F64,
        parameters=tuple(parameters[row].astype(number) for row in Parameter),
        choices=np.array([int(choices[choice]) for choice in Choice], np.int64),
    )


def apply_float(stage: Float, multipliers: Sequence[Multiplier], exact: Sequence[float], sides: Sides) -> Application:
    """Return the kernel of a stage for these multipliers: one, or one for each block of the common granularity.

    `exact` are the factors before they became multipliers.
    """
    shape = sides.zeros_in.shape
    prepared = [stage.prepare(each) for each in multipliers]
    factors = np.broadcast_to(np.array([each.factor for each in prepared], np.float64), shape)
    widths = np.broadcast_to(np.array([each.width for each in prepared], np.int64), shape)
    exact_factors = np.broadcast_to(np.array(exact, np.float64), shape)
    offsets, zeros_in, zeros_out = _offsets(stage.rule, exact_factors, sides)
    bounds = _bounds(stage.rule, sides)
    if _is_defined_for_all(stage, factors, widths, zeros_in, zeros_out, sides):
        parameters = {
            Parameter.FACTOR: factors,
            Parameter.OFFSET: offsets,
            Parameter.ZERO_IN: zeros_in,
            Parameter.ZERO_OUT: zeros_out,
        }
        return _proven(stage, parameters, bounds, sides)
    limits = np.array([*bounds, *(stage.scaled or _ANY), *(stage.summed or _ANY)], np.float64)
    return Application(
        kernel=REQUANTIZE_FLOAT_ANY,
        parameters=(factors, offsets, widths, zeros_in, zeros_out),
        choices=sides.rules(int(stage.rule)),
        bounds=limits,
    )
