"""Block formats: scales derived and elements quantized in one call, and back."""

from __future__ import annotations

from math import prod

import numpy as np
from fastapi import APIRouter, Depends
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from core.blocks.block_tensor import BlockTensor, dequantize_blocks, expected_parts, quantize_blocks
from core.errors import FieldFault, InvalidRequestError, TypeFitError, UnsupportedError, at
from core.formats.elements import FLOATS, FloatElement, IntegerElement
from core.mlir import print_type
from core.mlir.types import TensorType
from core.plan.lanes import widen
from core.plan.operands import float_element, static_shape
from core.schemes.factors import parse_factor
from service.http.json_body import MEDIA_TYPE, receive_json
from service.http.json_document import JsonDocument
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.http.responses import PiecesResponse, json_text
from service.json_api.schemas.blocks import (
    BlockParts,
    DequantizeBlocksReply,
    DequantizeBlocksRequest,
    QuantizeBlocksRequest,
    read_global_scale,
)
from service.json_api.tensors import output_pieces, read_elements
from service.operations.types import read_tensor_type
from service.runtime.memory_budget import hold
from service.runtime.runtime import require_ready
from service.runtime.settings import Settings

# The f32 numbers that a byte of blocks as base64 can stand for, and those as base64.
_BYTES_OF_NUMBERS = 24

router = APIRouter(prefix="/v1/blocks", tags=["ops"], dependencies=[Depends(no_query)])

_EXAMPLE = {
    "input": {"type": "tensor<1x32xf32>", "values": [0.5 * step for step in range(-16, 16)]},
    "format": "mxfp4_e2m1",
}
_PARTS_EXAMPLE = {
    "format": "mxfp4_e2m1",
    "output_type": "tensor<1x32xf32>",
    "elements": {"type": "tensor<1x32xf4E2M1FN>", "values": [7] * 16 + [1] * 16},
    "scales": {"type": "tensor<1x1xf8E8M0FNU>", "values": [128]},
}


@router.post("/quantize", **json_operation("quantizeBlocks", QuantizeBlocksRequest, BlockParts, example=_EXAMPLE))
async def quantize_in_blocks(request: Request) -> Response:
    """Quantize real numbers to a block format, deriving its shared scales."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, QuantizeBlocksRequest, running)

    def work() -> Response:
        with at("/input/type"):
            input_type = read_tensor_type(call.input.type, settings, "/input/type")
            shape = static_shape(input_type)
            element = float_element(input_type, "input")
            if element.name == "f64":
                raise UnsupportedError("the input has elements of f64; block formats are made from f32, f16 and bf16")
        source = read_elements(call.input, input_type, element.tensor_dtype, prod(shape), "input", body, settings)
        values = widen(source, element).reshape(shape)
        with at("/global_scale"):
            global_scale = read_global_scale(call.global_scale)
        tensor = quantize_blocks(values, call.format, rule=call.rule, global_scale=global_scale)
        return _reply(tensor, in_values=call.input.in_values)

    return await running.compute.arrays(len(body), work)


def _reply(tensor: BlockTensor, *, in_values: bool) -> Response:
    pieces: list[bytes | memoryview] = [b'{"format":' + json_text(tensor.format)]
    for name, part in (("elements", tensor.elements), ("scales", tensor.scales), ("blocks", tensor.blocks)):
        if part is not None:
            pieces += [
                b',"' + name.encode() + b'":',
                *output_pieces(part.type, part.data, in_values=in_values),
            ]
    if tensor.global_scale is not None:
        pieces.append(b',"global_scale":' + json_text(repr(tensor.global_scale)))
    return PiecesResponse([*pieces, b"}"], MEDIA_TYPE)


@router.post(
    "/dequantize",
    **json_operation("dequantizeBlocks", DequantizeBlocksRequest, DequantizeBlocksReply, example=_PARTS_EXAMPLE),
)
async def dequantize_from_blocks(request: Request) -> Response:
    """Turn a tensor in a block format back into the f32 numbers that it stands for."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, DequantizeBlocksRequest, running)
    await hold(request.scope, _BYTES_OF_NUMBERS * len(body))

    def work() -> Response:
        with at("/output_type"):
            output_type = read_tensor_type(call.output_type, settings, "/output_type")
            shape = static_shape(output_type)
            if output_type.element != FLOATS["f32"]:
                raise UnsupportedError("blocks are dequantized to f32")
            expected = expected_parts(call.format, shape)
        parts = {name: _read_part(call, name, part_type, body, settings) for name, part_type in expected.items()}
        _refuse_others(call, expected)
        scale = None
        if "global_scale" in call.model_fields_set:
            with at("/global_scale"):
                scale = parse_factor(call.global_scale)
        real = dequantize_blocks(call.format, shape, parts, scale)
        in_values = any(getattr(call, name).in_values for name in parts)
        output = output_pieces(output_type, real.reshape(-1), in_values=in_values)
        return PiecesResponse([b'{"output":', *output, b"}"], MEDIA_TYPE)

    return await running.compute.arrays(len(body), work)


def _read_part(
    call: DequantizeBlocksRequest, name: str, expected: TensorType, body: JsonDocument, settings: Settings
) -> NDArray[np.generic]:
    """Return the flat array of one part, whose type has to be the one that the format and shape ask for."""
    if name not in call.model_fields_set:
        raise InvalidRequestError(
            f"{call.format} needs {name}", (FieldFault(f"/{name}", "missing", f"required for {call.format}"),)
        )
    tensor = getattr(call, name)
    given = read_tensor_type(tensor.type, settings, f"/{name}/type")
    if given != expected:
        raise TypeFitError(
            f"{name} of {call.format} are {print_type(expected)}; the type given is {print_type(given)}",
            pointer=f"/{name}/type",
        )
    element = expected.element
    assert isinstance(element, (FloatElement, IntegerElement))
    dtype = element.tensor_dtype if isinstance(element, FloatElement) else element.dtype
    return read_elements(tensor, expected, dtype, prod(static_shape(expected)), name, body, settings)


def _refuse_others(call: DequantizeBlocksRequest, expected: dict[str, TensorType]) -> None:
    for name in ("elements", "scales", "blocks"):
        if name in call.model_fields_set and name not in expected:
            raise InvalidRequestError(
                f"{call.format} has no {name}", (FieldFault(f"/{name}", "extra_forbidden", f"{call.format} has none"),)
            )
