"""TOSA CAST_TO_BLOCK_SCALED and CAST_FROM_BLOCK_SCALED, as of the draft of 2026-08 (TOSA 1.1, EXT-MXFP).

Later drafts have block-scaled types in their place, which CAST converts to and from.

A block is 32 elements of the last dimension, and its scale 2^e is an f8E8M0FNU.

    to:    X = 2^e, e = floor(log2 amax) - emax, one more where RNE(amax / X) would be beyond the largest element
           output_data = RNE(input_data / X)
    from:  output_data = input_data * input_scale

amax is the largest magnitude of the block, emax the exponent of the largest element. NaN or an infinity makes the scale
of its block NaN, and a scale of NaN its whole block. The product is exact in f32, or an infinity beyond it, and rounded
once to bf16 (RNE).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from requant.convert.blocks.blocking import block_count
from requant.convert.blocks.mx import BLOCK, MxRule, MxTensor, dequantize_mx, quantize_mx
from requant.description import Choices, Kind, TensorValue
from requant.errors import TypeFitError, default_pointer
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir.types import BLOCK_FORMATS, MXINT8, TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Run, only_implementation
from requant.operators.element_names import type_key
from requant.plan.float_arrays import narrowed, widen

SOURCE = (
    "TOSA 1.1, as of draft 2026-08, extension EXT-MXFP; later drafts have block-scaled types instead. Reference model "
    "of tosa-tools 2026.8.0"
)
SCALE = FLOATS["f8E8M0FNU"]
REALS = {"f32": 1, "bf16": 1}

MX_FORMATS: Mapping[str, str] = {
    "i8" if element == MXINT8 else element: name for element, name in BLOCK_FORMATS.items()
}
"""The MX format of each element type. i8 are the codes of !tosa.mxint8, which stand for 64ths."""

ELEMENTS = dict.fromkeys(MX_FORMATS, 1)

BLOCK_SIZE = Attribute(
    name="block_size",
    kind=Kind.TEXT,
    description="Elements along the last dimension that share a scale.",
    default="BLOCK_SIZE_32",
    choices=Choices("TosaBlockSize", ("BLOCK_SIZE_32",), "TOSA's block sizes for casts."),
)


def scale_shape(shape: tuple[int, ...], name: str, format_name: str) -> tuple[int, ...]:
    """Return the shape of the scales of a tensor of `shape`, the operand of that name.

    Raise TypeFitError for rank 0, an empty dimension, or blocks that do not divide the last one.
    """
    with default_pointer(f"/inputs/{name}"):
        if 0 in shape:
            raise TypeFitError(f"{name} has a dimension of 0; TOSA's tensors have at least 1 of each")
        block_count(shape, BLOCK, format_name)
    return (*shape[:-1], shape[-1] // BLOCK)


def check_scale_shape(scale: TensorType, expected: tuple[int, ...], name: str) -> None:
    """Raise TypeFitError unless scales have the shape that the blocks ask for."""
    if scale.shape != expected:
        raise TypeFitError(
            f"{name} has shape {list(scale.shape or ())}; the blocks require {list(expected)}",
            pointer=f"/inputs/{name}",
        )


def _plan_from_blocks(call: OperatorCall) -> Run:
    source, scale = call.inputs["input_data"], call.inputs["input_scale"]
    format_name = MX_FORMATS[type_key(source.type.element)]
    check_scale_shape(scale.type, scale_shape(source.shape, "input_data", format_name), "input_scale")
    target = FLOATS[call.text("output_data_type")]

    def run() -> Outputs:
        blocks = MxTensor(format_name, source.shape, scale.data, source.data.view(np.uint8))
        with default_pointer("/inputs/input_data"):
            reals = dequantize_mx(blocks).reshape(-1)
        return {"output_data": TensorValue(TensorType(source.shape, target), narrowed(reals, target))}

    return run


CAST_FROM_BLOCK_SCALED = Operator(
    system="tosa",
    name="CAST_FROM_BLOCK_SCALED",
    summary="Dequantize blocks of 32 elements with power-of-two scales.",
    source=SOURCE,
    inputs=(
        Operand(name="input_data", description="The elements: codes, i8 for mxint8.", types=ELEMENTS),
        Operand(name="input_scale", description="One scale per block.", types={SCALE.name: 1}),
    ),
    outputs=(Operand(name="output_data", description="The real tensor.", types=REALS),),
    attributes=(
        Attribute(
            name="output_data_type",
            kind=Kind.TEXT,
            description="The element type of output_data, which TOSA takes from the graph.",
            default="f32",
            choices=Choices("TosaBlockReal", tuple(REALS), "The types that block-scaled tensors are cast to."),
        ),
        BLOCK_SIZE,
    ),
    implementations=only_implementation("tosa"),
    plan=_plan_from_blocks,
    example={
        "inputs": {
            "input_data": {"type": "tensor<1x32xi8>", "values": [8 * (step - 16) for step in range(32)]},
            "input_scale": {"type": "tensor<1x1xf8E8M0FNU>", "data": "gA=="},
        },
    },
)


def _plan_to_blocks(call: OperatorCall) -> Run:
    source = call.inputs["input_data"]
    element = source.type.element
    assert isinstance(element, FloatElement)
    name = call.text("output_data_type")
    target = IntegerElement(8) if name == "i8" else FLOATS[name]
    format_name = MX_FORMATS[name]
    shape = scale_shape(source.shape, "input_data", format_name)

    def run() -> Outputs:
        reals = widen(source.data, element).reshape(source.shape)
        quantized = quantize_mx(reals, format_name, MxRule.TOSA)
        codes = quantized.elements.view(np.int8) if name == "i8" else quantized.elements
        return {
            "output_data": TensorValue(TensorType(source.shape, target), codes),
            "output_scale": TensorValue(TensorType(shape, SCALE), quantized.scales),
        }

    return run


CAST_TO_BLOCK_SCALED = Operator(
    system="tosa",
    name="CAST_TO_BLOCK_SCALED",
    summary="Quantize to blocks of 32 elements with power-of-two scales.",
    source=SOURCE,
    inputs=(Operand(name="input_data", description="The real tensor, of rank 1 or more.", types=REALS),),
    outputs=(
        Operand(name="output_data", description="The elements: codes, i8 for mxint8.", types=ELEMENTS),
        Operand(name="output_scale", description="One scale per block.", types={SCALE.name: 1}),
    ),
    attributes=(
        Attribute(
            name="output_data_type",
            kind=Kind.TEXT,
            description="The element type of output_data, which TOSA takes from the graph; i8: mxint8.",
            choices=Choices("TosaBlockElement", tuple(MX_FORMATS), "Elements of TOSA's block-scaled tensors."),
        ),
        BLOCK_SIZE,
    ),
    deviations=(
        "The reference model rounds some quotients of mxint8 below 2^-48 to 1/64; here they are 0, the nearest.",
    ),
    implementations=only_implementation("tosa"),
    plan=_plan_to_blocks,
    example={
        "inputs": {"input_data": {"type": "tensor<1x32xf32>", "values": [0.5 * (step % 7) for step in range(32)]}},
        "attributes": {"output_data_type": "f4E2M1FN"},
    },
)
