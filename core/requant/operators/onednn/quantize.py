"""oneDNN Graph Quantize and DynamicQuantize, by oneDNN's developer guide.

    dst = RNE(clamp(f32(f32(src * f32(1 / scale)) + zp), lo, hi)); to f8: by way of f16

Quantize has its parameters as attributes, DynamicQuantize as operands. Attributes that are all within 1e-6 of 1 are
left out.
"""

from __future__ import annotations

from math import prod

from requant.convert.quantize import plan_quantize
from requant.description import Array, Choices, Kind, TensorValue
from requant.errors import TypeFitError
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
from requant.operators.element_names import element_named
from requant.operators.execution import converted
from requant.operators.onednn.attributes import (
    AXIS,
    F8,
    F32,
    QTYPE,
    SCALES,
    SOURCE,
    ZPS,
    attribute_scales,
    attribute_zero_points,
    channels,
    operand_scales,
    operand_zero_points,
)
from requant.operators.separate_parameters import Granularity, quantized_type

_DST = ("ui8", "i8", *F8)


def _quantized(
    call: OperatorCall, granularity: Granularity, scales: Array, zero_points: Array | None, *, constant: bool
) -> Run:
    src, element = call.inputs["src"], element_named(call.text("dst_type"))
    dst_type = TensorType(src.shape, element)
    if prod(src.shape) == 0:
        return lambda: {"dst": empty(dst_type)}
    stored = quantized_type(src.shape, granularity, element, F32, scales, zero_points)
    plan = plan_quantize(src.type, stored, "onednn", constant_scales=constant)

    def run() -> Outputs:
        return {"dst": TensorValue(dst_type, converted(plan, src.data, "src"))}

    return run


def _plan(call: OperatorCall) -> Run:
    scales = attribute_scales(call)
    zero_points = attribute_zero_points(call, scales.size, call.text("dst_type"))
    granularity = channels(call, call.inputs["src"].shape, scales.size, "/attributes/scales")
    return _quantized(call, granularity, scales, zero_points, constant=True)


def _plan_dynamic(call: OperatorCall) -> Run:
    scales = call.inputs["scales"]
    if len(scales.shape) > 1:
        raise TypeFitError(f"scales have one dimension; these have {len(scales.shape)}", pointer="/inputs/scales")
    granularity = channels(call, call.inputs["src"].shape, scales.data.size, "/inputs/scales")
    return _quantized(call, granularity, operand_scales(scales), operand_zero_points(call, scales), constant=False)


def _dst_type(names: tuple[str, ...], component: str) -> Attribute:
    return Attribute(
        name="dst_type",
        kind=Kind.TEXT,
        description="The data type of dst, which the Graph API takes from its logical tensor.",
        choices=Choices(component, names, "The destination types of oneDNN's quantization."),
    )


_SRC = Operand(name="src", description="The real tensor.", types={"f32": 1})
_NAN = (
    "NaN depends on the instruction set there; it becomes the lowest number, as with ONEDNN_MAX_CPU_ISA=AVX2.",
    "per_channel with zps other than 0, and with a negative axis, which its CPU engine does not compile, follow the "
    "documentation.",
)
_EXAMPLE_SRC = {"type": "tensor<2x2xf32>", "values": [0.3, 1.0, -2.0, 100.0]}

QUANTIZE = Operator(
    system="onednn",
    name="Quantize",
    summary="Quantize, with scales and zero points as attributes.",
    source=SOURCE,
    inputs=(_SRC,),
    outputs=(Operand(name="dst", description="The quantized tensor.", types=dict.fromkeys(_DST, 1)),),
    attributes=(_dst_type(_DST, "OnednnDestination"), QTYPE, AXIS, SCALES, ZPS),
    deviations=_NAN,
    implementations=only_implementation("onednn"),
    plan=_plan,
    example={
        "inputs": {"src": _EXAMPLE_SRC},
        "attributes": {"dst_type": "ui8", "qtype": "per_channel", "axis": 1, "scales": [0.1, 0.5], "zps": [10, 3]},
    },
)

DYNAMIC_QUANTIZE = Operator(
    system="onednn",
    name="DynamicQuantize",
    summary="Quantize, with scales and zero points as tensors.",
    source=SOURCE,
    inputs=(
        _SRC,
        Operand(name="scales", description="Rank 1: one, or one per channel.", types={"f32": 1}),
        Operand(
            name="zps",
            description=ZERO_POINT_PER_SCALE,
            types={"i8": 1, "ui8": 1, "i32": 1},
            optional=True,
        ),
    ),
    outputs=(Operand(name="dst", description="The quantized tensor.", types={"ui8": 1, "i8": 1}),),
    attributes=(_dst_type(("ui8", "i8"), "OnednnDynamicDestination"), QTYPE, AXIS),
    deviations=_NAN,
    implementations=only_implementation("onednn"),
    plan=_plan_dynamic,
    example={
        "inputs": {"src": _EXAMPLE_SRC, "scales": {"type": "tensor<1xf32>", "values": [0.5]}},
        "attributes": {"dst_type": "i8"},
    },
)
