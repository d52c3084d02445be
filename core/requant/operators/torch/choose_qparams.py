"""torch.ops.quantized_decomposed.choose_qparams and its kin: scales and zero points of a tensor, or of each token.

The arithmetic is that of the range rules torch_decomposed and torch_per_token.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from requant.calibration.ranges import RangeOptions, RangeParameters, range_rule_named
from requant.description import Array, Kind, TensorValue
from requant.errors import ParameterError, TypeFitError, default_pointer
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.mlir.types import StorageType, TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Run, Work
from requant.operators.torch.parameters import (
    BOUNDS,
    SOURCE,
    STORED_DTYPE,
    VERSIONS,
    dtype_attribute,
    storage_of,
    stored_element,
)
from requant.plan.float_arrays import widen

_EPS = Attribute(name="eps", kind=Kind.NUMBER, description="The smallest scale; greater than 0 in f32.")
_TOKEN_DTYPE = dtype_attribute(("int8",), "TorchTokenDtype")
_I64 = IntegerElement(64, Signedness.SIGNLESS)
_INT8 = StorageType.unbounded(IntegerElement(8), signed=True)

_BYTES_OF_TOKEN = 128
"""Of both ends, the parameters and the steps between, of which half are f64."""

_FINITE = "NaN, infinities and ranges wider than f32 are errors; torch makes parameters of them that are not finite."
_ROUNDED = "The input is f32; in bf16 and f16 torch rounds steps to them."
_BOUNDED = "Bounds are of the dtype, and eps is above 0; torch asks for neither."


def _of_tensor(*, symmetric: bool) -> Callable[[OperatorCall], Run]:
    def plan_call(call: OperatorCall) -> Run:
        tensor = call.inputs["input"]
        if not tensor.data.size:
            raise TypeFitError("a tensor without elements has no range", pointer="/inputs/input")
        storage = storage_of(call, stored_element(call))
        if not storage.minimum <= 0 <= storage.maximum or storage.minimum == storage.maximum:
            raise ParameterError(
                f"quant_min to quant_max, {storage.minimum} to {storage.maximum}, has 0 and another number",
                pointer="/attributes/quant_min",
            )
        with np.errstate(over="ignore"):
            eps = float(np.float32(call.number("eps")))
        if not 0 < eps < float("inf"):
            raise ParameterError("eps is above 0 and finite in f32", pointer="/attributes/eps")
        options = RangeOptions(symmetric=symmetric, epsilon=eps)

        def run() -> Outputs:
            derived = _ranged("torch_decomposed", tensor.data.reshape(1, -1), storage, options)
            return _parameters(derived, (1,))

        return run

    return plan_call


def _of_tokens(*, symmetric: bool) -> Callable[[OperatorCall], Work]:
    def plan_call(call: OperatorCall) -> Work:
        tensor = call.inputs["input"]
        if not tensor.shape or not tensor.shape[-1]:
            raise TypeFitError("a token has elements, along the last dimension", pointer="/inputs/input")
        shape, tokens = (*tensor.shape[:-1], 1), tensor.data.size // tensor.shape[-1]
        element = tensor.type.element
        assert isinstance(element, FloatElement)

        def run() -> Outputs:
            # Numbers of f16 are kept until after the largest is found, and that is exact.
            rows = widen(tensor.data, element).reshape(tokens, -1) if tokens else np.empty((0, 1), np.float32)
            none = RangeParameters(np.empty(0), np.empty(0, np.int64), _INT8)
            derived = _ranged("torch_per_token", rows, _INT8, RangeOptions(symmetric=symmetric)) if tokens else none
            if not symmetric:
                return _parameters(derived, shape)
            target = TensorType(shape, FLOATS["f32"])
            scales = derived.scales.astype(np.float32)
            return {"scale": TensorValue(target, scales), "zero_point": TensorValue(target, np.zeros_like(scales))}

        return Work(run, copied=_BYTES_OF_TOKEN * tokens)

    return plan_call


def _ranged(rule: str, rows: Array, storage: StorageType, options: RangeOptions) -> RangeParameters:
    with default_pointer("/inputs/input"):
        lows, highs = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
        return range_rule_named(rule).derive_all(lows, highs, storage, options)


def _parameters(derived: RangeParameters, shape: tuple[int, ...]) -> Outputs:
    return {
        "scale": TensorValue(TensorType(shape, FLOATS["f64"]), derived.scales),
        "zero_point": TensorValue(TensorType(shape, _I64), derived.zero_points),
    }


_INPUT = Operand(name="input", description="The real tensor.", types={"f32": 1})
_OUTPUTS = (
    Operand(name="scale", description="A value representable in f32.", types={"f64": 1}),
    Operand(name="zero_point", description="A quantized value.", types={"i64": 1}),
)
_X = {"type": "tensor<2x2xf32>", "values": [0.3, 1.0, -2.0, 100.0]}
_UINT8 = {"quant_min": 0, "quant_max": 255, "eps": 1e-5, "dtype": "uint8"}

CHOOSE_QPARAMS = Operator(
    system="torch",
    name="quantized_decomposed.choose_qparams.tensor",
    summary="Derive scale and zero point from the range of a tensor.",
    source=SOURCE,
    inputs=(_INPUT,),
    outputs=_OUTPUTS,
    attributes=(*BOUNDS, _EPS, STORED_DTYPE),
    implementations=VERSIONS,
    plan=_of_tensor(symmetric=False),
    example={"inputs": {"input": _X}, "attributes": _UINT8},
    deviations=(_FINITE, _ROUNDED, _BOUNDED),
)
CHOOSE_QPARAMS_SYMMETRIC = Operator(
    system="torch",
    name="quantized_decomposed.choose_qparams_symmetric.tensor",
    summary="Derive the scale from the largest magnitude of a tensor; the zero point is 0, or 128 for uint8.",
    source=SOURCE,
    inputs=(_INPUT,),
    outputs=_OUTPUTS,
    attributes=(*BOUNDS, _EPS, STORED_DTYPE),
    implementations=VERSIONS,
    plan=_of_tensor(symmetric=True),
    example={"inputs": {"input": _X}, "attributes": _UINT8},
    deviations=(_FINITE, _ROUNDED, _BOUNDED),
)
CHOOSE_QPARAMS_PER_TOKEN = Operator(
    system="torch",
    name="quantized_decomposed.choose_qparams_per_token",
    summary="Derive the scale from the largest magnitude of each row along the last dimension; zero points are 0, "
    "as f32.",
    source=SOURCE,
    inputs=(Operand(name="input", description="The real tensor.", types={"f32": 1, "f16": 1}),),
    outputs=(
        Operand(name="scale", description="One per token.", types={"f32": 1}),
        Operand(name="zero_point", description="One zero per scale.", types={"f32": 1}),
    ),
    attributes=(_TOKEN_DTYPE,),
    implementations=VERSIONS,
    plan=_of_tokens(symmetric=True),
    example={"inputs": {"input": _X}, "attributes": {"dtype": "int8"}},
    deviations=(_FINITE, "bf16 is refused: torch rounds steps to it."),
)
CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC = Operator(
    system="torch",
    name="quantized_decomposed.choose_qparams_per_token_asymmetric",
    summary="Derive scale and zero point from the range of each row along the last dimension, for int8.",
    source=SOURCE,
    inputs=(_INPUT,),
    outputs=_OUTPUTS,
    attributes=(_TOKEN_DTYPE,),
    implementations=VERSIONS,
    plan=_of_tokens(symmetric=False),
    example={"inputs": {"input": _X}, "attributes": {"dtype": "int8"}},
    deviations=(_FINITE, _ROUNDED, "dtype must be int8; torch accepts any dtype and ignores it."),
)
