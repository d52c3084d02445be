"""TOSA's RESCALE under its own name, operands and attributes, of TOSA 1.0.

    v = x - input_zp ;  y = scaled(v, multiplier[c], shift[c]) ;  clamp(y + output_zp)

c is the index along the last dimension with per_channel, else 0. What is scaled how is a scheme's
(`requant.schemes.tosa`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from requant.convert.requantize import RescaleSide, check_signs
from requant.convert.scaling import ScalingPlan, common_granularity, plan_scaling
from requant.errors import (
    ParameterError,
    PreconditionError,
    RequantError,
    TypeFitError,
    UnsupportedError,
    error_side,
    excerpt,
)
from requant.formats.elements import IntegerElement, Signedness, integer_dtype
from requant.mlir.printer import print_type
from requant.mlir.types import TensorType, Type
from requant.plan.operands import StoredOperand, bind, static_shape
from requant.plan.plan import Array, Plan
from requant.schemes import Multiplier, scheme_named


class RescaleRounding(StrEnum):
    """TOSA's rounding_mode."""

    SINGLE_ROUND = "SINGLE_ROUND"
    DOUBLE_ROUND = "DOUBLE_ROUND"
    INEXACT_ROUND = "INEXACT_ROUND"


_SCHEMES: Mapping[tuple[bool, RescaleRounding], str] = {
    (True, RescaleRounding.SINGLE_ROUND): "tosa",
    (True, RescaleRounding.DOUBLE_ROUND): "tosa_double_round",
    (True, RescaleRounding.INEXACT_ROUND): "tosa_inexact_round",
    (False, RescaleRounding.SINGLE_ROUND): "tosa_scale16",
    (False, RescaleRounding.INEXACT_ROUND): "tosa_scale16_inexact_round",
}
_INPUTS = ("i8", "i16", "i32", "i48")
_OUTPUTS = ("i8", "i16", "i32")
_LEAST_SHIFT, _MAX_SHIFT = 2, 62


@dataclass(frozen=True, slots=True, kw_only=True)
class RescalePlan(Plan):
    """Plan of a RESCALE between tensors of plain integers; unsigned numbers are their signed bit patterns."""

    scaling: ScalingPlan

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        scaling = self.scaling
        scaling.step(source.view(scaling.input_dtype), target.view(scaling.output_dtype), start, counts)

    def new_counts(self) -> Array:
        return self.scaling.new_counts()

    def explain_undefined(self, counts: Array) -> str:
        return self.scaling.explain_undefined(counts)


@contextmanager
def _operand(name: str) -> Iterator[None]:
    """Point errors at the operand or attribute of that name."""
    try:
        yield
    except RequantError as error:
        error.pointer = f"/{name}"
        raise


def _element(tensor: TensorType, side: str, supported: tuple[str, ...]) -> IntegerElement:
    element = tensor.element
    if not isinstance(element, IntegerElement) or element.name not in supported:
        unsigned = isinstance(element, IntegerElement) and element.signedness is Signedness.UNSIGNED
        hint = f"; for unsigned numbers set {side}_unsigned" if unsigned else ""
        elements = excerpt(print_type(element))
        raise UnsupportedError(
            f"the {side} has elements of {elements}; RESCALE takes {', '.join(supported)} there{hint}"
        )
    return element


def _check_numbers(name: str, values: Sequence[int], width: int) -> None:
    """Raise ParameterError unless every entry of an operand fits its element type."""
    half = 1 << (width - 1)
    for index, value in enumerate(values):
        if not -half <= value < half:
            detail = f"{name} {index} is outside {-half} to {half - 1}, which i{width} holds"
            raise ParameterError(detail, pointer=f"/{name}/{index}")


def _zero_point(side: RescaleSide, number: int) -> int:
    """Return the number of a zero point, which may be given as its signed bit pattern if the side is unsigned."""
    width = int(side.element[1:])
    half = 1 << (width - 1)
    highest = 2 * half - 1 if side.unsigned else half - 1
    with _operand(f"{side.name}_zp"):
        if not -half <= number <= highest:
            raise ParameterError(f"{side.name}_zp is outside {-half} to {highest}, which {side.text} holds")
        zero_point = number % (2 * half) if side.unsigned else number
        side.check_zero_point(zero_point)
    return zero_point


def _channels(shape: tuple[int, ...], per_channel: bool, multiplier: Sequence[int], shift: Sequence[int]) -> int:
    """Return how many channels there are. Raise TypeFitError unless there are as many multipliers and shifts."""
    if per_channel and not shape:
        detail = "RESCALE with per_channel takes rank 1 and more; the input has rank 0"
        raise UnsupportedError(detail, pointer="/per_channel")
    count = shape[-1] if per_channel else 1
    reason = f"one for each of the {count} indices of the last dimension" if per_channel else "one, without per_channel"
    for name, values in (("multiplier", multiplier), ("shift", shift)):
        if len(values) != count:
            raise TypeFitError(f"{name} has {len(values)} entries; RESCALE takes {reason}", pointer=f"/{name}")
    return count


def _check_requirements(multiplier: Sequence[int], shift: Sequence[int]) -> None:
    """Raise PreconditionError for the first channel, whose first element has its index, that fails a REQUIRE."""
    for channel, (m, s) in enumerate(zip(multiplier, shift, strict=True)):
        if m < 0:
            detail = f"RESCALE requires multiplier >= 0; multiplier {channel} is {m}"
            raise PreconditionError(detail, index=channel, pointer=f"/multiplier/{channel}")
        if not _LEAST_SHIFT <= s <= _MAX_SHIFT:
            detail = f"RESCALE requires {_LEAST_SHIFT} <= shift <= {_MAX_SHIFT}; shift {channel} is {s}"
            raise PreconditionError(detail, index=channel, pointer=f"/shift/{channel}")


def _stored(tensor: TensorType, side: RescaleSide, zero_point: int) -> StoredOperand:
    width = int(side.element[1:])
    lowest, highest = (0, (1 << width) - 1) if side.unsigned else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    return StoredOperand(
        tensor=tensor,
        storage=f"{'u' if side.unsigned else 'i'}{width}",
        width=width,
        dtype=integer_dtype(width, signed=not side.unsigned),
        lowest=lowest,
        highest=highest,
        minimum=lowest,
        maximum=highest,
        zero_points=(zero_point,),
        blocks=static_shape(tensor),
    )


def rescale_scheme(scale32: bool, rounding_mode: RescaleRounding) -> str:
    """Return the name of the scheme that multipliers are those of, or raise UnsupportedError."""
    if (scale32, rounding_mode) not in _SCHEMES:
        raise UnsupportedError(f"RESCALE takes {rounding_mode} only with scale32", pointer="/rounding_mode")
    return _SCHEMES[scale32, rounding_mode]


def plan_rescale(
    input_type: TensorType,
    output_type: Type,
    multiplier: Sequence[int],
    shift: Sequence[int],
    *,
    input_zp: int = 0,
    output_zp: int = 0,
    scale32: bool = True,
    rounding_mode: RescaleRounding = RescaleRounding.SINGLE_ROUND,
    per_channel: bool = False,
    input_unsigned: bool = False,
    output_unsigned: bool = False,
) -> RescalePlan:
    """Plan a RESCALE of a tensor of i8, i16, i32 or i48 to one of i8, i16 or i32, by TOSA's operands and attributes.

    TOSA's attributes have no defaults; these are the values that compilers write most. Zero points of an unsigned side
    are numbers or their signed bit patterns. Raise UnsupportedError where an ERROR_IF holds, TypeFitError where shapes
    disagree or have no elements, ParameterError for a number that its operand's element type does not hold, and
    PreconditionError for a multiplier or shift that makes the result unpredictable.
    """
    with error_side("input"):
        shape = static_shape(input_type)
        if 0 in shape:
            raise TypeFitError("the input has a dimension of 0; TOSA's tensors have at least 1 of each")
        source_element = _element(input_type, "input", _INPUTS)
    with error_side("output"):
        target_type = bind(output_type, shape)
        target_element = _element(target_type, "output", _OUTPUTS)
    source = RescaleSide("input", source_element.name, input_unsigned)
    target = RescaleSide("output", target_element.name, output_unsigned)
    if scale32 and source.element == "i48":
        raise UnsupportedError("RESCALE with scale32 does not take i48", pointer="/scale32")
    scheme = scheme_named(rescale_scheme(scale32, rounding_mode))
    try:
        check_signs(source, target)
    except UnsupportedError as error:
        error.pointer = f"/{error.side}_unsigned"
        raise
    operands = (
        _stored(input_type, source, _zero_point(source, input_zp)),
        _stored(target_type, target, _zero_point(target, output_zp)),
    )
    count = _channels(shape, per_channel, multiplier, shift)
    _check_numbers("multiplier", multiplier, 32 if scale32 else 16)
    _check_numbers("shift", shift, 8)
    _check_requirements(multiplier, shift)
    blocks = (*shape[:-1], 1) if per_channel else shape
    granularity = common_granularity(shape, (shape, 1), (shape, 1), (blocks, count))
    multipliers = [Multiplier(*pair) for pair in zip(multiplier, shift, strict=True)]
    scaling = plan_scaling(scheme, *operands, granularity, multipliers, profile="tosa")
    return RescalePlan(
        profile=scaling.profile,
        rounding=scaling.rounding,
        input_type=input_type,
        output_type=target_type,
        input_dtype=np.dtype(source_element.dtype),
        output_dtype=np.dtype(target_element.dtype),
        elements=scaling.elements,
        multipliers=scaling.multipliers,
        input_bounds=None if source.unsigned else scaling.input_bounds,
        scaling=scaling,
    )
