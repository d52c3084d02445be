"""oneDNN Graph Dequantize and DynamicDequantize, by oneDNN's developer guide.

dst = f32(f32(f32(src) - f32(zp)) * scale), rounded once more where scales are f16 or bf16

Scales that are attributes and all within 1e-6 of 1 are left out. On the way to bf16 a subnormal becomes a zero.
"""

from __future__ import annotations

from math import prod

import numpy as np

from requant.convert.dequantize import plan_dequantize
from requant.description import Array, Kind, TensorValue
from requant.formats.elements import FloatElement, IntegerElement
from requant.mlir.types import TensorType
from requant.operators.description import (
    ZERO_POINT_PER_SCALE,
    Attribute,
    Operand,
    Operator,
    OperatorCall,
    Outputs,
    Run,
    empty,
    only_implementation,
)
from requant.operators.element_names import type_key
from requant.operators.execution import converted
from requant.operators.onednn.attributes import (
    AXIS,
    BF16,
    F8,
    F32,
    GROUP_QTYPE,
    QTYPE,
    SCALES,
    SOURCE,
    ZPS,
    attribute_scales,
    attribute_zero_points,
    channels,
    groups,
    operand_scales,
    operand_zero_points,
)
from requant.operators.separate_parameters import Granularity, check_integers, quantized_type
from requant.plan.float_arrays import narrowed

_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal


def _dequantized(
    call: OperatorCall,
    granularity: Granularity,
    scales: Array,
    zero_points: Array | None,
    target: FloatElement,
    *,
    constant: bool,
) -> Run:
    src = call.inputs["src"]
    element = src.type.element
    assert isinstance(element, (IntegerElement, FloatElement))
    dst_type = TensorType(src.shape, target)
    if prod(src.shape) == 0:
        return lambda: {"dst": empty(dst_type)}
    stored = quantized_type(src.shape, granularity, element, F32, scales, zero_points)
    plan = plan_dequantize(
        stored,
        None,
        "onednn",
        more_storages=("i4", "u4"),
        more_granularities=("sub_channel",),
        constant_scales=constant,
    )

    def run() -> Outputs:
        wide = converted(plan, src.data, "src")
        if target == BF16:
            wide = np.where(np.abs(wide) < _SMALLEST_NORMAL, np.copysign(np.float32(0), wide), wide)
        return {"dst": TensorValue(dst_type, narrowed(wide, target))}

    return run


def _plan(call: OperatorCall) -> Run:
    scales = attribute_scales(call)
    zero_points = attribute_zero_points(call, scales.size, type_key(call.inputs["src"].type.element))
    granularity = channels(call, call.inputs["src"].shape, scales.size, "/attributes/scales")
    return _dequantized(call, granularity, scales, zero_points, F32, constant=True)


def _plan_dynamic(call: OperatorCall) -> Run:
    scales = call.inputs["scales"]
    granularity = groups(call, call.inputs["src"].shape)
    target = scales.type.element
    assert isinstance(target, FloatElement)
    if (zps := call.optional("zps")) is not None:
        check_integers(zps, "zps")
    zero_points = operand_zero_points(call, scales)
    return _dequantized(call, granularity, operand_scales(scales), zero_points, target, constant=False)


DEQUANTIZE = Operator(
    system="onednn",
    name="Dequantize",
    summary="Dequantize, with scales and zero points as attributes.",
    source=SOURCE,
    inputs=(Operand(name="src", description="The quantized tensor.", types=dict.fromkeys(("ui8", "i8", *F8), 1)),),
    outputs=(Operand(name="dst", description="The real tensor.", types={"f32": 1}),),
    attributes=(QTYPE, AXIS, SCALES, ZPS),
    implementations=only_implementation("onednn"),
    plan=_plan,
    example={
        "inputs": {"src": {"type": "tensor<4xui8>", "values": [0, 3, 128, 255]}},
        "attributes": {"scales": [0.5], "zps": [3]},
    },
)

DYNAMIC_DEQUANTIZE = Operator(
    system="onednn",
    name="DynamicDequantize",
    summary="Dequantize, with scales and zero points as tensors, also per group.",
    source=f"{SOURCE}; groups and 4 bits by its documentation",
    inputs=(
        Operand(name="src", description="The quantized tensor.", types={"ui8": 1, "i8": 1, "ui4": 1, "i4": 1}),
        Operand(
            name="scales",
            description="Rank 1, or per group the rank of src. dst has their type.",
            types={"f32": 1, "f16": 1, "bf16": 1},
        ),
        Operand(
            name="zps",
            description=ZERO_POINT_PER_SCALE,
            types={"i8": 1, "ui8": 1, "i32": 1, "ui4": 1, "i4": 1},
            optional=True,
        ),
    ),
    outputs=(Operand(name="dst", description="The real tensor.", types={"f32": 1, "f16": 1, "bf16": 1}),),
    attributes=(
        GROUP_QTYPE,
        AXIS,
        Attribute(
            name="group_shape",
            kind=Kind.INTEGERS,
            description="per_group: the size of a group along each dimension of src, which it divides.",
            optional=True,
            lowest=1,
        ),
    ),
    implementations=only_implementation("onednn"),
    plan=_plan_dynamic,
    example={
        "inputs": {
            "src": {"type": "tensor<2x4xi4>", "values": [-8, -1, 0, 7, 1, 2, 3, 4]},
            "scales": {"type": "tensor<2x2xf32>", "values": [0.5, 0.25, 2.0, 1.0]},
        },
        "attributes": {"qtype": "per_group", "group_shape": [1, 2]},
    },
)
