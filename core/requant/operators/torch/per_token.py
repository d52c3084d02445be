"""torch.ops.quantized_decomposed.quantize_per_token and dequantize_per_token.

A token is a row along the last dimension.
"""

from __future__ import annotations

from requant.errors import TypeFitError
from requant.operators.description import Operator, OperatorCall, Work
from requant.operators.torch.parameters import (
    BOUNDS,
    REAL_INPUT,
    REAL_OUTPUT,
    SOURCE,
    STORED_DTYPE,
    STORED_INPUT,
    STORED_OUTPUT,
    VERSIONS,
    real_dtype_attribute,
)
from requant.operators.torch.rows import (
    DTYPE_IS_THE_INPUTS,
    ROW_SCALES,
    ROW_ZERO_POINTS,
    Rows,
    checked_rows,
    dequantizing_rows,
    quantizing_rows,
)

_DEVIATIONS = (
    "Scales and zero points have the shape of the input with 1 as last dimension; torch broadcasts any shape with as "
    "many elements.",
)


def _tokens(call: OperatorCall) -> Rows:
    shape = call.inputs["input"].shape
    if not shape:
        raise TypeFitError("tokens are along the last dimension; the input has rank 0", pointer="/inputs/input")
    expected = (*shape[:-1], 1)
    for name in ("scales", "zero_points"):
        found = call.inputs[name].shape
        if found != expected:
            raise TypeFitError(
                f"{name} has shape {list(found)}; there is one for each token: {list(expected)}",
                pointer=f"/inputs/{name}",
            )
    return checked_rows(shape[-1], call.inputs["scales"], call.inputs["zero_points"])


def _quantize(call: OperatorCall) -> Work:
    return quantizing_rows(call, _tokens(call))


def _dequantize(call: OperatorCall) -> Work:
    return dequantizing_rows(call, _tokens(call))


_PARAMETERS = {
    "scales": {"type": "tensor<2x1xf32>", "values": [0.5, 0.25]},
    "zero_points": {"type": "tensor<2x1xi32>", "values": [3, 0]},
}
_INT8 = {"quant_min": -128, "quant_max": 127, "dtype": "int8"}

QUANTIZE_PER_TOKEN = Operator(
    system="torch",
    name="quantized_decomposed.quantize_per_token",
    summary="Quantize per token: one scale per row along the last dimension.",
    source=SOURCE,
    inputs=(REAL_INPUT, ROW_SCALES, ROW_ZERO_POINTS),
    outputs=(STORED_OUTPUT,),
    attributes=(*BOUNDS, STORED_DTYPE),
    implementations=VERSIONS,
    plan=_quantize,
    example={
        "inputs": {"input": {"type": "tensor<2x2xf32>", "values": [0.3, 1.0, -2.0, 100.0]}, **_PARAMETERS},
        "attributes": _INT8,
    },
    deviations=_DEVIATIONS,
)
DEQUANTIZE_PER_TOKEN = Operator(
    system="torch",
    name="quantized_decomposed.dequantize_per_token",
    summary="Dequantize per token: one scale per row along the last dimension.",
    source=SOURCE,
    inputs=(STORED_INPUT, ROW_SCALES, ROW_ZERO_POINTS),
    outputs=(REAL_OUTPUT,),
    attributes=(*BOUNDS, STORED_DTYPE, real_dtype_attribute("output_dtype")),
    implementations=VERSIONS,
    plan=_dequantize,
    example={
        "inputs": {"input": {"type": "tensor<2x2xi8>", "values": [4, 5, -8, 127]}, **_PARAMETERS},
        "attributes": _INT8,
    },
    deviations=(*_DEVIATIONS, DTYPE_IS_THE_INPUTS),
)
