"""Block formats: scales derived and elements quantized in one call, and back."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from requant.convert.blocks.block_tensor import (
    BlockFormat,
    BlockRule,
    dequantize_blocks,
    expected_parts,
    quantize_blocks,
)
from requant.convert.blocks.mx import MX_ELEMENTS
from requant.convert.blocks.nvfp4 import GlobalScale, Nvfp4Rule
from requant.description import (
    Array,
    Choices,
    Chooses,
    Elements,
    Kind,
    Member,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Stored,
    TensorInput,
    TensorOutput,
    TensorValue,
)
from requant.errors import InvalidRequestError, TypeFitError, UnsupportedError, default_pointer, error_side
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir import print_type
from requant.mlir.types import ElementType
from requant.plan.float_arrays import widen
from requant.plan.operands import float_element, static_shape
from requant.schemes.scheme import parse_factor

_ELEMENTS = "Codes, one per byte; for mxint8 integers in units of 1/64 of the scale. Absent for GGUF."
_SCALES = "One scale per block along the last axis: f8E8M0FNU, or f8E4M3FN for nvfp4. Absent for GGUF."
_BLOCKS = "GGUF only: the blocks as a GGUF file holds them, bytes along the last axis."
# The parts of a format: which tensors it has, and what they are.
_PARTS = (
    ("elements", _ELEMENTS, Elements.CODES),
    ("scales", _SCALES, Elements.BYTES),
    ("blocks", _BLOCKS, Elements.BYTES),
)

_FORMAT = Option(name="format", description="The block format.", choices=Choices.of(BlockFormat), chooses=Chooses.RULES)


def read_global_scale(text: str) -> float | GlobalScale:
    """Return where NVFP4's second level of scale comes from, or the number that the text is. Raise ParameterError."""
    return GlobalScale(text) if text in tuple(GlobalScale) else parse_factor(text)


def _plan_quantize(call: OperationCall) -> PlannedWork:
    tensor, options = call.types["input"], call.options
    with error_side("input"):
        shape = static_shape(tensor)
        element = float_element(tensor, "input")
        if element.name == "f64":
            raise UnsupportedError("the input has elements of f64; block formats are made from f32, f16 and bf16")

    def run(arrays: Mapping[str, Array]) -> Result:
        values = widen(arrays["input"], element).reshape(shape)
        blocks = quantize_blocks(values, options["format"], rule=options["rule"], global_scale=options["global_scale"])
        members = {"format": str(blocks.format)}
        if blocks.global_scale is not None:
            members["global_scale"] = repr(blocks.global_scale)
        return Result({name: TensorValue(part.type, part.data) for name, part in blocks.parts.items()}, members)

    return PlannedWork(
        operands={"input": Stored(tensor, element.tensor_dtype)},
        run=run,
        byte_count=2 * 4 * prod(shape),
        plan=_deciding(options),
    )


def _deciding(options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what decides all bits beside the tensors: the format, and those options that it has."""
    format_ = options["format"]
    if format_ is BlockFormat.NVFP4:
        return format_, options["global_scale"], options.get("rule")
    return (format_, options.get("rule")) if format_ in MX_ELEMENTS else (format_,)


QUANTIZE_BLOCKS = Operation(
    name="quantize_blocks",
    path="blocks/quantize",
    title="Quantize to a block format",
    group="ops",
    summary="Quantize a tensor to a block format, deriving the shared scales.",
    request="A tensor of real numbers (f32, f16 or bf16) and a block format.",
    source="OCP Microscaling Formats 1.0; NVIDIA NVFP4; ggml",
    inputs=(TensorInput(name="input", description="The real tensor.", elements=Elements.SHORT_REALS, model_name="x"),),
    options=(
        _FORMAT,
        Option(
            name="rule",
            description="Whose scales. MX formats: `ocp` to `rceil`, the rule for the shared exponent. nvfp4: `ocp` "
            "for divisions, or `torchao` to `transformer_engine`, whose number `global_scale` then is. GGUF: `ocp`.",
            default=BlockRule.OCP,
            choices=Choices.of(BlockRule),
            chooses=Chooses.RULES,
        ),
        Option(
            name="global_scale",
            kind=Kind.NUMBER_OR_TEXT,
            description="nvfp4 only: `derived` (the default: from the largest magnitude), `absent`, or a number, also "
            "as text. It is read as the nearest binary64, which is rounded to f32.",
            default="derived",
            read=read_global_scale,
        ),
    ),
    reply=(
        Member(name="format", kind=Kind.TEXT, choices=Choices.of(BlockFormat)),
        *(
            TensorOutput(name=name, description=description, elements=kind, optional=True)
            for name, description, kind in _PARTS
        ),
        Member(
            name="global_scale",
            kind=Kind.TEXT,
            description="nvfp4 only: the tensor-level scale, as decimal text.",
            optional=True,
        ),
    ),
    reply_title="BlockParts",
    reply_description="A tensor in a block format.",
    plan=_plan_quantize,
    example={
        "input": {"type": "tensor<1x32xf32>", "values": [0.5 * step for step in range(-16, 16)]},
        "format": "mxfp4_e2m1",
    },
)


def _dtype(element: ElementType) -> np.dtype[Any]:
    assert isinstance(element, FloatElement | IntegerElement)
    return element.tensor_dtype


def _plan_dequantize(call: OperationCall) -> PlannedWork:
    format_, output = call.options["format"], call.options["output_type"]
    with default_pointer("/output_type"):
        shape = static_shape(output)
        if output.element != FLOATS["f32"]:
            raise UnsupportedError("blocks are dequantized to f32")
        parts = expected_parts(format_, shape)
    for name, expected in parts.items():
        if name not in call.types:
            message, detail = f"{format_} needs {name}", f"required for {format_}"
            raise InvalidRequestError.of_field(f"/{name}", "missing", detail, message=message)
        stated = call.types[name]
        if stated.shape != expected.shape or (name not in call.untyped and stated != expected):
            given = f"the type given is {print_type(stated)}"
            if name in call.untyped:
                given = f"the input has shape {list(static_shape(stated))}"
            detail = f"{name} of {format_} are {print_type(expected)}; {given}"
            with error_side(name):
                raise TypeFitError(detail)
    for name in call.types:
        if name not in parts:
            message, detail = f"{format_} has no {name}", f"{format_} has none"
            raise InvalidRequestError.of_field(f"/{name}", "extra_forbidden", detail, message=message)
    global_scale, rule = call.options["global_scale"], call.options["rule"]

    def run(arrays: Mapping[str, Array]) -> Result:
        real = dequantize_blocks(format_, shape, dict(arrays), global_scale, rule).reshape(-1)
        return Result({"output": TensorValue(output, real)})

    return PlannedWork(
        operands={name: Stored(expected, _dtype(expected.element)) for name, expected in parts.items()},
        run=run,
        byte_count=2 * 4 * prod(shape),
        plan=_deciding(call.options),
    )


DEQUANTIZE_BLOCKS = Operation(
    name="dequantize_blocks",
    path="blocks/dequantize",
    title="Dequantize from a block format",
    group="ops",
    summary="Dequantize a tensor in a block format to f32.",
    request="A tensor in a block format: elements and scales, or for GGUF the type of the result and its blocks.",
    source=QUANTIZE_BLOCKS.source,
    inputs=tuple(
        TensorInput(name=name, description=description, elements=kind, optional=True)
        for name, description, kind in _PARTS
    ),
    options=(
        _FORMAT,
        Option(
            name="output_type",
            kind=Kind.TENSOR_TYPE,
            description="The type of the result, such as tensor<4x64xf32>.",
        ),
        Option(
            name="global_scale",
            kind=Kind.NUMBER_OR_TEXT,
            description="nvfp4 only: the tensor-level scale, a number or its text. Default: block scales only.",
            optional=True,
            read=parse_factor,
        ),
        Option(
            name="rule",
            description="nvfp4 only: the library whose global scale it is. Default: real numbers are element * "
            "(scale * global scale).",
            optional=True,
            choices=Choices.of(Nvfp4Rule),
            chooses=Chooses.RULES,
        ),
    ),
    reply=(TensorOutput(name="output", description="The real tensor.", elements=Elements.SINGLES, model_name="y"),),
    reply_title="DequantizeBlocksReply",
    reply_description="The dequantized tensor.",
    plan=_plan_dequantize,
    example={
        "format": "mxfp4_e2m1",
        "output_type": "tensor<1x32xf32>",
        "elements": {"type": "tensor<1x32xf4E2M1FN>", "values": [7] * 16 + [1] * 16},
        "scales": {"type": "tensor<1x1xf8E8M0FNU>", "values": [128]},
    },
)
