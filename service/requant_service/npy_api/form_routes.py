"""The routes of forms: `.npy` files and texts as `multipart/form-data` in, one file out."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.profiles import Operation
from requant_service.http.openapi_operation import Example, form_operation, query_parameter
from requant_service.http.query import no_query
from requant_service.npy_api.form_conversion import convert_form, file_fields, form_fields
from requant_service.npy_api.format import write_npy
from requant_service.npy_api.routes import EXAMPLE_TENSORS, I8, OUTPUT
from requant_service.operations.calibration.options import CALIBRATION_OPTIONS, OF_SCALES
from requant_service.operations.conversion_query import described_fields, schema_of

router = APIRouter(prefix="/v1/multipart", tags=["multipart"], dependencies=[Depends(no_query)])

_BARE = "MLIR text. A bare element type takes its shape from x."
_FILES = {
    "x": "The tensor, a .npy file.",
    "scale": "Instead of a type: one scale, or one per index of axis, or one per block. A .npy file.",
    "zero_point": "With scale: one zero point per scale, a .npy file. Default: 0.",
    "multiplier": "Replace the derived multipliers: one, or one per channel, a .npy file of int64.",
    "shift": "With multiplier: one shift per multiplier, a .npy file of int32.",
}
_SCALES = write_npy(np.array([0.5, 0.25, 0.125, 0.0625], np.float32))
_EXAMPLE_FIELDS: dict[Operation, dict[str, str | int | bytes]] = {
    Operation.QUANTIZE: {"scale": _SCALES, "axis": 0, "storage_type": "i8", "profile": "onnx"},
    Operation.DEQUANTIZE: {"scale": _SCALES, "axis": 0},
    Operation.REQUANTIZE: {
        "output_type": I8,
        "multiplier": write_npy(np.array([1 << 30], np.int64)),
        "shift": write_npy(np.array([-8], np.int32)),
    },
}


def _described(operation: Operation, input_type: str, output_type: str) -> dict[str, Any]:
    names = form_fields(operation)
    fields = [*described_fields(operation, input_type, output_type), OUTPUT]
    described = {field["name"]: field for field in fields}
    for option in CALIBRATION_OPTIONS:
        if option.name in OF_SCALES:
            said = f"With scale: {_OF_SCALES[option.name]}"
            said += f" Else: {option.description}" if operation is Operation.QUANTIZE else ""
            described.setdefault(option.name, query_parameter(option.name, said, schema=schema_of(option)))
    files = {name: _FILES[name] for name in file_fields(operation)}
    required = {"x", "output_type"} if operation is Operation.REQUANTIZE else {"x"}
    return form_operation(
        f"{operation}Form",
        f"{operation.capitalize()} .npy files in a form",
        files,
        [described[name] for name in names],
        required,
        Example(form={"x": EXAMPLE_TENSORS[operation], **_EXAMPLE_FIELDS[operation]}),
    )


_OF_SCALES = {
    "storage_type": "the storage, such as i8, u4 or i8<-127:127>.",
    "axis": "the axis of the channels.",
    "block_sizes": "the size of a block along each dimension, such as 1,32.",
}


@router.post(
    "/quantize",
    **_described(
        Operation.QUANTIZE,
        f"{_BARE} Default: the element type and shape of x.",
        f"{_BARE} !quant.any and !quant.calibrated leave the scales to be derived. Required unless there is a scale.",
    ),
)
async def quantize_form(request: Request) -> Response:
    """Quantize a .npy file; the scales may be files too, or derived."""
    return await convert_form(request, Operation.QUANTIZE)


@router.post(
    "/dequantize",
    **_described(
        Operation.DEQUANTIZE,
        f"{_BARE} Required unless there is a scale.",
        f"{_BARE} Default: the expressed type of the input.",
    ),
)
async def dequantize_form(request: Request) -> Response:
    """Dequantize a .npy file; the scales may be files too."""
    return await convert_form(request, Operation.DEQUANTIZE)


@router.post(
    "/requantize",
    **_described(
        Operation.REQUANTIZE,
        f"{_BARE} Default: the integers and shape of x, which need multipliers.",
        _BARE,
    ),
)
async def requantize_form(request: Request) -> Response:
    """Requantize a .npy file to another scale; the multipliers may be files too."""
    return await convert_form(request, Operation.REQUANTIZE)
