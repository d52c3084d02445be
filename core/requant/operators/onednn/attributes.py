"""What oneDNN Graph's four operators share: qtype, axis, and the checks of scales and zero points."""

from __future__ import annotations

import numpy as np

from requant.description import Array, Choices, Kind, TensorValue
from requant.errors import ParameterError, TypeFitError, UnsupportedError
from requant.formats.elements import FLOATS
from requant.operators.description import Attribute, OperatorCall
from requant.operators.separate_parameters import Granularity, normalized_axis, reals_of

SOURCE = "oneDNN 3.13.2, Graph API, CPU, ONEDNN_MAX_CPU_ISA=AVX2"
INT32 = 1 << 31
F8 = ("f8E4M3FN", "f8E5M2")

_PER_TENSOR, _PER_CHANNEL, _PER_GROUP = "per_tensor", "per_channel", "per_group"
QTYPE = Attribute(
    name="qtype",
    kind=Kind.TEXT,
    description="Granularity: one scale for the tensor, or one per index of the axis. Default: per_tensor.",
    default=_PER_TENSOR,
    choices=Choices("OnednnQtype", (_PER_TENSOR, _PER_CHANNEL), "Granularity of oneDNN's parameters."),
)
GROUPED = Choices(
    "OnednnGroupedQtype",
    (_PER_TENSOR, _PER_CHANNEL, _PER_GROUP),
    "Granularity of DynamicDequantize's parameters.",
)
GROUP_QTYPE = Attribute(
    name="qtype",
    kind=Kind.TEXT,
    description="Granularity: one scale for the tensor, one per index of the axis, or one per group. Default: "
    "per_tensor.",
    default=_PER_TENSOR,
    choices=GROUPED,
)
AXIS = Attribute(
    name="axis",
    kind=Kind.INTEGER,
    description="The channel dimension; negative values count from the end. Used with per_channel only.",
    default=1,
)
SCALES = Attribute(name="scales", kind=Kind.NUMBERS, description="One, or one per channel; rounded to f32.")
ZPS = Attribute(
    name="zps",
    kind=Kind.INTEGERS,
    description="One zero point per scale; not allowed with f8. Default: zeros.",
    optional=True,
    lowest=-INT32,
    highest=INT32 - 1,
)


def channels(call: OperatorCall, shape: tuple[int, ...], count: int, pointer: str) -> Granularity:
    """Return per tensor or per channel, checked against the number of scales. Raise TypeFitError or ParameterError."""
    if call.text("qtype") == _PER_TENSOR:
        if count != 1:
            raise TypeFitError(f"per_tensor has one scale; these are {count}", pointer=pointer)
        return Granularity()
    axis = normalized_axis(call.integer("axis"), len(shape))
    if shape[axis] != count:
        raise TypeFitError(
            f"there are {count} scales for dimension {axis} of src, which has {shape[axis]}", pointer=pointer
        )
    return Granularity(axis)


def groups(call: OperatorCall, shape: tuple[int, ...]) -> Granularity:
    """Return per group, or what `channels` says. Scales of a group have the rank of src, and groups divide it."""
    scales, place = call.inputs["scales"], "/inputs/scales"
    if call.text("qtype") != _PER_GROUP:
        if len(scales.shape) > 1:
            raise TypeFitError(f"scales have one dimension; these have {len(scales.shape)}", pointer=place)
        return channels(call, shape, scales.data.size, place)
    sizes = call.list("group_shape")
    if sizes is None or len(sizes) != len(shape) or len(shape) < 2:
        raise TypeFitError(
            f"per_group needs a group_shape of the rank of src, at least 2; src has rank {len(shape)}",
            pointer="/attributes/group_shape",
        )
    for axis, (size, group) in enumerate(zip(shape, sizes, strict=True)):
        if size % group:
            raise ParameterError(
                f"groups of {group} do not divide dimension {axis} of src, which has {size}",
                index=axis,
                pointer="/attributes/group_shape",
            )
    expected = tuple(size // group for size, group in zip(shape, sizes, strict=True))
    if scales.shape != expected:
        raise TypeFitError(
            f"scales have shape {list(scales.shape)}; the groups require {list(expected)}", pointer=place
        )
    return Granularity(blocks=tuple(sizes))


def attribute_scales(call: OperatorCall) -> Array:
    """Return the attribute scales as f32 numbers in f64. Raise ParameterError for one that is 0 or not finite there."""
    with np.errstate(over="ignore"):
        scales = np.array(call.list("scales"), np.float32).astype(np.float64)
    return checked(scales, "/attributes/scales")


def checked(scales: Array, pointer: str) -> Array:
    """Return scales. Raise ParameterError for one that is 0, as oneDNN does, or not finite."""
    wrong = (scales == 0) | ~np.isfinite(scales)
    if wrong.any():
        index = int(np.argmax(wrong))
        raise ParameterError(f"scale {index} is 0 or not finite in its type", index=index, pointer=pointer)
    return scales


def attribute_zero_points(call: OperatorCall, count: int, storage: str) -> Array | None:
    """Return the attribute zps. Raise UnsupportedError with f8, TypeFitError unless there are as many as scales."""
    zps = call.list("zps")
    if zps is None:
        return None
    if storage in F8:
        raise UnsupportedError(f"{storage} has no zps", pointer="/attributes/zps")
    if len(zps) != count:
        raise TypeFitError(f"there are {len(zps)} zps and {count} scales", pointer="/attributes/zps")
    return np.array(zps, np.int64)


def operand_zero_points(call: OperatorCall, scales: TensorValue) -> Array | None:
    """Return the operand zps, of the shape of scales."""
    zps = call.optional("zps")
    if zps is None:
        return None
    if zps.shape != scales.shape:
        raise TypeFitError(f"zps have shape {list(zps.shape)}, and scales {list(scales.shape)}", pointer="/inputs/zps")
    return zps.data.astype(np.int64)


def operand_scales(scales: TensorValue) -> Array:
    """Return the operand scales as numbers."""
    return checked(reals_of(scales), "/inputs/scales")


F32 = FLOATS["f32"]
BF16 = FLOATS["bf16"]
