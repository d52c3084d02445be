"""PyTorch: qscheme, dtype, quant_min and quant_max, scale, zero_point and axis.

The dtype, quant_min and quant_max are those of quantized_decomposed and fake_quantize; `quantized_dtype` is that of
eager quantized tensors, where they have one. Scales are f64 in both.
"""

from __future__ import annotations

from typing import Any

from requant.description import Choices
from requant.errors import ParameterError, TypeFitError, UnsupportedError
from requant.formats.elements import FLOATS, IntegerElement
from requant.mlir.types import StorageType, UniformPerAxisType, UniformSubChannelType
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
    require_zero_points,
    spelling_losses,
    stored_as,
    uniform,
)

_NAME = "torch"
_F32 = FLOATS["f32"]
DTYPES = {"int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16", "int32": "i32"}
QUANTIZED_DTYPES = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
QSCHEMES = ("per_tensor_affine", "per_channel_affine")


def _dtype(storage: StorageType) -> str:
    """Return the narrowest dtype that holds the storage."""
    if isinstance(storage.element, IntegerElement):
        for dtype, name in DTYPES.items():
            held = stored_as(name)
            if held.signed == storage.signed and held.width >= storage.width:
                return dtype
    raise UnsupportedError(f"{_NAME} stores {', '.join(DTYPES)}")


def _write(subject: Subject) -> Written:
    element, storage = subject.element, subject.storage
    if isinstance(element, UniformSubChannelType):
        raise UnsupportedError(f"{_NAME}'s qschemes are {', '.join(QSCHEMES)}; none of them has blocks")
    dtype = _dtype(storage)
    require_expressed(subject, _NAME, ("f32",))
    held = stored_as(DTYPES[dtype])
    require_zero_points(subject, _NAME, storage.minimum, storage.maximum)
    losses = spelling_losses(subject)
    if storage.width != held.width:
        losses = (
            f"{subject.storage_name} is kept as {dtype} with quant_min {storage.minimum} and quant_max "
            f"{storage.maximum}, and read back so",
        )
    operands: dict[str, Any] = {
        "qscheme": QSCHEMES[isinstance(element, UniformPerAxisType)],
        "dtype": dtype,
        "quant_min": storage.minimum,
        "quant_max": storage.maximum,
        "scale": list(subject.scales),
        "zero_point": list(subject.zero_points),
    }
    if isinstance(element, UniformPerAxisType):
        operands["axis"] = element.axis
    if (storage.minimum, storage.maximum) == held.default_bounds:
        eager = next((name for name, plain in QUANTIZED_DTYPES.items() if plain == dtype), None)
        operands |= {} if eager is None else {"quantized_dtype": eager}
    return Written(operands, (), losses)


def _read_dtype(operands: dict[str, Any]) -> str:
    """Return the dtype, from the quantized one where only that is stated."""
    dtype, eager = operands.get("dtype"), operands.get("quantized_dtype")
    if eager is not None and eager not in QUANTIZED_DTYPES:
        raise UnsupportedError(f"quantized_dtype is one of {', '.join(QUANTIZED_DTYPES)}", pointer="/quantized_dtype")
    if dtype is None:
        if eager is None:
            raise UnsupportedError("dtype or quantized_dtype is required", pointer="/dtype")
        return QUANTIZED_DTYPES[eager]
    if dtype not in DTYPES:
        raise UnsupportedError(f"dtype is one of {', '.join(DTYPES)}", pointer="/dtype")
    if eager is not None and QUANTIZED_DTYPES[eager] != dtype:
        raise UnsupportedError(f"{eager} keeps {QUANTIZED_DTYPES[eager]}, not {dtype}", pointer="/quantized_dtype")
    return str(dtype)


def _read(operands: dict[str, Any], shape: tuple[int, ...] | None) -> Read:
    whole = stored_as(DTYPES[_read_dtype(operands)])
    lowest, highest = operands.get("quant_min", whole.minimum), operands.get("quant_max", whole.maximum)
    for name, value in (("quant_min", lowest), ("quant_max", highest)):
        if not whole.minimum <= value <= whole.maximum:
            raise ParameterError(f"{name} is {whole.minimum} to {whole.maximum} for its dtype", pointer=f"/{name}")
        if "quantized_dtype" in operands and value != (whole.minimum if name == "quant_min" else whole.maximum):
            raise UnsupportedError("an eager quantized tensor has the whole range of its dtype", pointer=f"/{name}")
    if lowest >= highest:
        raise ParameterError("quant_min is below quant_max", pointer="/quant_min")
    storage = StorageType(whole.element, whole.signed, lowest, highest)
    scales, rounded = read_scales(operands, "scale", _F32, "f64")
    zeros = read_zero_points(operands, "zero_point", len(scales), lowest, highest)
    qscheme = operands.get("qscheme", QSCHEMES[0])
    if qscheme not in QSCHEMES:
        raise UnsupportedError(f"qscheme is one of {', '.join(QSCHEMES)}", pointer="/qscheme")
    axis = None
    if qscheme == QSCHEMES[1]:
        axis = normal_axis(operands.get("axis", 0), shape, "/axis")
    elif len(scales) != 1:
        raise TypeFitError(f"{qscheme} has one scale; these are {len(scales)}", pointer="/scale")
    return check_shape(Subject(uniform(storage, _F32, axis, scales, zeros), shape)), rounded


_OPERANDS = operand.group(
    "Torch",
    "torch",
    "Parameters of a torch tensor: of quantized_decomposed, and of an eager quantized tensor.",
    "parameters",
    operand.named(
        "qscheme",
        Choices("TorchQscheme", QSCHEMES, "torch's qschemes."),
        "Default: per_tensor_affine.",
        default="per_tensor_affine",
    ),
    operand.named(
        "dtype",
        Choices("TorchStoredType", tuple(DTYPES), "The stored types of torch's quantized_decomposed."),
        "The stored dtype of quantized_decomposed.",
        optional=True,
    ),
    operand.named(
        "quantized_dtype",
        Choices("TorchQuantizedType", tuple(QUANTIZED_DTYPES), "torch's dtypes of eager quantized tensors."),
        "The dtype of an eager quantized tensor.",
        optional=True,
    ),
    operand.integer("quant_min", "Absent: the lowest of dtype."),
    operand.integer("quant_max", "Absent: the highest of dtype."),
    operand.scales("scale"),
    operand.zero_points("zero_point"),
    operand.axis(0, "per_channel_affine only."),
)

TRANSLATION = SystemTranslation(
    name="torch",
    summary="qscheme, dtype, quant_min, quant_max, scale, zero_point and axis.",
    source="PyTorch 2.13: eager quantized tensors, quantized_decomposed",
    notes=(
        "`dtype` is that of quantized_decomposed, which has storage bounds; `quantized_dtype` is that of eager "
        "quantized tensors, absent where they have none.",
        "Scales are kept as f64, though they are computed with as f32. Zero points lie within quant_min and quant_max.",
    ),
    write=_write,
    read=_read,
    operands=_OPERANDS,
)
