"""A type parsed: what it says, in parts, and which operations take it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from requant.description import (
    Array,
    Choices,
    Kind,
    Member,
    NumbersOutput,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Work,
)
from requant.mlir.type_description import TypeCheckName, TypeKind, check_type, describe_type
from requant.mlir.types import Type

_EXAMPLE = "tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 0.125}>>"
_KIND = Choices.of(TypeKind)


def _plan(call: OperationCall) -> PlannedWork:
    parsed: Type = call.options["text"]

    def run(_: Mapping[str, Array]) -> Result:
        said = describe_type(parsed)
        numbers = {each.name: np.array(said.pop(each.name), _DTYPES[each.kind]) for each in _LISTS if each.name in said}
        if "scales" in numbers:
            said["scale_bits"] = [f"0x{struct.pack('>d', each).hex().upper()}" for each in numbers["scales"].tolist()]
            if "zero_points" in numbers:
                said["zero_point_bits"] = [f"0x{each & (1 << 64) - 1:016X}" for each in numbers["zero_points"].tolist()]
            # Those of a type without an axis or blocks are of rank 0, as conversions take them.
            count = () if said.get("axis") is None else (numbers["scales"].size,)
            shape = tuple(numbers["scale_shape"].tolist()) if "scale_shape" in numbers else count
            numbers |= {name: numbers[name].reshape(shape) for name in ("scales", "zero_points") if name in numbers}
        return Result(report=said | {"checks": _checks(parsed)}, numbers=numbers)

    return PlannedWork(operands={}, run=run, byte_count=0)


def _checks(parsed: Type) -> list[dict[str, Any]]:
    return [
        {"name": str(name), "passes": reason is None} | ({} if reason is None else {"reason": reason})
        for name, reason in check_type(parsed).items()
    ]


_DTYPES = {Kind.INTEGER: np.int64, Kind.DECIMAL: np.float64}
_REPLY = (
    Member(name="canonical", kind=Kind.TEXT, description="The type as MLIR prints it."),
    Member(name="kind", kind=Kind.TEXT, choices=_KIND),
    Member(name="ranked", kind=Kind.BOOLEAN, description="Whether the rank is known. Tensors only.", optional=True),
    NumbersOutput(
        name="shape",
        kind=Kind.INTEGER,
        description="Dimensions of a tensor; -1 is dynamic. JSON readers that use binary64 round values beyond "
        "2^53; canonical is always exact.",
        model_description="Dimensions of a tensor; -1 is dynamic.",
        empty_if_absent=True,
    ),
    Member(name="encoding", kind=Kind.TEXT, description="The encoding attribute of a tensor.", optional=True),
    Member(
        name="element",
        kind=Kind.TEXT,
        description="The element type of a tensor, in canonical text.",
        optional=True,
    ),
    Member(
        name="element_kind",
        kind=Kind.TEXT,
        description="The kind of a tensor's element type.",
        optional=True,
        choices=_KIND,
    ),
    Member(name="bits", description="Bits per element, or per stored element.", optional=True, bits=32),
    Member(
        name="signed",
        kind=Kind.BOOLEAN,
        description="Whether elements, or stored elements, are signed.",
        optional=True,
    ),
    Member(
        name="storage",
        kind=Kind.TEXT,
        description="The storage type as spelled: i8, u8, si8, ui8, ...",
        optional=True,
    ),
    Member(name="storage_min", description="Lower storage bound.", optional=True),
    Member(name="storage_max", description="Upper storage bound.", optional=True),
    Member(name="expressed", kind=Kind.TEXT, description="The float type that stored values represent.", optional=True),
    Member(name="axis", description="The quantized axis of uniform_per_axis.", optional=True, bits=32),
    NumbersOutput(
        name="block_axes",
        kind=Kind.INTEGER,
        description="uniform_sub_channel: the axes divided into blocks. Those of block_scaled are of the last one.",
        model_description="The axes divided into blocks.",
        empty_if_absent=True,
        bits=32,
    ),
    NumbersOutput(
        name="block_sizes",
        kind=Kind.INTEGER,
        description="The block size of each of block_axes.",
        empty_if_absent=True,
    ),
    Member(
        name="block_format",
        kind=Kind.TEXT,
        description="block_scaled: the format of /v1/blocks/quantize and dequantize.",
        optional=True,
    ),
    NumbersOutput(
        name="scale_shape",
        kind=Kind.INTEGER,
        description="The shape of the scales of uniform_sub_channel and block_scaled.",
        model_description="The shape of the scales of blocks.",
        empty_if_absent=True,
    ),
    NumbersOutput(
        name="scales",
        kind=Kind.DECIMAL,
        description="One scale, or one per channel or block.",
        model_name="scale",
        model_description="One scale, one per channel, or one per block.",
        empty_if_absent=True,
    ),
    Member(
        name="scale_bits",
        kind=Kind.TEXTS,
        description="The scales as binary64 bit patterns, 0x and 16 digits.",
        only_in_json=True,
        empty_if_absent=True,
    ),
    NumbersOutput(
        name="zero_points",
        kind=Kind.INTEGER,
        description="One zero point per scale. JSON readers that use binary64 round values beyond 2^53; "
        "zero_point_bits is always exact.",
        model_name="zero_point",
        model_description="One per scale.",
        empty_if_absent=True,
    ),
    Member(
        name="zero_point_bits",
        kind=Kind.TEXTS,
        description="The zero points as 64-bit two's complement patterns, 0x and 16 digits.",
        only_in_json=True,
        empty_if_absent=True,
    ),
    Member(name="range_min", kind=Kind.DECIMAL, description="Lower end of a calibrated range.", optional=True),
    Member(name="range_max", kind=Kind.DECIMAL, description="Upper end of a calibrated range.", optional=True),
    Member(name="value", kind=Kind.TEXT, description="The type of a quantile's table entries.", optional=True),
    NumbersOutput(
        name="table",
        kind=Kind.DECIMAL,
        description="The table of a quantile.",
        model_description="The table of a quantile type.",
        empty_if_absent=True,
    ),
    Member(
        name="members",
        kind=Kind.TEXTS,
        description="The member types of a tuple, in canonical text.",
        empty_if_absent=True,
    ),
    Member(
        name="checks",
        description="Whether the type is valid MLIR (always, since an invalid text gets 422), and whether "
        "quant.qcast, quant.dcast, quant.scast and StableHLO accept it.",
        repeated=True,
        title="TypeCheck",
        group_description="One check and its result.",
        members=(
            Member(name="name", kind=Kind.TEXT, choices=Choices.of(TypeCheckName)),
            Member(name="passes", kind=Kind.BOOLEAN),
            Member(
                name="reason",
                kind=Kind.TEXT,
                description="Why the check failed. Only if it failed.",
                optional=True,
            ),
        ),
    ),
)
_LISTS = tuple(each for each in _REPLY if isinstance(each, NumbersOutput))

PARSE_TYPE = Operation(
    name="parse_type",
    path="types/parse",
    title="Parse a type",
    group="types",
    summary="Parse an MLIR type. For an invalid type the error has the offset of the first invalid character.",
    request="A type text to parse.",
    source="MLIR",
    inputs=(),
    options=(Option(name="text", kind=Kind.TYPE, description="MLIR text.", examples=(_EXAMPLE,), document=True),),
    reply=_REPLY,
    reply_title="ParsedType",
    reply_description="A parsed type. For a tensor, the fields after `encoding` describe its element type.",
    plan=_plan,
    example={"text": _EXAMPLE},
    work=Work.TEXTS,
    model_summary="Parse an MLIR type. The result is in the outputs and in the response parameters: canonical, kind "
    "and the fields of that kind, and members and checks as JSON text.",
    first_of_model=("scales", "zero_points", "canonical", "kind", "ranked", "element", "element_kind", "storage"),
)
