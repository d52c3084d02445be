"""A rule: a conversion of one number after the other by one set of parameters, and the intervals of its inputs.

It is computed by the plan and its kernels, as any tensor is. Inputs and outcomes are codes: an integer itself, or the
bits of a float. The inputs come in parts, in each of which codes ascend without a gap: all integers of the storage
type; of a float type the magnitudes of each sign, and the NaNs of each sign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize
from requant.convert.requantize import ThroughRealPlan, plan_requantize
from requant.convert.scaling import ScalingPlan
from requant.equality.formulas import (
    FloatFormulas,
    dequantize_steps,
    quantize_formulas,
    scheme_steps,
    widening_formulas,
)
from requant.equality.steps import Steps
from requant.errors import UnsupportedError, error_side, excerpt
from requant.formats.elements import FloatElement, Specials
from requant.formats.rounding import Rounding
from requant.mlir.printer import print_type
from requant.mlir.types import (
    ElementType,
    TensorType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
)
from requant.plan.plan import Plan
from requant.schemes import Multiplier

Codes = NDArray[np.int64]
Array = NDArray[Any]

Masked = Callable[[Array, Array], "NDArray[np.bool_] | None"]
"""Converts inputs into a target, and returns which of them are undefined, None where all are defined."""

# A plan is of a tensor: of one so large that no element is among its last ones, which some systems convert otherwise.
_ELEMENTS = 1 << 40
_NEVER = 1 << 62
"""As a code of infinity: there is none."""


@dataclass(frozen=True, slots=True)
class Part:
    """Inputs whose codes are `lowest` to `highest`, each with `sign` set, and the formula of the rule for them.

    `steps` is None where the rule is not proven to be monotone in pieces.
    """

    name: str
    lowest: int
    highest: int
    sign: int
    steps: Steps | None

    @property
    def size(self) -> int:
        """How many inputs there are."""
        return self.highest - self.lowest + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A conversion of numbers of `source` to those of `target`, both of one set of parameters.

    `source` is the format of floats that the inputs are, if they are. `text` says in words what it is, `input_name` the
    element type of the inputs: two rules are compared if they have the same. `masked` converts inputs too, where there
    is a faster way to learn which are undefined than from the plan, which tells the first.
    """

    text: str
    plan: Plan = field(repr=False)
    input_name: str
    parts: tuple[Part, ...]
    source: FloatElement | None = None
    masked: Masked | None = field(default=None, repr=False)

    def array(self, part: Part, codes: Codes) -> Array:
        """Return inputs of a part as the plan takes them."""
        dtype = self.plan.input_dtype
        if self.source is None:
            integers: Array = codes.astype(dtype)
            return integers
        unsigned = np.dtype(f"u{dtype.itemsize}")
        bits: Array = codes.astype(unsigned) | unsigned.type(part.sign)
        return bits.view(dtype)

    def consecutive(self, part: Part, start: int, size: int) -> Array:
        """Return as many inputs of a part, from the code `start` on."""
        dtype = self.plan.input_dtype
        if self.source is None:
            integers: Array = np.arange(start, start + size, dtype=dtype)
            return integers
        # No code of a part has the bit of the sign.
        bits: Array = np.arange(part.sign + start, part.sign + start + size, dtype=f"u{dtype.itemsize}")
        viewed: Array = bits.view(dtype)
        return viewed

    def stored(self, array: Array) -> Array:
        """Convert inputs, without looking at what is undefined, and return the outcomes as the plan stores them."""
        target = np.empty(array.size, self.plan.output_dtype)
        self.convert(array, target)
        return target

    def convert(self, array: Array, target: Array) -> int | None:
        """Convert inputs into `target`. Return the index of the first that is undefined, if there is one."""
        counts = self.plan.new_counts()
        self.plan.step(array, target, 0, counts)
        first = int(counts[3])
        return None if first < 0 else first

    def outcomes(self, part: Part, codes: Codes) -> Codes:
        """Return the outcomes of inputs of a part, as codes that are in the order of their magnitudes."""
        return self.codes(self.stored(self.array(part, codes)))

    def codes(self, stored: Array) -> Codes:
        """Return outcomes as codes. Of f64 they are the bits as a signed integer: ascending for either sign."""
        if self.gives_floats:
            stored = stored.view("i8" if stored.itemsize == 8 else f"u{stored.itemsize}")
        return stored.astype(np.int64)

    @property
    def gives_floats(self) -> bool:
        """Whether outcomes are floats, whose codes are bits."""
        return isinstance(self.plan.output_type.element, FloatElement)

    def published(self, code: int) -> int:
        """Return an outcome as it is reported: the bits of a float as an unsigned integer."""
        return code & ((1 << 64) - 1) if self.gives_floats else code

    def is_defined(self, part: Part, code: int) -> bool:
        """Whether the kernel has an outcome for an input."""
        array = self.array(part, np.array([code], np.int64))
        return self.convert(array, np.empty(1, self.plan.output_dtype)) is None

    def outcome(self, part: Part, code: int) -> int | None:
        """Return the outcome of one input, None where the rule is undefined."""
        array = self.array(part, np.array([code], np.int64))
        target = np.empty(1, self.plan.output_dtype)
        if self.convert(array, target) is not None:
            return None
        return self.published(int(self.codes(target)[0]))


def rule_of(plan: Plan, text: str) -> Rule:
    """Return the rule of a plan with one set of parameters, of whatever kind."""
    source, target = plan.input_type.element, plan.output_type.element
    stored = source.storage.element if isinstance(source, UniformQuantizedType) else source
    if not isinstance(stored, FloatElement):
        if isinstance(target, FloatElement):
            return _of_integers(text, plan, dequantize_steps(plan, target))
        return scaling_rule(plan, text)
    widens = isinstance(target, FloatElement) and target.width > stored.width
    formulas = widening_formulas(plan, stored) if widens else quantize_formulas(plan, stored)
    return _of_floats(text, plan, stored, formulas)


def requantization(
    input_type: Type,
    output_type: Type,
    profile: str = "litert",
    *,
    scheme: str | None = None,
    multiplier: Multiplier | None = None,
) -> Rule:
    """Return the rule of `plan_requantize` for element types; `multiplier` replaces the one derived from the scales.

    Raise what that raises, and UnsupportedError for types with several parameters.
    """
    source, target = _tensor(input_type, "input"), single(output_type, "output")
    multipliers = None if multiplier is None else [multiplier]
    plan = plan_requantize(source, target, profile, multipliers, scheme=scheme)
    # A scheme that is named takes the place of the profile.
    return scaling_rule(plan, _text("requantize", source, target, None if scheme is not None else profile))


def scaling_rule(plan: Plan, text: str) -> Rule:
    """Return the rule of a plan from integers to integers: by one multiplier, or through real numbers."""
    steps: Steps | None = None
    if isinstance(plan, ScalingPlan):
        multiplier = plan.multipliers[0]
        text = f"{text}, scheme {plan.scheme.name}, multiplier {multiplier.multiplier}, shift {multiplier.shift}"
        steps = scheme_steps(plan)
    elif isinstance(plan, ThroughRealPlan):
        real = plan.dequantize.output_type.element
        assert isinstance(real, FloatElement)
        first, second = dequantize_steps(plan.dequantize, real), quantize_formulas(plan.quantize, real).numbers
        # The last step of the first is the code of the float that the second takes.
        steps = None if first is None or second is None else (*first[:-1], *second)
    return _of_integers(text, plan, steps)


def quantization(
    input_type: Type,
    output_type: Type,
    profile: str = "stablehlo",
    *,
    rounding: Rounding | None = None,
    nan: NanPolicy = NanPolicy.PROFILE,
    saturate: bool | None = None,
) -> Rule:
    """Return the rule of `plan_quantize` for element types: a quantization, or a cast to a narrower float.

    Raise what that raises, and UnsupportedError for types with several parameters, and for stochastic rounding.
    """
    if rounding is Rounding.STOCHASTIC:
        raise UnsupportedError(
            "stochastic rounding depends on the place of an element, so that it is no rule of single numbers",
            pointer="/rounding",
        )
    source, target = _tensor(input_type, "input"), single(output_type, "output")
    plan = plan_quantize(source, target, profile, rounding=rounding, nan=nan, saturate=saturate)
    element = source.element
    assert isinstance(element, FloatElement)
    options = {"rounding": rounding, "nan": None if nan is NanPolicy.PROFILE else nan, "saturate": saturate}
    text = _text("quantize", source, target, profile, **options)
    return _of_floats(text, plan, element, quantize_formulas(plan, element))


def dequantization(input_type: Type, output_type: Type | None = None, profile: str = "stablehlo") -> Rule:
    """Return the rule of `plan_dequantize` for element types: also a widening cast, and each decoder of sub-byte
    numbers.

    Raise what that raises, and UnsupportedError for types with several parameters.
    """
    source = _tensor(input_type, "input")
    plan = plan_dequantize(source, None if output_type is None else single(output_type, "output"), profile)
    text = _text("dequantize", source, plan.output_type.element, profile)
    element, target = plan.input_type.element, plan.output_type.element
    assert isinstance(target, FloatElement)
    small = element.storage.element if isinstance(element, UniformQuantizedType) else element
    if isinstance(small, FloatElement):
        return _of_floats(text, plan, small, widening_formulas(plan, small))
    steps = dequantize_steps(plan, target)
    return _of_integers(text, plan, steps)


def single(type_: Type, side: str) -> ElementType:
    """Return the element type of one side."""
    element = type_.element if isinstance(type_, TensorType) else type_
    with error_side(side):
        if isinstance(element, UniformPerAxisType | UniformSubChannelType):
            raise UnsupportedError(
                f"the {side} has several scales, and a rule has one: compare one channel, such as "
                "!quant.uniform<i8:f32, 0.5:3>, at a time"
            )
        if not isinstance(element, ElementType):
            raise UnsupportedError(f"the {side} is {excerpt(print_type(type_))}, which no tensor has as its elements")
    return element


def _tensor(type_: Type, side: str) -> TensorType:
    return TensorType((_ELEMENTS,), single(type_, side))


def _text(operation: str, source: TensorType, target: ElementType, profile: str | None, **options: Any) -> str:
    given = "".join(f", {name} {value}" for name, value in {"profile": profile, **options}.items() if value is not None)
    return f"{operation} {print_type(source.element)} to {print_type(target)}{given}"


def _of_integers(text: str, plan: Plan, steps: Steps | None) -> Rule:
    element = plan.input_type.element
    limits = np.iinfo(plan.input_dtype)
    lowest, highest = plan.input_bounds or (int(limits.min), int(limits.max))
    width = element.storage.width if isinstance(element, UniformQuantizedType) else (highest - lowest).bit_length()
    name = f"{plan.input_dtype.kind}{width}"
    return Rule(text=text, plan=plan, input_name=name, parts=(Part("integers", lowest, highest, 0, steps),))


def _of_floats(text: str, plan: Plan, element: FloatElement, formulas: FloatFormulas) -> Rule:
    return Rule(text=text, plan=plan, input_name=element.name, source=element, parts=_floats(element, formulas))


def _floats(element: FloatElement, formulas: FloatFormulas) -> tuple[Part, ...]:
    """Return the numbers and the NaNs of each sign that the format has."""
    infinity = element.infinity_code
    last = element.largest_code if infinity is None else infinity
    highest = (1 << element.width - (element.sign_bit > 0)) - 1
    parts = []
    for negative, sign in enumerate([0, element.sign_bit] if element.sign_bit else [0]):
        what = "negative" if negative else "positive"
        without_zero = bool(negative) and element.specials is Specials.FNUZ
        steps = None
        if formulas.numbers is not None and element.specials is not Specials.SCALE:
            code = _NEVER if infinity is None else infinity
            steps = (("decode", element.mantissa_bits, element.bias, code, -1 if negative else 1), *formulas.numbers)
        parts.append(Part(f"{what} numbers", int(without_zero), last, sign, steps))
        nan = formulas.nans[negative]
        if without_zero:
            parts.append(Part("NaN", 0, 0, sign, nan))
        elif last < highest:
            # The mantissa bits of the NaN.
            offset = (("add", -(last if infinity is not None else 0), 1),)
            parts.append(Part(f"{what} NaN", last + 1, highest, sign, None if nan is None else (*offset, *nan)))
    return tuple(parts)
