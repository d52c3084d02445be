"""Explains casts between floats: the steps from a number to the code of a small float, by a profile's rule."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from requant.convert.cast import CastPlan
from requant.convert.explain.explanation import (
    Array,
    ElementExplanation,
    Explainer,
    Saturation,
    StepKind,
    formulas,
    numbers,
)
from requant.convert.explain.float_steps import F16, F32, Draw, Precision, Rounded, round_to_integer, signed_zero
from requant.convert.explain.working import Working, exact_text, float_text
from requant.convert.float_encoding import overflows, saturates, signed_special, special_codes
from requant.convert.small_floats import small_float
from requant.formats.elements import FLOATS, FloatElement, Specials
from requant.formats.float_format import round_exactly
from requant.formats.rounding import Rounding
from requant.plan.float_arrays import COMPUTE_DTYPES
from requant.plan.operands import float_element
from requant.profiles import profile_named
from requant.profiles.cast import DRAWN_BITS, CastRule, ScaleRange

_MANTISSA = (1 << 23) - 1


@dataclass(frozen=True, slots=True)
class Code:
    """What a number is encoded as."""

    code: int
    saturated: Saturation | None = None


@dataclass(frozen=True, slots=True)
class FloatCodes:
    """The conversion of numbers of type `source` to codes of `target`.

    `saturate` and `rounding` replace the rule's own; `seed` and `random_bits` are those of stochastic rounding.
    """

    rule: CastRule
    target: str
    source: str = "f32"
    saturate: bool | None = None
    rounding: Rounding | None = None
    seed: int = 0
    random_bits: int = DRAWN_BITS

    @property
    def format(self) -> FloatElement:
        """The format of the codes."""
        return FLOATS[self.target]

    def explain(self, working: Working, symbol: str, y: float, index: int = 0) -> Code:
        """Add the steps from y, the value of `symbol`, to its code, and return the code. `index`: of the element."""
        if self.source == "f64" and not self._in_f64:
            y = working.float(StepKind.CONVERT, symbol, f"f32({symbol})", Precision((F32,)).of(y), F32)
        if self.format.specials is Specials.SCALE:
            return self._scale_code(working, symbol, y)
        if self.rule.through_f16:
            y = signed_zero(y).value
            y = working.float(StepKind.CONVERT, symbol, f"f16({symbol} + 0)", Precision((F16,)).of(y), F16)
        if math.isnan(y):
            return self._nan(working, symbol, self._nan_code(y))
        sign = self.format.sign_bit if math.copysign(1.0, y) < 0 else 0
        saturated = None if sign == 0 else Saturation.LOW
        special = special_codes(self.rule, self.target, self.source, self.saturate)
        if math.isinf(y):
            code = signed_special(special, self.format, special.infinity, sign)
            self._overflow(working, symbol, code)
            return Code(code, saturated or Saturation.HIGH)
        rounding = self.rounding or self.rule.roundings_to(self.target)[0]
        formula = self._formula(working, symbol, rounding, index)
        magnitude = abs(Fraction(y))
        nearest = abs(round_exactly(Fraction(y), self.format, partial(self._to_integer, rounding, index)))
        if nearest > Fraction(self.format.largest):
            slip = None if self._saturates else self.rule.slips.get(self.target)
            slipped = slip is not None and not self._in_f64 and slip.start <= magnitude < slip.stop
            code = overflows(special, self.format, rounding)[sign > 0]
            if slip is not None and slipped:
                code = slip.code | sign
            self._overflow(working, symbol, code, formula)
            return Code(code, saturated or Saturation.HIGH)
        to_nearest = rounding in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY)
        tie = to_nearest and nearest != magnitude and _is_middle(magnitude, nearest, self.format)
        code = self._signed(self._finite_code(nearest), sign)
        unrounded = None if nearest == magnitude else exact_text(Fraction(y))
        self._add(working, StepKind.ROUND, symbol, code, formula, unrounded=unrounded, tie=tie)
        return Code(code)

    def _formula(self, working: Working, symbol: str, rounding: Rounding, index: int) -> str:
        """Return how a number is rounded, where it is not to nearest even, and show what was drawn."""
        if rounding is Rounding.NEAREST_EVEN:
            return f"{self.target}({symbol})"
        if rounding is not Rounding.STOCHASTIC:
            return f"{self.target}({symbol}, {rounding})"
        working.know(r=str(Draw.of(self.seed, index).highest(self.random_bits)))
        return f"{self.target}({symbol}, {rounding}, r)"

    def _to_integer(self, rounding: Rounding, index: int, number: Fraction) -> int:
        """Return the integer that a number of last places is rounded to."""
        if rounding is not Rounding.STOCHASTIC:
            return round_to_integer(number, rounding)
        whole = math.trunc(number)
        distance = math.floor(abs(number - whole) * (1 << self.random_bits))
        away = distance + Draw.of(self.seed, index).highest(self.random_bits) >= 1 << self.random_bits
        return whole + (away if number > 0 else -away)

    @property
    def _saturates(self) -> bool:
        return saturates(self.rule, self.format, self.saturate)

    @property
    def _in_f64(self) -> bool:
        return self.source == "f64" and self.target in self.rule.f64_once

    def _signed(self, magnitude: int, sign: int) -> int:
        """Return a code with the sign. Formats without a negative zero have one zero."""
        if magnitude == 0 and self.format.specials is Specials.FNUZ:
            return 0
        return magnitude | sign

    def _finite_code(self, magnitude: Fraction) -> int:
        """Return the code of a number that the format has."""
        smallest = Fraction(self.format.smallest_normal)
        bits = self.format.mantissa_bits
        if magnitude < smallest:
            return int(magnitude / smallest * (1 << bits))
        exponent = math.frexp(float(magnitude))[1] - 1
        fraction = magnitude / Fraction(2) ** exponent - 1
        return ((exponent + self.format.bias) << bits) + int(fraction * (1 << bits))

    def _nan_code(self, y: float) -> int:
        """Return the code of a NaN, whose sign and highest mantissa bits it may keep."""
        special = special_codes(self.rule, self.target, self.source, self.saturate)
        bits: int = struct.unpack("<Q", struct.pack("<d", y))[0]
        mantissa = (bits & ((1 << 52) - 1)) >> (52 - self.format.mantissa_bits)
        magnitude = special.nan | mantissa & special.nan_payload
        sign = self.format.sign_bit if bits >> 63 else 0
        return max(magnitude, special.smallest_nan) | ((sign & special.nan_sign) ^ special.nan_flip)

    def _nan(self, working: Working, symbol: str, code: int) -> Code:
        self._add(working, StepKind.NAN, symbol, code)
        return Code(code)

    def _overflow(self, working: Working, symbol: str, code: int, formula: str = "") -> None:
        self._add(working, StepKind.OVERFLOW, symbol, code, formula)

    def _add(self, working: Working, step: StepKind, symbol: str, code: int, formula: str = "", **more: Any) -> None:
        """Add the step to a code. A NaN of f16 and bf16 has no bits there: explanations do not tell NaNs apart."""
        text = code_text(self.format, code)
        if self.format.width <= 8 or text != "NaN":
            more["bits"] = code_bits(self.format, code)
        working.text(step, "c", formula or f"{self.target}({symbol})", text, self.target, **more)

    def _scale_code(self, working: Working, symbol: str, x: float) -> Code:
        """f8E8M0FNU from the exponent and mantissa fields of an f32."""
        rounding = self.rounding or self.rule.roundings_to(self.target)[0]
        bits = int(np.array(x, np.float32).view(np.uint32))
        negative, magnitude = bits >> 31, bits & 0x7FFFFFFF
        exponent, mantissa = magnitude >> 23, magnitude & _MANTISSA
        before = self.rule.scale_range is ScaleRange.BEFORE_ROUNDING
        positive_only = self.rule.scale_range is ScaleRange.POSITIVE_ONLY
        if math.isnan(x):
            return self._nan(working, symbol, 255)
        beyond = 254 if self._saturates else 255
        value = -abs(x) if negative and (before or positive_only) else abs(x)
        low = (negative and (before or positive_only)) or value < self.format.smallest
        if before and low:
            code = 0 if self._saturates else 255
            self._overflow(working, symbol, code)
            return Code(code, Saturation.LOW)
        if positive_only and (negative or value == 0.0):
            self._overflow(working, symbol, 255)
            return Code(255, Saturation.LOW)
        if math.isinf(x):
            code = beyond if before else 255
            self._overflow(working, symbol, code)
            return Code(code, Saturation.HIGH)
        if before and value > 2.0**127:
            self._overflow(working, symbol, beyond)
            return Code(beyond, Saturation.HIGH)
        if before and exponent == 0:
            # 2^-127 and above, as if the exponent 0 had a hidden one.
            mantissa = mantissa << 1 & _MANTISSA
        working.integer(StepKind.DECODE, "E", f"exponent_field({symbol})", exponent)
        working.integer(StepKind.DECODE, "M", f"mantissa_field({symbol})", mantissa)
        half = 1 << 22
        # A tie between the two smallest scales goes down where subnormals are read by their fields as they are.
        goes_up = exponent > 0 or before
        formula, up = {
            Rounding.CEILING: ("E + (M > 0)", mantissa > 0),
            Rounding.FLOOR: ("E", False),
            Rounding.NEAREST_UP: (
                "E + (M >= 2^22)" if goes_up else "E + (M > 2^22)",
                mantissa >= half if goes_up else mantissa > half,
            ),
        }[rounding]
        code = exponent + up
        if code > 254:
            self._overflow(working, symbol, beyond)
            return Code(beyond, Saturation.HIGH)
        working.integer(StepKind.ENCODE, "c", formula, code)
        return Code(code, Saturation.LOW if low else None)


def code_text(format_: FloatElement, code: int) -> str:
    """Return the value of a code in decimal."""
    return float_text(format_.value(code), format_)


def code_bits(format_: FloatElement, code: int) -> str:
    """Return a code in hexadecimal."""
    return f"0x{code:0{(format_.width + 3) // 4}X}"


def _is_middle(number: Fraction, nearest: Fraction, element: FloatElement) -> bool:
    """Return whether a number lies halfway between the nearest one of a format and its neighbour."""
    other = 2 * number - nearest
    return round_exactly(other, element) == other


@dataclass(frozen=True, slots=True)
class CastExplainer(Explainer):
    """From any float to another. Without codes the result is exact.

    Steps show every NaN as NaN, also those at the end of a tensor that get other bits (`CastRule.nan_tails`).
    """

    codes: FloatCodes | None

    def element(self, index: int, source: Array) -> ElementExplanation:
        (x,) = numbers(source[index : index + 1], self.plan.input_type)
        return self._explained(x, index)

    def formula(self) -> tuple[str, ...]:
        is_code = self._source.name not in COMPUTE_DTYPES
        return formulas(self._explained(0 if is_code else 0.0)) if self.plan.elements else ()

    @property
    def _source(self) -> FloatElement:
        element = self.plan.input_type.element
        assert isinstance(element, FloatElement)
        return element

    def _explained(self, x: int | float, index: int = 0) -> ElementExplanation:
        working = Working()
        if isinstance(x, int):
            text, symbol, value = str(x), "v", decode(working, "x", x, self._source.name)
        else:
            text, symbol, value = float_text(x, self._source), "x", x
            working.know(x=text)
        if self.codes is None:
            target = float_element(self.plan.output_type, "output")
            working.float(StepKind.CONVERT, "y", f"{target.name}({symbol})", Rounded(value), target)
            return ElementExplanation(text, 0, tuple(working.steps), value)
        encoded = self.codes.explain(working, symbol, value, index)
        result: int | float = encoded.code
        if self.codes.target in COMPUTE_DTYPES:
            result = self.codes.format.value(encoded.code)
        return ElementExplanation(text, 0, tuple(working.steps), result, encoded.saturated)


def decode(working: Working, symbol: str, code: int, name: str) -> float:
    """Add the step from a code of a small float to its value, and return that."""
    format_ = small_float(name)
    working.know(**{symbol: str(code)})
    working.text(
        StepKind.DECODE, "v", f"{name}({symbol})", code_text(format_, code), name, bits=code_bits(format_, code)
    )
    return format_.value(code)


def cast_explainer(
    plan: CastPlan,
    *,
    rounding: Rounding | None = None,
    saturate: bool | None = None,
    seed: int = 0,
    random_bits: int | None = None,
) -> CastExplainer:
    """Return the explanation of a cast. `rounding` and `saturate` replace the profile's own; `seed` and `random_bits`
    are those of stochastic rounding."""
    rule = profile_named(plan.profile).cast_rule()
    source, target = plan.input_type.element, plan.output_type.element
    assert isinstance(source, FloatElement)
    assert isinstance(target, FloatElement)
    if plan.encoder is None:
        return CastExplainer(plan, None)
    bits = DRAWN_BITS if random_bits is None else random_bits
    return CastExplainer(plan, FloatCodes(rule, target.name, source.name, saturate, rounding, seed, bits))
