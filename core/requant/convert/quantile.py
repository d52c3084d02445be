"""Conversions to and from the codes of a table of values, for storage that is a `!quant.quantile`.

    quantize:    the code q whose T(q) is nearest to E(E(x / E(s)) + E(z))
    dequantize:  E(E(T(q) - E(z)) * E(s))

T(q) is the table's entry as a value of the expressed type E. The definition is Requant's own: MLIR defines the type,
and no system computes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter
from typing import ClassVar

import numpy as np

from requant.errors import UnsupportedError, error_side
from requant.formats.elements import FloatElement, IntegerElement
from requant.formats.float_format import round_to_format
from requant.kernels.convert.quantile import DEQUANTIZE_QUANTILE, QUANTIZE_QUANTILE
from requant.kernels.scalar.rounding import Precision
from requant.mlir.types import QuantileType, TensorType
from requant.plan.compute_dtype import rounded_scales, step_precision
from requant.plan.float_arrays import COMPUTE_DTYPES, narrowed, rounded, widen
from requant.plan.operands import QuantizedOperand, float_element
from requant.plan.plan import Array, Plan, dequantizing, pieces, quantizing
from requant.profiles import OperationRule
from requant.profiles.rule import NanResult


def _as_value(entry: float, value: IntegerElement | FloatElement) -> float | None:
    """Return an entry rounded (RNE) to the type of the values, None if that does not hold it."""
    if isinstance(value, IntegerElement):
        whole = round(entry)
        return float(whole) if value.minimum <= whole <= value.maximum else None
    scale_only = value.name == "f8E8M0FNU"
    if abs(entry) > value.largest or (scale_only and entry < value.smallest):
        return None
    return round_to_format(entry, value)


def table_values(quantile: QuantileType, expressed: FloatElement) -> Array:
    """Return the value of each code in the compute dtype of the expressed type, from the lowest code on.

    Entries are rounded (RNE) to the quantile's value type, then to the expressed type. Raise UnsupportedError, naming
    the entry, if one is beyond either.
    """
    values = np.empty(len(quantile.table), np.float64)
    for index, entry in enumerate(quantile.table):
        value = _as_value(entry, quantile.value)
        if value is None or abs(value) > expressed.largest:
            beyond = quantile.value.name if value is None else expressed.name
            raise UnsupportedError(f"entry {index} of the quantile, {entry!r}, is not within the range of {beyond}")
        values[index] = value
    return rounded(values, expressed)


@dataclass(frozen=True, slots=True)
class NearestCodes:
    """The sorted distinct values of some codes, as intervals: up to and with `thresholds[i]` a number has `codes[i]`.

    There is one code more than there are thresholds. `smallest` and `largest` are the outermost values.
    """

    thresholds: Array
    codes: Array
    smallest: float
    largest: float


def _floor_of_middle(low: float, high: float, dtype: str) -> float:
    """Return the largest number of a dtype that is not above the exact middle of two others."""
    middle = (Fraction(low) + Fraction(high)) / 2
    nearest = float(middle)
    if Fraction(nearest) > middle:
        nearest = nextafter(nearest, -inf)
    if dtype == "<f4":
        single = np.float32(nearest)
        if float(single) > nearest:
            single = np.nextafter(single, np.float32(-np.inf))
        return float(single)
    return nearest


def nearest_codes(values: Array, lowest: int, minimum: int, maximum: int) -> NearestCodes:
    """Return which of the codes `minimum` to `maximum` is nearest to a number; `values` begins with code `lowest`.

    Of two values that are equally near it is the smaller, of equal values the lowest code.
    """
    within = values[minimum - lowest : maximum - lowest + 1]
    # The index of the first of equal values, because the sort that finds it is stable; -0 and 0 are equal.
    distinct, first = np.unique(within, return_index=True)
    pairs = zip(distinct[:-1].tolist(), distinct[1:].tolist(), strict=True)
    thresholds = [_floor_of_middle(low, high, values.dtype.str) for low, high in pairs]
    return NearestCodes(np.array(thresholds, values.dtype), first + minimum, float(distinct[0]), float(distinct[-1]))


def zero_points_in(expressed: FloatElement, zero_points: tuple[int, ...]) -> Array:
    """Return zero points of at most 32 bits in the compute dtype of the expressed type, rounded once.

    Raise UnsupportedError for one beyond its range.
    """
    for channel, zero_point in enumerate(zero_points):
        if abs(zero_point) > expressed.largest:
            raise UnsupportedError(f"zero point {zero_point} of channel {channel} is beyond {expressed.name}")
    return rounded(np.array(zero_points, np.float64), expressed)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizePlan(Plan):
    """Plan of `requant.kernels.convert.quantile`."""

    layout: tuple[int, int, int, int]
    scales: Array
    zero_points: Array
    precision: Precision
    nearest: NearestCodes
    nan_result: NanResult
    minimum: int

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        element = float_element(self.input_type, "input")
        run = QUANTIZE_QUANTILE[COMPUTE_DTYPES[element.name]]
        for piece in pieces(source.size):
            reals = widen(source[piece], element)
            codes = np.empty(reals.size, np.int64)
            before = counts[2]
            run(
                reals,
                codes,
                start + piece.start,
                *self.layout,
                self.scales,
                self.zero_points,
                int(self.precision),
                self.nearest.thresholds,
                self.nearest.codes,
                self.nearest.smallest,
                self.nearest.largest,
                self.minimum,
                self.nan_result is NanResult.ZERO_POINT,
                counts,
            )
            if self.nan_result is NanResult.ERROR and counts[2] > before and counts[3] < 0:
                counts[3] = start + piece.start + int(np.argmax(np.isnan(reals)))
            target[piece] = codes

    def explain_undefined(self, counts: Array) -> str:
        return "this element is NaN"


def plan_quantize_quantile(
    profile: str, rule: OperationRule, quantile: QuantileType, input_type: TensorType, operand: QuantizedOperand
) -> QuantizePlan:
    """Plan the nearest code of x / s + z. Raise UnsupportedError where the table or a zero point leaves its types."""
    with error_side("output"):
        values = table_values(quantile, operand.expressed)
        zero_points = zero_points_in(operand.expressed, operand.zero_points)
    channels, dtype = operand.channels.as_runs(), COMPUTE_DTYPES[operand.expressed.name]
    return QuantizePlan(
        **quantizing(profile, rule, input_type, operand),
        layout=channels.scalars,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), dtype),
        zero_points=channels.lay_out(zero_points, dtype),
        precision=step_precision(rule.steps, operand.expressed.name),
        nearest=nearest_codes(values, operand.lowest, operand.minimum, operand.maximum),
        nan_result=rule.nan_result,
        minimum=operand.minimum,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizePlan(Plan):
    """Plan of `requant.kernels.convert.quantile`."""

    tallies: ClassVar[bool] = False

    layout: tuple[int, int, int, int]
    scales: Array
    zero_points: Array
    precision: Precision
    values: Array
    lowest: int

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. Nothing saturates, and tables have no NaN: `counts` stays as it is."""
        element = float_element(self.output_type, "output")
        run = DEQUANTIZE_QUANTILE[COMPUTE_DTYPES[element.name]]
        for piece in pieces(source.size):
            reals = np.empty(source[piece].size, COMPUTE_DTYPES[element.name])
            run(
                source[piece].astype(np.int64),
                reals,
                start + piece.start,
                *self.layout,
                self.scales,
                self.zero_points,
                int(self.precision),
                self.values,
                self.lowest,
            )
            target[piece] = narrowed(reals, element)


def plan_dequantize_quantile(
    profile: str, rule: OperationRule, quantile: QuantileType, operand: QuantizedOperand, target: TensorType
) -> DequantizePlan:
    """Plan E(E(T(q) - E(z)) * E(s)). Raise UnsupportedError where the table or a zero point leaves its types."""
    with error_side("input"):
        values = table_values(quantile, operand.expressed)
        zero_points = zero_points_in(operand.expressed, operand.zero_points)
    channels, dtype = operand.channels.as_runs(), COMPUTE_DTYPES[operand.expressed.name]
    return DequantizePlan(
        **dequantizing(profile, rule, operand, target),
        layout=channels.scalars,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), dtype),
        zero_points=channels.lay_out(zero_points, dtype),
        precision=step_precision(rule.steps, operand.expressed.name),
        values=values,
        lowest=operand.lowest,
    )
