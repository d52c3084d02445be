"""The routes of the `.npy` protocol: one `.npy` or safetensors file in, one file out, types in the query."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from requant.profiles import Operation
from requant_service.http.openapi_operation import SCHEMAS, Example, npy_operation, query_parameter
from requant_service.npy_api.conversion import convert_npy
from requant_service.npy_api.format import write_npy
from requant_service.operations.conversion_query import described_fields

router = APIRouter(prefix="/v1/npy", tags=["npy"])

STORED = "MLIR text, percent-encoded (+ as %2B). A bare quantized type takes its shape from the .npy file."


OUTPUT = query_parameter(
    "output",
    "npz returns y, scale, zero_point and type in one .npz. Only for a type that leaves its scales open.",
    schema={"$ref": f"{SCHEMAS}OutputFormat", "default": "npy"},
)

TENSOR = query_parameter("tensor", "The name of the tensor, if the body is a safetensors file with several.")


I8 = "!quant.uniform<i8:f32, 0.5:3>"
EXAMPLE_TENSORS = {
    Operation.QUANTIZE: write_npy(np.array([-0.25, 0.25, 0.75, 100], np.float32)),
    Operation.DEQUANTIZE: write_npy(np.array([3, 4, 0, 127], np.int8)),
    Operation.REQUANTIZE: write_npy(np.array([-70000, -750, 750, 70000], np.int32)),
}
_QUERIES = {
    Operation.QUANTIZE: {"output_type": I8, "profile": "onnx"},
    Operation.DEQUANTIZE: {"input_type": I8},
    Operation.REQUANTIZE: {"input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": I8},
}


def _described(operation: Operation, input_type: str, output_type: str, *others: dict[str, Any]) -> dict[str, Any]:
    return npy_operation(
        f"{operation}Npy",
        f"{operation.capitalize()} a .npy file",
        [*described_fields(operation, input_type, output_type), TENSOR, *others],
        Example(query=_QUERIES[operation], npy=EXAMPLE_TENSORS[operation]),
    )


@router.post(
    "/quantize",
    **_described(
        Operation.QUANTIZE,
        "MLIR text. Default: the element type and shape of the .npy file.",
        f"{STORED} !quant.any and !quant.calibrated leave the scales to be derived.",
        OUTPUT,
    ),
)
async def quantize_npy(request: Request) -> Response:
    """Quantize a .npy file to a given type, or with derived scales."""
    return await convert_npy(request, Operation.QUANTIZE)


@router.post(
    "/dequantize",
    **_described(Operation.DEQUANTIZE, STORED, "MLIR text. Default: the expressed type of the input."),
)
async def dequantize_npy(request: Request) -> Response:
    """Dequantize a .npy file."""
    return await convert_npy(request, Operation.DEQUANTIZE)


@router.post(
    "/requantize",
    **_described(
        Operation.REQUANTIZE,
        f"{STORED} Default: the integers and shape of the .npy, which need multipliers.",
        STORED,
    ),
)
async def requantize_npy(request: Request) -> Response:
    """Requantize a .npy file of quantized values or accumulators to another scale."""
    return await convert_npy(request, Operation.REQUANTIZE)
