"""TOSA: zero points, and with a second type the multipliers and shifts of TOSA 1.0's RESCALE to it.

    m * 2^-shift ~ s_in / s_out in f64, one for each index of the last dimension with per_channel

TOSA's tensors have no scales: without a second type they are lost.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite
from typing import Any

from requant.convert.requantize import RescaleSide, check_signs
from requant.description import Choices, Kind, Option
from requant.errors import ParameterError, RequantError, TypeFitError, UnsupportedError
from requant.errors.cancellation import checked
from requant.formats.elements import IntegerElement
from requant.mlir.types import UniformPerAxisType, UniformSubChannelType
from requant.mlir.verifier import scale_fault
from requant.operators.tosa.rescale import SCALE32
from requant.schemes import Multiplier, scheme_named
from requant.translation import operand
from requant.translation.translation import (
    Read,
    Rounding,
    Subject,
    SystemTranslation,
    Written,
    check_shape,
    require_storage,
    require_whole_storage,
    spelling_losses,
    stored_as,
    uniform,
)

_NAME = "TOSA"
_STORED = ("i8", "ui8", "i16", "ui16", "i32")
ELEMENTS = ("i8", "i16", "i32")
_SCHEME = "tosa"
_SHIFTS = (2, 62)


def _side(subject: Subject, name: str) -> RescaleSide:
    if isinstance(subject.element, UniformSubChannelType):
        raise UnsupportedError(f"{_NAME}'s multipliers are per tensor or along the last dimension, not of blocks")
    require_storage(subject, _NAME, _STORED)
    require_whole_storage(subject, _NAME)
    side = RescaleSide(name, subject.storage_name.lstrip("u"), subject.storage_name.startswith("u"))
    if len(set(subject.zero_points)) > 1:
        raise UnsupportedError(f"{_NAME} has one zero point for a tensor; these are several")
    assert isinstance(subject.storage.element, IntegerElement)
    lowest, highest = subject.storage.default_bounds
    if not lowest <= subject.zero_points[0] <= highest:
        raise UnsupportedError(f"zero points of {subject.storage_name} are {lowest} to {highest} in {_NAME}")
    side.check_zero_point(subject.zero_points[0])
    return side


def _last_dimension(subject: Subject, target: Subject) -> bool:
    """Return whether there are multipliers for each index of the last dimension."""
    shape = subject.shape or target.shape
    axes = {each.element.axis for each in (subject, target) if isinstance(each.element, UniformPerAxisType)}
    if not axes:
        return False
    if shape is None:
        raise UnsupportedError(
            "whether the axis is the last dimension depends on the shape: write tensor<...> around it"
        )
    if axes != {len(shape) - 1}:
        raise UnsupportedError(f"{_NAME} has multipliers along the last dimension only, here {len(shape) - 1}")
    return True


def _write(subject: Subject) -> Written:
    source = _side(subject, "input")
    operands: dict[str, Any] = {
        "input_type": source.element,
        "input_unsigned": source.unsigned,
        "input_zp": subject.zero_points[0],
    }
    losses = spelling_losses(subject)
    if subject.target is None:
        lost = f"{_NAME}'s tensors have no scales; with rescale_to there are multipliers"
        return Written(operands, (), (*losses, lost))
    target = subject.target
    side = _side(target, "output")
    check_signs(source, side)
    per_channel = _last_dimension(subject, target)
    scheme = scheme_named(_SCHEME)
    count = max(len(subject.scales), len(target.scales))
    ins, outs = (each.scales * (1 if len(each.scales) == count else count) for each in (subject, target))
    multipliers, rounded = [], []
    for index, (scale_in, scale_out) in enumerate(checked(zip(ins, outs, strict=True))):
        factor = scheme.factor.of(scale_in, None, scale_out)
        if not isfinite(factor):
            raise UnsupportedError(f"factor {index}, the input scale by the output scale, is beyond f64")
        try:
            derived = scheme.derive(factor)
        except RequantError as error:
            raise UnsupportedError(error.detail) from None
        multipliers.append(derived)
        represented = scheme.represented(derived)
        if represented != (quotient := Fraction(scale_in) / Fraction(scale_out)):
            rounded.append(Rounding(index, quotient, represented))
    operands |= {
        "output_type": side.element,
        "output_unsigned": side.unsigned,
        "output_zp": target.zero_points[0],
        "multiplier": [each.multiplier for each in multipliers],
        "shift": [each.shift for each in multipliers],
        "scale32": True,
        "per_channel": per_channel,
    }
    lost = f"{_NAME}'s tensors have no scales; the multipliers have their quotient"
    return Written(operands, tuple(rounded), (*losses, lost))


def _whole(operands: dict[str, Any], side: str) -> tuple[str, int]:
    """Return the stored type and zero point of a side. Raise the errors of RESCALE for those that it does not take."""
    name = f"{side}_type"
    if operands.get(name) not in ELEMENTS:
        raise UnsupportedError(f"{name} is one of {', '.join(ELEMENTS)}", pointer=f"/{name}")
    unsigned = operands.get(f"{side}_unsigned", False)
    stored = f"{'u' if unsigned else ''}{operands[name]}"
    zero_point = operands.get(f"{side}_zp", 0)
    lowest, highest = stored_as(stored).default_bounds
    if not lowest <= zero_point <= highest:
        raise ParameterError(f"{side}_zp of {stored} is {lowest} to {highest}", pointer=f"/{side}_zp")
    try:
        RescaleSide(side, operands[name], unsigned).check_zero_point(zero_point)
    except UnsupportedError as error:
        error.pointer = f"/{side}_zp"
        raise
    return stored, zero_point


def _check_pairs(operands: dict[str, Any]) -> list[Multiplier]:
    multipliers, shifts = operands.get("multiplier"), operands.get("shift")
    if multipliers is None or shifts is None or not multipliers or len(multipliers) != len(shifts):
        raise TypeFitError("the numbers of multipliers and shifts must be equal and at least 1", pointer="/multiplier")
    most = (1 << (31 if operands.get("scale32", True) else 15)) - 1
    for index, (multiplier, shift) in enumerate(zip(multipliers, shifts, strict=True)):
        if not 1 <= multiplier <= most:
            raise ParameterError(f"multiplier {index} must be 1 to {most}", pointer=f"/multiplier/{index}")
        if not _SHIFTS[0] <= shift <= _SHIFTS[1]:
            raise ParameterError(f"shift {index} must be {_SHIFTS[0]} to {_SHIFTS[1]}", pointer=f"/shift/{index}")
    return [Multiplier(*pair) for pair in zip(multipliers, shifts, strict=True)]


def _read(operands: dict[str, Any], shape: tuple[int, ...] | None) -> Read:
    """Return the type of RESCALE's output from that of its input: s_out = s_in / (m * 2^-shift)."""
    source = operands.get("input")
    if not isinstance(source, Subject):
        raise UnsupportedError(
            f"{_NAME}'s operands have no scale; give the type that they rescale in input",
            pointer="/input" if "input" in operands else "",
        )
    side = _side(source, "input")
    stored, zero_point = _whole(operands, "output")
    check_signs(side, RescaleSide("output", operands["output_type"], operands.get("output_unsigned", False)))
    pairs = _check_pairs(operands)
    shape = source.shape or shape
    per_axis = operands.get("per_channel", False) or isinstance(source.element, UniformPerAxisType)
    if per_axis and not shape:
        raise UnsupportedError(
            "with per_channel the shape is needed: the last dimension has the channels", pointer="/input"
        )
    if not operands.get("per_channel", False) and len(pairs) != 1:
        raise TypeFitError(
            f"without per_channel there is one multiplier; these are {len(pairs)}", pointer="/multiplier"
        )
    count = max(len(pairs), len(source.scales))
    expressed, scales, rounded = source.element.expressed, [], []
    for index in range(count):
        pair = pairs[index % len(pairs)]
        exact = Fraction(source.scales[index % len(source.scales)]) * (1 << pair.shift) / pair.multiplier
        scale = float(exact)
        if fault := scale_fault(scale, expressed):
            raise ParameterError(f"no type has the scale of channel {index}: {fault}", pointer="/multiplier")
        scales.append(scale)
        if Fraction(scale) != exact:
            rounded.append(Rounding(index, exact, scale))
    axis = len(shape) - 1 if per_axis and shape else None
    element = uniform(stored_as(stored), expressed, axis, tuple(scales), (zero_point,) * count)
    return check_shape(Subject(element, shape)), tuple(rounded)


def _operands_of_side(side: str) -> tuple[Option, ...]:
    """Return the operands that RESCALE has for its input, and for its output."""
    return (
        operand.named(f"{side}_type", _ELEMENT, f"The element type of the {side}.", optional=True),
        operand.flag(f"{side}_unsigned", "Whether its bits are unsigned numbers.", default=False),
        operand.integer(f"{side}_zp", default=0),
    )


_ELEMENT = Choices("TosaStoredType", ELEMENTS, "The element types of RESCALE.")
_OPERANDS = operand.group(
    "Tosa",
    "TOSA",
    "Zero points, and multipliers and shifts of a RESCALE. Zero points are numbers, not bit patterns.",
    "operands",
    Option(
        name="input",
        kind=Kind.TYPE,
        description="Only in requests: the MLIR type that is rescaled.",
        optional=True,
    ),
    *_operands_of_side("input"),
    *_operands_of_side("output"),
    operand.integers("multiplier", "One, or one for each index of the last dimension."),
    operand.integers("shift", "Right shifts, as many."),
    SCALE32,
    operand.flag("per_channel", "Whether there is one for each index of the last dimension.", default=False),
)

TRANSLATION = SystemTranslation(
    name="tosa",
    summary="Zero points, and the multipliers and shifts of a RESCALE from one type to another.",
    source="TOSA 1.0 RESCALE; MLIR computeMultiplierAndShift",
    notes=(
        "Tensors have no scales: a type alone gives its zero point. With `rescale_to` there are multipliers and "
        "shifts, and `rounded` lists the quotients of scales that they cannot represent exactly.",
        "Back, `input` is the type of RESCALE's input, and the type of its output is answered.",
        "One zero point for a tensor: any of i8 and ui8, 0 of i16 and i32, 0 or 32768 of ui16.",
    ),
    write=_write,
    read=_read,
    operands=_OPERANDS,
)
