"""oneDNN Graph: qtype, axis, group_shape, scales and zps of its four operators, by oneDNN's developer guide.

Quantize and Dequantize have scales of f32 as attributes; DynamicDequantize also takes i4 and ui4, groups, and scales of
f16 and bf16, in which it then expresses numbers.
"""

from __future__ import annotations

from typing import Any

from requant.description import Choices
from requant.errors import TypeFitError, UnsupportedError
from requant.formats.elements import FLOATS
from requant.mlir.types import UniformPerAxisType, UniformSubChannelType, UniformType
from requant.operators.onednn.attributes import F8, GROUPED, INT32, ZPS
from requant.translation import operand
from requant.translation.translation import (
    Read,
    Subject,
    SystemTranslation,
    Written,
    block_counts,
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
)

_NAME = "oneDNN"
_BYTES, _NIBBLES = ("i8", "ui8"), ("i4", "ui4")
STORED = (*_BYTES, *_NIBBLES, *F8)
EXPRESSED = ("f32", "f16", "bf16")


def takers(stored: str, expressed: str, qtype: str) -> list[str]:
    """Return the operators that take a type, none for one that oneDNN has not."""
    if stored in F8:
        return ["Quantize", "Dequantize"] if expressed == "f32" and qtype != "per_group" else []
    if stored in _NIBBLES or expressed != "f32" or qtype == "per_group":
        return ["DynamicDequantize"]
    return ["Quantize", "Dequantize", "DynamicQuantize", "DynamicDequantize"]


def _group_shape(subject: Subject) -> list[int]:
    sizes = subject.blocks()
    if len(sizes) < 2:
        raise UnsupportedError(f"per_group takes rank 2 and more in {_NAME}; this is rank {len(sizes)}")
    for axis, (size, block) in enumerate(sizes):
        if size % block:
            raise UnsupportedError(f"groups divide a dimension in {_NAME}; {block} do not divide the {size} of {axis}")
    return [block for _, block in sizes]


def _write(subject: Subject) -> Written:
    require_storage(subject, _NAME, STORED)
    require_whole_storage(subject, _NAME)
    require_expressed(subject, _NAME, EXPRESSED)
    stored, expressed, element = subject.storage_name, subject.element.expressed, subject.element
    require_zero_points(subject, _NAME, *((0, 0) if stored in F8 else (-INT32, INT32 - 1)))
    scales, rounded = rounded_to(subject.scales, expressed)
    operands: dict[str, Any] = {"data_type": stored, "scales_type": expressed.name, "qtype": "per_tensor"}
    if isinstance(element, UniformPerAxisType):
        operands |= {"qtype": "per_channel", "axis": element.axis}
    elif isinstance(element, UniformSubChannelType):
        operands |= {"qtype": "per_group", "group_shape": _group_shape(subject)}
        operands["scales_shape"] = list(element.scale_shape)
    operators = takers(stored, expressed.name, operands["qtype"])
    if not operators:
        raise UnsupportedError(f"{stored} is per tensor or per channel, and expressed as f32, in {_NAME}")
    operands["scales"] = list(scales)
    if stored not in F8:
        operands["zps"] = list(subject.zero_points)
    return Written(operands, rounded, spelling_losses(subject), tuple(operators))


def _read(operands: dict[str, Any], shape: tuple[int, ...] | None) -> Read:
    storage = read_storage(operands, "data_type", STORED)
    held = operands.get("scales_type", "f32")
    if held not in EXPRESSED:
        raise UnsupportedError(f"scales_type is one of {', '.join(EXPRESSED)}", pointer="/scales_type")
    qtype = operands.get("qtype", "per_tensor")
    if qtype not in GROUPED.values:
        raise UnsupportedError(f"qtype is one of {', '.join(GROUPED.values)}", pointer="/qtype")
    stored = operands["data_type"]
    if not takers(stored, held, qtype):
        raise UnsupportedError(f"{stored} is per tensor or per channel, with scales of f32", pointer="/data_type")
    expressed = FLOATS[held]
    scales, rounded = read_scales(operands, "scales", expressed, held)
    if stored in F8 and "zps" in operands:
        raise UnsupportedError(f"{stored} has no zps", pointer="/zps")
    zeros = read_zero_points(operands, "zps", len(scales), -INT32, INT32 - 1)
    if qtype == "per_group":
        return _read_groups(operands, shape, storage, expressed, scales, zeros), rounded
    if qtype == "per_tensor":
        if len(scales) != 1:
            raise TypeFitError(f"per_tensor has one scale; these are {len(scales)}", pointer="/scales")
        return Subject(UniformType(storage, expressed, scales[0], zeros[0]), shape), rounded
    axis = normal_axis(operands.get("axis", 1), shape, "/axis")
    return check_shape(Subject(uniform(storage, expressed, axis, scales, zeros), shape)), rounded


def _read_groups(
    operands: dict[str, Any], shape: tuple[int, ...] | None, storage: Any, expressed: Any, scales: Any, zeros: Any
) -> Subject:
    groups = operands.get("group_shape")
    if groups is None or len(groups) < 2 or (shape is not None and len(groups) != len(shape)):
        raise TypeFitError("per_group needs a group_shape of the rank of src, at least 2", pointer="/group_shape")
    counts = tuple(operands.get("scales_shape", ()))
    if shape is not None:
        for axis, (size, group) in enumerate(zip(shape, groups, strict=True)):
            if size % group:
                raise TypeFitError(f"groups of {group} do not divide dimension {axis}, {size}", pointer="/group_shape")
        expected = block_counts(list(zip(shape, groups, strict=True)))
        if counts and counts != expected:
            raise TypeFitError(
                f"scales_shape is {list(counts)}; the groups require {list(expected)}", pointer="/scales_shape"
            )
        counts = expected
    if len(counts) != len(groups) or count_of(counts) != len(scales):
        raise TypeFitError(f"scales_shape {list(counts)} has not {len(scales)} groups", pointer="/scales_shape")
    return Subject(blocked(storage, expressed, groups, counts, scales, zeros, "/zps"), shape)


_OPERANDS = operand.group(
    "Onednn",
    "oneDNN",
    "Attributes and tensors of oneDNN Graph's quantizing operators.",
    "operands",
    operand.named(
        "data_type",
        Choices("OnednnStoredType", STORED, "The stored types of oneDNN Graph."),
        "The data type of stored numbers, as MLIR writes it.",
    ),
    operand.named(
        "scales_type",
        Choices("OnednnRealType", EXPRESSED, "The types of oneDNN Graph's scales."),
        "The data type of scales. Default: f32.",
        default="f32",
    ),
    operand.named("qtype", GROUPED, "Default: per_tensor.", default="per_tensor"),
    operand.axis(1, "Default: 1."),
    operand.shape("group_shape", "per_group: the size of a group along each dimension.", lowest=1),
    operand.shape("scales_shape", "per_group: how many groups along each dimension."),
    operand.scales("scales", "Scales in row-major order."),
    operand.integers(ZPS.name, ZPS.description),
)

TRANSLATION = SystemTranslation(
    name="onednn",
    summary="qtype, axis, group_shape, scales and zps of oneDNN Graph's quantizing operators.",
    source="oneDNN 3.13.2, Graph API",
    notes=(
        "`operators` are those that take the type: i4, ui4, groups, and scales of f16 and bf16 are in "
        "DynamicDequantize only, f8 in Quantize and Dequantize, without zps.",
        "Groups go along any dimensions and divide them.",
    ),
    write=_write,
    read=_read,
    operands=_OPERANDS,
)
