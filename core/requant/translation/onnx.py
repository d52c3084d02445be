"""ONNX: x_scale and x_zero_point of DequantizeLinear, y_scale and y_zero_point of QuantizeLinear.

per tensor   x_scale of rank 0
per axis     x_scale of rank 1, axis                                  opset 13
blocked      x_scale of the rank of x, axis, block_size               opset 21
"""

from __future__ import annotations

from typing import Any

from requant.description import Choices
from requant.errors import ParameterError, TypeFitError, UnsupportedError
from requant.formats.elements import FLOATS
from requant.mlir.types import UniformPerAxisType, UniformSubChannelType
from requant.operators.onnx.operands import LAST_OPSET, SINCE_OPSET, TENSOR_PROTO
from requant.translation import operand
from requant.translation.translation import (
    Read,
    Subject,
    SystemTranslation,
    Written,
    blocked,
    check_shape,
    count_of,
    normal_axis,
    read_scales,
    read_storage,
    read_zero_points,
    require_expressed,
    require_storage,
    require_whole_storage,
    require_zero_points,
    rounded_to,
    spelling_losses,
    uniform,
    zero_point_bounds,
)

_NAME = "ONNX"
STORED = {**SINCE_OPSET, "i32": 10}
EXPRESSED = {"f32": 10, "f16": 19, "bf16": 19}
_PER_AXIS, _BLOCKED, _OUTPUT_DTYPE = 13, 21, 23


def _blocked_axis(subject: Subject) -> tuple[int, int]:
    """Return axis and block size. Raise UnsupportedError for blocks along several dimensions."""
    sizes = subject.blocks()
    element = subject.element
    assert isinstance(element, UniformSubChannelType)
    shared = [axis for axis, (size, _) in enumerate(sizes) if element.scale_shape[axis] != size]
    if len(shared) > 1:
        listed = " and ".join(map(str, shared))
        raise UnsupportedError(f"scales are shared along dimensions {listed}; {_NAME} has blocks along one")
    axis = shared[0] if shared else len(sizes) - 1
    return axis, sizes[axis][1] if shared else 1


def _write(subject: Subject) -> Written:
    require_storage(subject, _NAME, tuple(STORED))
    require_whole_storage(subject, _NAME)
    require_expressed(subject, _NAME, tuple(EXPRESSED))
    stored, expressed = subject.storage_name, subject.element.expressed
    bounds = (0, 0) if stored == "i32" else zero_point_bounds(subject.storage)
    require_zero_points(subject, _NAME, *bounds)
    scales, rounded = rounded_to(subject.scales, expressed)
    operands: dict[str, Any] = {
        "x_type": stored,
        "scale_type": expressed.name,
        "scale_shape": [],
        "x_scale": list(scales),
        "x_zero_point": list(subject.zero_points),
    }
    opset = max(STORED[stored], EXPRESSED[expressed.name])
    if isinstance(subject.element, UniformPerAxisType):
        operands |= {"scale_shape": [len(scales)], "axis": subject.element.axis}
        opset = max(opset, _PER_AXIS)
    elif isinstance(subject.element, UniformSubChannelType):
        axis, block = _blocked_axis(subject)
        operands |= {"scale_shape": list(subject.element.scale_shape), "axis": axis, "block_size": block}
        opset = max(opset, _BLOCKED)
    takers = ("DequantizeLinear",) if stored == "i32" else ("QuantizeLinear", "DequantizeLinear")
    return Written(operands, rounded, spelling_losses(subject), takers, opset)


def _check_opset(operands: dict[str, Any], name: str, needed: int, what: str) -> None:
    opset = operands.get("opset", LAST_OPSET)
    if not 10 <= opset <= LAST_OPSET:
        raise UnsupportedError(f"opset is 10 to {LAST_OPSET}", pointer="/opset")
    if opset < needed:
        raise UnsupportedError(f"{_NAME} has {what} from opset {needed}; this is opset {opset}", pointer=f"/{name}")


def _check_counts(operands: dict[str, Any], shape: tuple[int, ...], axis: int, block: int) -> None:
    """Raise TypeFitError unless scales have the rank of x, its dimensions, and ceil(D / block) along the axis."""
    expected = [-(-size // block) if index == axis else size for index, size in enumerate(shape)]
    stated = list(operands["scale_shape"])
    if stated != expected:
        raise TypeFitError(f"scale_shape is {stated}; the blocks of x require {expected}", pointer="/scale_shape")


def _read(operands: dict[str, Any], shape: tuple[int, ...] | None) -> Read:
    storage = read_storage(operands, "x_type", tuple(STORED))
    _check_opset(operands, "x_type", STORED[operands["x_type"]], f"x of {operands['x_type']}")
    held = operands.get("scale_type", "f32")
    if held not in EXPRESSED:
        raise UnsupportedError(f"scale_type is one of {', '.join(EXPRESSED)}", pointer="/scale_type")
    _check_opset(operands, "scale_type", EXPRESSED[held], f"scales of {held}")
    expressed = FLOATS[held]
    if number := operands.get("output_dtype", 0):
        _check_opset(operands, "output_dtype", _OUTPUT_DTYPE, "output_dtype")
        name = TENSOR_PROTO.get(number, "")
        if name not in EXPRESSED:
            listed = ", ".join(f"{key} ({value})" for key, value in TENSOR_PROTO.items() if value in EXPRESSED)
            raise ParameterError(f"output_dtype is one of {listed}", pointer="/output_dtype")
        expressed = FLOATS[name]
    scales, rounded = read_scales(operands, "x_scale", expressed, held)
    counts = tuple(operands.get("scale_shape", ()))
    if count_of(counts) != len(scales):
        raise TypeFitError(f"scale_shape {list(counts)} has not {len(scales)} scales", pointer="/scale_shape")
    bounds = (0, 0) if operands["x_type"] == "i32" else zero_point_bounds(storage)
    zeros = read_zero_points(operands, "x_zero_point", len(scales), *bounds)
    block = operands.get("block_size", 0)
    if not block:
        if len(counts) > 1:
            raise TypeFitError("scales of several dimensions need block_size", pointer="/scale_shape")
        axis = None
        if counts:
            _check_opset(operands, "scale_shape", _PER_AXIS, "several scales")
            axis = normal_axis(operands.get("axis", 1), shape, "/axis")
        return check_shape(Subject(uniform(storage, expressed, axis, scales, zeros), shape)), rounded
    _check_opset(operands, "block_size", _BLOCKED, "block_size")
    if not counts:
        raise TypeFitError("with block_size, scales have the rank of x", pointer="/scale_shape")
    axis = normal_axis(operands.get("axis", 1), shape or counts, "/axis")
    if shape is not None:
        _check_counts(operands, shape, axis, block)
    sizes = [block if index == axis else 1 for index in range(len(counts))]
    element = blocked(storage, expressed, sizes, counts, scales, zeros, "/x_zero_point")
    return Subject(element, shape), rounded


_OPERANDS = operand.group(
    "Onnx",
    "ONNX",
    "x_scale and x_zero_point of DequantizeLinear, which are y_scale and y_zero_point of QuantizeLinear.",
    "operands",
    operand.named(
        "x_type",
        Choices("OnnxStoredType", tuple(STORED), "The stored types of ONNX's quantization operators."),
        "The element type of x and its zero points, as MLIR writes it.",
    ),
    operand.named(
        "scale_type",
        Choices("OnnxRealType", tuple(EXPRESSED), "The types of ONNX's scales."),
        "The element type of scales. Default: f32.",
        default="f32",
    ),
    operand.shape("scale_shape", "The shape of scales and zero points. Absent: rank 0.", default=()),
    operand.scales("x_scale", "Scales in row-major order."),
    operand.zero_points("x_zero_point"),
    operand.axis(1, "Default: 1."),
    operand.integer("block_size", "Elements of a block along the axis.", 0, 0),
    operand.integer("output_dtype", "The type of y by its number in TensorProto. Absent: that of scales.", 0, 0, 255),
    operand.integer("opset", "An opset that must support all operands.", None, 0, operand.INT32 - 1),
)

TRANSLATION = SystemTranslation(
    name="onnx",
    summary="x_scale and x_zero_point of QuantizeLinear and DequantizeLinear, with axis and block_size.",
    source="ONNX operators, opset 10 to 28",
    notes=(
        "`opset` is the first that holds the type. i32 is in DequantizeLinear only.",
        "Scales have the expressed type, which is that of y.",
        "Blocks are along one dimension only, and storage bounds cannot be narrower than the type.",
    ),
    write=_write,
    read=_read,
    operands=_OPERANDS,
)
