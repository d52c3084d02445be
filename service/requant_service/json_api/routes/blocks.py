"""Block formats: scales derived and elements quantized in one call, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import InvalidRequestError, TypeFitError, default_pointer
from requant.mlir import print_type
from requant.schemes.scheme import parse_factor
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.json_document import JsonDocument
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import Buffer, BuffersResponse, json_text
from requant_service.json_api.schemas.blocks import (
    BlockParts,
    DequantizeBlocksReply,
    DequantizeBlocksRequest,
    QuantizeBlocksRequest,
)
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations import blocks
from requant_service.operations.types import read_tensor_type
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import require_ready
from requant_service.runtime.settings import Settings

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


@router.post(
    "/quantize",
    **json_operation(
        "quantizeBlocks", "Quantize to a block format", QuantizeBlocksRequest, BlockParts, example=_EXAMPLE
    ),
)
async def quantize_in_blocks(request: Request) -> Response:
    """Quantize a tensor to a block format, deriving the shared scales."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, QuantizeBlocksRequest, running)

    def work() -> Response:
        with default_pointer("/input/type"):
            input_type = read_tensor_type(call.input.type, settings, "/input/type")
            element = blocks.real_element(input_type)
        source = read_elements(call.input, input_type, element.tensor_dtype, "input", body, settings)
        with default_pointer("/global_scale"):
            global_scale = blocks.read_global_scale(body.number_text(call.global_scale, "global_scale"))
        tensor = blocks.quantize(source, input_type, call.format, call.rule, global_scale)
        pieces: list[Buffer] = [b'{"format":' + json_text(tensor.format)]
        for name, part in tensor.parts.items():
            pieces += [b"," + json_text(name) + b":"]
            pieces += output_pieces(part.type, part.data, in_values=call.input.in_values)
        if tensor.global_scale is not None:
            pieces.append(b',"global_scale":' + json_text(repr(tensor.global_scale)))
        return BuffersResponse([*pieces, b"}"], MEDIA_TYPE)

    return await running.executor.run_array(len(body), work)


@router.post(
    "/dequantize",
    **json_operation(
        "dequantizeBlocks",
        "Dequantize from a block format",
        DequantizeBlocksRequest,
        DequantizeBlocksReply,
        example=_PARTS_EXAMPLE,
    ),
)
async def dequantize_from_blocks(request: Request) -> Response:
    """Dequantize a tensor in a block format to f32."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, DequantizeBlocksRequest, running)
    await reserve_memory(request.scope, _BYTES_OF_NUMBERS * len(body))

    def work() -> Response:
        with default_pointer("/output_type"):
            output = read_tensor_type(call.output_type, settings, "/output_type")
            wanted = blocks.Dequantization.to(output, call.format)
        given: dict[str, Tensor] = call.given("elements", "scales", "blocks")
        parts = {name: _read_part(given, name, wanted, body, settings) for name in wanted.parts}
        for name in given:
            if name not in wanted.parts:
                message, detail = f"{call.format} has no {name}", f"{call.format} has none"
                raise InvalidRequestError.of_field(f"/{name}", "extra_forbidden", detail, message=message)
        with default_pointer("/global_scale"):
            given_scale = call.given("global_scale").get("global_scale")
            scale = None if given_scale is None else parse_factor(body.number_text(given_scale, "global_scale"))
        real = wanted.run(parts, scale)
        in_values = any(given[name].in_values for name in parts)
        return BuffersResponse([b'{"output":', *output_pieces(output, real, in_values=in_values), b"}"], MEDIA_TYPE)

    return await running.executor.run_array(len(body), work)


def _read_part(
    given: Mapping[str, Tensor], name: str, wanted: blocks.Dequantization, body: JsonDocument, settings: Settings
) -> NDArray[Any]:
    """Return the flat array of one part, whose type has to be the one that the format and shape ask for."""
    format_, expected = wanted.format, wanted.parts[name]
    if name not in given:
        message, detail = f"{format_} needs {name}", f"required for {format_}"
        raise InvalidRequestError.of_field(f"/{name}", "missing", detail, message=message)
    tensor, place = given[name], f"/{name}/type"
    if (found := read_tensor_type(tensor.type, settings, place)) != expected:
        detail = f"{name} of {format_} are {print_type(expected)}; the type given is {print_type(found)}"
        raise TypeFitError(detail, pointer=place)
    return read_elements(tensor, expected, wanted.dtype(name), name, body, settings)
