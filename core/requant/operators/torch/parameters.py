"""What torch's operators share: data types by torch's names, bounds, scales and zero points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from requant.description import Array, Choices, Kind
from requant.errors import ParameterError, TypeFitError
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir.types import StorageType, TensorType, UniformPerAxisType, UniformType
from requant.operators.description import Attribute, Operand, OperatorCall
from requant.operators.element_names import element_named
from requant.operators.separate_parameters import check_number_of_scales

SOURCE = "torch 2.13.0, CPU wheel, x86"
VERSIONS = Choices(
    "TorchVersion",
    ("2.13", "2.14"),
    "The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel changed in 2.14.",
)
DTYPES: Mapping[str, str] = {
    "quint8": "ui8", "qint8": "i8", "qint32": "i32", "uint8": "ui8", "int8": "i8", "int16": "i16", "int32": "i32",
}  # fmt: skip
REALS: Mapping[str, str] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}

SCALE = Attribute(name="scale", kind=Kind.NUMBER, description="A Python float.")
ZERO_POINT = Attribute(name="zero_point", kind=Kind.INTEGER, description="A value representable in dtype.")
AXIS = Attribute(name="axis", kind=Kind.INTEGER, description="The channel dimension.", lowest=0)
QUANT_MIN = Attribute(
    name="quant_min",
    kind=Kind.INTEGER,
    description="The lowest quantized value.",
    lowest=-(1 << 31),
    highest=(1 << 31) - 1,
)
QUANT_MAX = Attribute(
    name="quant_max",
    kind=Kind.INTEGER,
    description="The highest quantized value.",
    lowest=-(1 << 31),
    highest=(1 << 31) - 1,
)
SCALES = Operand(name="scales", description="Rank 1: one per channel.", types={"f32": 1})
EAGER_SCALES = Operand(
    name="scales",
    description="Rank 1: one per channel; f64 scales are rounded to f32.",
    types={"f32": 1, "f64": 1},
)
ZERO_POINTS = Operand(name="zero_points", description="One zero point per scale.", types={"i32": 1, "i64": 1})
SCALE_TENSOR = Operand(name="scale", description="One value, in any shape.", types={"f32": 1, "f64": 1})
ZERO_POINT_TENSOR = Operand(
    name="zero_point", description="One value representable in dtype, in any shape.", types={"i32": 1, "i64": 1}
)

BOUNDS = (QUANT_MIN, QUANT_MAX)
_STORED_TYPES = {"ui8": 1, "i8": 1, "i16": 1, "i32": 1}
_REAL_TYPES = {"f32": 1, "f16": 1, "bf16": 1}
STORED_INPUT = Operand(name="input", description="The quantized tensor, of type dtype.", types=_STORED_TYPES)
STORED_OUTPUT = Operand(name="output", description="The quantized tensor.", types=_STORED_TYPES)
REAL_INPUT = Operand(name="input", description="The real tensor.", types=_REAL_TYPES)
REAL_OUTPUT = Operand(name="output", description="The real tensor.", types=_REAL_TYPES)


def dtype_attribute(names: tuple[str, ...], component: str) -> Attribute:
    """Return the attribute dtype with some of torch's names."""
    return Attribute(
        name="dtype",
        kind=Kind.TEXT,
        description="The dtype of the quantized values.",
        choices=Choices(component, names, "torch's types of stored numbers."),
    )


STORED_DTYPE = dtype_attribute(("uint8", "int8", "int16", "int32"), "TorchStoredDtype")


def real_dtype_attribute(name: str) -> Attribute:
    """Return the attribute of that name with torch's names of real numbers."""
    return Attribute(
        name=name,
        kind=Kind.TEXT,
        description="The type of the result. Default: float32.",
        default="float32",
        choices=Choices("TorchRealDtype", tuple(REALS), "torch's types of real numbers."),
    )


OUT_DTYPE = real_dtype_attribute("out_dtype")


def stored_element(call: OperatorCall) -> IntegerElement:
    """Return what the attribute dtype names."""
    element = element_named(DTYPES[call.text("dtype")])
    assert isinstance(element, IntegerElement)
    return element


def storage_of(call: OperatorCall, element: IntegerElement) -> StorageType:
    """Return the storage with the bounds quant_min and quant_max, where the operator has them."""
    plain = StorageType.unbounded(IntegerElement(element.width), signed=element.signed)
    if "quant_min" not in call.attributes:
        return plain
    lowest, highest = call.integer("quant_min"), call.integer("quant_max")
    for name, bound in (("quant_min", lowest), ("quant_max", highest)):
        if not plain.minimum <= bound <= plain.maximum:
            raise ParameterError(
                f"{name} is {bound}; {element.name} holds {plain.minimum} to {plain.maximum}",
                pointer=f"/attributes/{name}",
            )
    if lowest > highest:
        raise ParameterError(f"quant_min is {lowest}, and quant_max {highest}", pointer="/attributes/quant_min")
    return StorageType(plain.element, plain.signed, lowest, highest)


def _checked_scale(scale: float, pointer: str) -> float:
    with np.errstate(over="ignore"):
        single = float(np.float32(scale))
    if not 0 < single < float("inf"):
        raise ParameterError("a scale is above 0 and finite in f32", pointer=pointer)
    return scale


def _refuse_scale(wrong: Array, pointer: str) -> None:
    if wrong.any():
        raise ParameterError("a scale is above 0 and finite in f32", index=int(np.argmax(wrong)), pointer=pointer)


def one_scale(
    call: OperatorCall, shape: tuple[int, ...], storage: StorageType, expressed: FloatElement = FLOATS["f32"],
    *, single: bool = False,
) -> TensorType:  # fmt: skip
    """Return the per-tensor type of the attributes scale and zero_point. `single`: the scale is taken as f32."""
    scale = call.number("scale")
    element = _per_tensor(scale, call.integer("zero_point"), storage, expressed, "/attributes")
    if single:
        element = replace(element, scale=float(np.float32(scale)))
    return TensorType(shape, element)


def scale_tensor(
    call: OperatorCall, shape: tuple[int, ...], storage: StorageType, expressed: FloatElement = FLOATS["f32"]
) -> TensorType:
    """Return the per-tensor type of the operands scale and zero_point, each of one element."""
    for name in ("scale", "zero_point"):
        operand = call.inputs[name]
        if operand.data.size != 1:
            raise TypeFitError(
                f"{name} has one element; this has shape {list(operand.shape)}", pointer=f"/inputs/{name}"
            )
    scale, zero_point = (call.inputs[name].data[0] for name in ("scale", "zero_point"))
    return TensorType(shape, _per_tensor(float(scale), int(zero_point), storage, expressed, "/inputs"))


def _per_tensor(
    scale: float, zero_point: int, storage: StorageType, expressed: FloatElement, place: str
) -> UniformType:
    lowest, highest = storage.default_bounds
    if not lowest <= zero_point <= highest:
        raise ParameterError(
            f"zero_point is {zero_point}; the dtype holds {lowest} to {highest}", pointer=f"{place}/zero_point"
        )
    return UniformType(storage, expressed, _checked_scale(scale, f"{place}/scale"), zero_point)


def channel_scales(
    call: OperatorCall, shape: tuple[int, ...], storage: StorageType, expressed: FloatElement = FLOATS["f32"]
) -> TensorType:
    """Return the per-axis type of the operands scales and zero_points, and the attribute axis."""
    scales, zero_points, axis = call.inputs["scales"], call.inputs["zero_points"], call.integer("axis")
    if axis >= len(shape):
        raise ParameterError(f"axis is {axis}; the input has rank {len(shape)}", pointer="/attributes/axis")
    for name, each in (("scales", scales), ("zero_points", zero_points)):
        if each.shape != (shape[axis],):
            raise TypeFitError(
                f"{name} has shape {list(each.shape)}; dimension {axis} of the input has {shape[axis]} indices",
                pointer=f"/inputs/{name}",
            )
    check_number_of_scales(scales.data.size, "/inputs/scales")
    with np.errstate(over="ignore"):
        singles = scales.data.astype(np.float32)
    _refuse_scale(~((singles > 0) & np.isfinite(singles)), "/inputs/scales")
    lowest, highest = storage.default_bounds
    points = zero_points.data
    wrong = (points < lowest) | (points > highest)
    if wrong.any():
        index = int(np.argmax(wrong))
        raise ParameterError(
            f"zero point {index} is {points[index]}; the dtype holds {lowest} to {highest}",
            index=index,
            pointer="/inputs/zero_points",
        )
    listed = tuple(singles.astype(np.float64).tolist())
    return TensorType(shape, UniformPerAxisType(storage, expressed, axis, listed, tuple(points.tolist())))
