"""LiteRT: QuantizationParameters of a tensor, and which kernels take them (LiteRT 8-bit quantization specification)"""

from __future__ import annotations

from typing import Any

from requant.description import Choices
from requant.errors import ParameterError, TypeFitError, UnsupportedError
from requant.formats.elements import FLOATS
from requant.mlir.parser import MAXIMUM_RANK
from requant.mlir.types import UniformPerAxisType, UniformSubChannelType
from requant.translation import operand
from requant.translation.translation import (
    Read,
    Subject,
    SystemTranslation,
    Written,
    check_shape,
    normal_axis,
    read_scales,
    read_zero_points,
    require_expressed,
    require_storage,
    require_whole_storage,
    require_zero_points,
    rounded_to,
    spelling_losses,
    stored_as,
    uniform,
    zero_point_bounds,
)

_NAME = "LiteRT"
_F32 = FLOATS["f32"]
TENSOR_TYPES = {
    "i8": "INT8", "ui8": "UINT8", "i16": "INT16", "i32": "INT32", "i4": "INT4", "ui4": "UINT4", "i2": "INT2",
}  # fmt: skip
_STORED = {name: stored for stored, name in TENSOR_TYPES.items()}


def takers(stored: str, *, per_axis: bool, shifted: bool) -> list[str]:
    """Return which of QUANTIZE (of f32) and DEQUANTIZE take a tensor. `shifted`: a zero point is not 0."""
    operators = []
    if stored in ("i8", "ui8", "i16") or (stored in ("i4", "ui4") and not per_axis):
        operators.append("QUANTIZE")
    if stored in ("i8", "ui8", "i4", "ui4", "i2") or (stored == "i16" and not per_axis and not shifted):
        operators.append("DEQUANTIZE")
    return operators


def _unusable(stored: str) -> str:
    return f"no kernel takes {TENSOR_TYPES[stored]} with these parameters"


def _write(subject: Subject) -> Written:
    element, stored = subject.element, subject.storage_name
    if isinstance(element, UniformSubChannelType):
        raise UnsupportedError(f"{_NAME}'s scale and zero_point are per tensor or along one dimension, not of blocks")
    require_storage(subject, _NAME, tuple(TENSOR_TYPES))
    require_whole_storage(subject, _NAME)
    require_expressed(subject, _NAME, ("f32",))
    # INT32 is for biases, which have none.
    require_zero_points(subject, _NAME, *((0, 0) if stored == "i32" else zero_point_bounds(subject.storage)))
    per_axis = isinstance(element, UniformPerAxisType)
    operators = takers(stored, per_axis=per_axis, shifted=any(subject.zero_points))
    if not operators and stored != "i32":
        raise UnsupportedError(_unusable(stored))
    scales, rounded = rounded_to(subject.scales, _F32)
    operands: dict[str, Any] = {
        "type": TENSOR_TYPES[stored],
        "scale": list(scales),
        "zero_point": list(subject.zero_points),
        "quantized_dimension": element.axis if isinstance(element, UniformPerAxisType) else 0,
    }
    losses = spelling_losses(subject)
    if per_axis and len(scales) == 1:
        losses += ("one scale is read back as that of the whole tensor",)
    return Written(operands, rounded, losses, tuple(operators))


def _read(operands: dict[str, Any], shape: tuple[int, ...] | None) -> Read:
    if operands["type"] not in _STORED:
        raise UnsupportedError(f"type is one of {', '.join(_STORED)}", pointer="/type")
    stored = _STORED[operands["type"]]
    storage = stored_as(stored)
    scales, rounded = read_scales(operands, "scale", _F32, "f32")
    zero_points = operands.get("zero_point")
    bounds = (0, 0) if stored == "i32" else zero_point_bounds(storage)
    if zero_points is not None and len(zero_points) == 1 and len(scales) > 1:
        raise TypeFitError(f"zero_point has 1 entry and scale {len(scales)}", pointer="/zero_point")
    zeros = read_zero_points(operands, "zero_point", len(scales), *bounds)
    axis = None
    if len(scales) > 1:
        axis = operands.get("quantized_dimension", 0)
        if axis < 0:
            raise ParameterError("quantized_dimension is 0 or more", pointer="/quantized_dimension")
        axis = normal_axis(axis, shape, "/quantized_dimension")
    if stored != "i32" and not takers(stored, per_axis=axis is not None, shifted=any(zeros)):
        raise UnsupportedError(_unusable(stored), pointer="/zero_point" if any(zeros) else "/type")
    return check_shape(Subject(uniform(storage, _F32, axis, scales, zeros), shape)), rounded


_OPERANDS = operand.group(
    "Litert",
    "LiteRT",
    "QuantizationParameters of a LiteRT tensor.",
    "parameters",
    operand.named(
        "type",
        Choices("LitertTensorType", tuple(TENSOR_TYPES.values()), "LiteRT's types of quantized tensors."),
        "The tensor's type.",
    ),
    operand.scales("scale"),
    operand.zero_points("zero_point"),
    operand.integer("quantized_dimension", "The dimension that several scales go along.", 0, 0, MAXIMUM_RANK - 1),
)

TRANSLATION = SystemTranslation(
    name="litert",
    summary="QuantizationParameters of a tensor: type, scale, zero_point, quantized_dimension.",
    source="LiteRT f67457790c9c (ai-edge-litert 2.3.0)",
    notes=(
        "`operators` are which of QUANTIZE (of f32) and DEQUANTIZE take the tensor; none for INT32, that of biases.",
        "DEQUANTIZE takes INT16 per tensor with zero point 0 only; QUANTIZE gives INT4 and UINT4 per tensor only, and "
        "no INT2.",
        "Scales are f32. There are no storage bounds: the range -127 to 127 of weights is a rule of the kernels.",
    ),
    write=_write,
    read=_read,
    operands=_OPERANDS,
)
