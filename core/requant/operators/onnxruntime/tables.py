"""onnxruntime's operators that are tables of 256 entries: QLinearSigmoid, QLinearLeakyRelu, QLinearConcat, QLinearWhere
(qlinear_lookup_table.cc, mlas logistic.cpp).

    dequantized[i] = f32(sx * (i - zx)), activated[i] = f(dequantized[i]), scaled[i] = f32(activated[i] / sy)
    table[i] = RNE(clamp(scaled[i], lowest - zy, highest - zy)) + zy

The codes i are 0 to 255, those of i8 read as its bytes. QLinearConcat and QLinearWhere have a table for each tensor
that they take from, f(x) = x; QLinearConcat copies those with the scale and zero point of the output.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from requant.description import Array, Kind
from requant.errors import TypeFitError
from requant.operators.description import Attribute, Operand, OperatorCall, Work
from requant.operators.onnx.operands import same_type
from requant.operators.onnxruntime.arithmetic import BYTES, fma32, fused, parameters, quantized_of
from requant.operators.separate_parameters import joined_shape, normalized_axis
from requant.operators.stages import F32, Quantized, Stages, in_stages, looked_up, stage

_MAX_JOINED = 8

# MlasComputeLogistic: the coefficients of odd and even powers, from the highest down.
_NUMERATOR = (
    4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03, 2.48287947061529e-01,
)  # fmt: skip
_DENOMINATOR = (
    6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03, 1.16817656904453e-01,
    9.93151921023180e-01,
)  # fmt: skip


def _logistic(x: Array) -> Array:
    x = np.clip(x, np.float32(-18), np.float32(18))
    square = x * x

    def polynomial(coefficients: tuple[float, ...]) -> Array:
        first, *others = coefficients
        return reduce(lambda value, each: fma32(value, square, np.float32(each)), others, np.full_like(x, first))

    quotient = polynomial(_NUMERATOR) * x / polynomial(_DENOMINATOR)
    return np.clip(quotient + np.float32(0.5), np.float32(0), np.float32(1))


def _table(x: Quantized, y: Quantized, activation: Callable[[Array], Array] | None = None) -> dict[str, Array]:
    """Return the stages of a table, and the table last."""
    stages = {"dequantized": x.dequantized(np.arange(256, dtype=np.uint8).view(x.dtype))}
    activated = stages["dequantized"]
    if activation is not None:
        stages["activated"] = activated = activation(activated)
    stages["scaled"] = activated / y.scale
    return stages | {"table": y.quantized(stages["scaled"])}


def _planned(call: OperatorCall, activation: Callable[[Array], Array]) -> Work:
    x = call.inputs["X"]
    of_x, of_y = quantized_of(call, "X", "X"), quantized_of(call, "Y", "X")

    def stages() -> Stages:
        found = _table(of_x, of_y, activation)
        return {**found, "Y": looked_up(found["table"], x.data).reshape(x.shape)}

    return in_stages(call, stages, x.shape, blocks=True)


def _plan_sigmoid(call: OperatorCall) -> Work:
    return _planned(call, _logistic)


def _plan_leaky_relu(call: OperatorCall) -> Work:
    alpha = np.float32(call.number("alpha"))
    return _planned(call, lambda x: np.where(x >= 0, x, alpha * x))


def _parts(call: OperatorCall) -> list[str]:
    """Return the names of the tensors to join. Raise TypeFitError for one without what it needs."""
    found: list[str] = []
    for index in range(_MAX_JOINED):
        names = [f"X_{index}{each}" for each in ("", "_scale", "_zero_point")]
        given = [name for name in names if name in call.inputs]
        if not given:
            continue
        if index > len(found) or len(given) < len(names):
            needed = next(name for name in (f"X_{len(found)}", *names) if name not in call.inputs)
            raise TypeFitError(f"{given[0]} needs {needed}", pointer=f"/inputs/{given[0]}")
        found.append(names[0])
    return found


def _plan_concat(call: OperatorCall) -> Work:
    names = _parts(call)
    axis = normalized_axis(call.integer("axis"), len(call.inputs["X_0"].shape))
    for name in names:
        same_type(call, name, "Y_zero_point")
    shape = joined_shape(call.inputs, names, axis)
    of_y = quantized_of(call, "Y", "Y_zero_point")
    of_x = [quantized_of(call, name, name) for name in names]

    def stages() -> Stages:
        copies = np.arange(256, dtype=np.uint8).view(of_y.dtype)
        tables = [copies if each == of_y else _table(each, of_y)["table"] for each in of_x]
        tensors = [call.inputs[name] for name in names]
        parts = [looked_up(table, x.data).reshape(x.shape) for table, x in zip(tables, tensors, strict=True)]
        return {"tables": np.stack(tables), "Y": np.concatenate(parts, axis)}

    return in_stages(call, stages, shape, blocks=True)


def _plan_where(call: OperatorCall) -> Work:
    condition, x, y = (call.inputs[name] for name in ("condition", "X", "Y"))
    same_type(call, "Y", "X")
    try:
        shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    except ValueError:
        raise TypeFitError(
            "the shapes of condition, X and Y cannot be broadcast", pointer="/inputs/condition"
        ) from None
    of_x, of_y, of_z = (quantized_of(call, name, "X", name) for name in ("x", "y", "z"))

    def stages() -> Stages:
        tables = [_table(each, of_z)["table"] for each in (of_x, of_y)]
        chosen = condition.data.reshape(condition.shape) != 0
        found = [looked_up(table, each.data).reshape(each.shape) for table, each in zip(tables, (x, y), strict=True)]
        z = np.where(chosen, *found)
        return {"tables": np.stack(tables), "Z": z}

    return in_stages(call, stages, shape, blocks=True)


_X = Operand(name="X", description="The tensor.", types=BYTES)
_UNARY = (_X, *parameters("X"), *parameters("X", prefix="Y"))
_OUTPUT = Operand(name="Y", description="The result, of the type of X.", types=BYTES)
_STAGES = (
    stage("dequantized", "f32(sx * (i - zx)) of the codes i from 0 to 255, those of i8 read as its bytes."),
    stage("activated", "The function of it, in f32."),
    stage("scaled", "f32(activated / sy)."),
    stage("table", "The output for each code.", BYTES),
)
_EXAMPLE = {
    "X": {"type": "tensor<5xui8>", "values": [0, 100, 128, 150, 255]},
    "X_scale": {"type": "tensor<f32>", "values": [0.04]},
    "X_zero_point": {"type": "tensor<ui8>", "values": [128]},
}

QLINEAR_SIGMOID = fused(
    "QLinearSigmoid",
    summary="The logistic function of a quantized tensor.",
    inputs=_UNARY,
    output=_OUTPUT,
    stages=_STAGES,
    plan=_plan_sigmoid,
    example={
        "inputs": {
            **_EXAMPLE,
            "Y_scale": {"type": "tensor<f32>", "values": [0.00390625]},
            "Y_zero_point": {"type": "tensor<ui8>", "values": [0]},
        },
    },
)

QLINEAR_LEAKY_RELU = fused(
    "QLinearLeakyRelu",
    summary="A quantized tensor with its negative numbers multiplied by alpha.",
    inputs=_UNARY,
    output=_OUTPUT,
    stages=_STAGES,
    attributes=(
        Attribute(name="alpha", kind=Kind.NUMBER, description="The factor of negative numbers, in f32.", default=0.01),
    ),
    plan=_plan_leaky_relu,
    example={
        "inputs": {
            **_EXAMPLE,
            "Y_scale": {"type": "tensor<f32>", "values": [0.025]},
            "Y_zero_point": {"type": "tensor<ui8>", "values": [10]},
        },
        "attributes": {"alpha": 0.1},
    },
)

QLINEAR_CONCAT = fused(
    "QLinearConcat",
    summary=f"Join up to {_MAX_JOINED} quantized tensors along an axis, requantized to one scale and zero point.",
    inputs=(
        Operand(name="Y_scale", description="One.", types=F32),
        Operand(name="Y_zero_point", description="One, of the type of all tensors.", types=BYTES),
        *(
            Operand(name=f"X_{index}{what}", description=said, types=types, optional=index > 0)
            for index in range(_MAX_JOINED)
            for what, said, types in (
                ("", f"Tensor {index}.", BYTES),
                ("_scale", f"One, of tensor {index}.", F32),
                ("_zero_point", f"One, of tensor {index}.", BYTES),
            )
        ),
    ),
    output=Operand(name="Y", description="The tensors one after the other.", types=BYTES),
    stages=(stage("tables", "The output for each code of each tensor.", BYTES),),
    attributes=(
        Attribute(name="axis", kind=Kind.INTEGER, description="The dimension; negative values count from the end."),
    ),
    deviations=(
        f"onnxruntime joins any number of tensors. For more than {_MAX_JOINED}, join the result with the others: what "
        "has the scale and zero point of the output is copied.",
    ),
    plan=_plan_concat,
    example={
        "inputs": {
            "Y_scale": {"type": "tensor<f32>", "values": [0.1]},
            "Y_zero_point": {"type": "tensor<i8>", "values": [3]},
            "X_0": {"type": "tensor<2xi8>", "values": [-128, 5]},
            "X_0_scale": {"type": "tensor<f32>", "values": [0.05]},
            "X_0_zero_point": {"type": "tensor<i8>", "values": [0]},
            "X_1": {"type": "tensor<2xi8>", "values": [-128, 5]},
            "X_1_scale": {"type": "tensor<f32>", "values": [0.1]},
            "X_1_zero_point": {"type": "tensor<i8>", "values": [3]},
        },
        "attributes": {"axis": 0},
    },
)

QLINEAR_WHERE = fused(
    "QLinearWhere",
    summary="Elements of one or the other of two quantized tensors, requantized to one scale and zero point.",
    inputs=(
        Operand(
            name="condition", description="Whether to take X. Shapes are broadcast as numpy does.", types={"ui1": 1}
        ),
        _X,
        *parameters("X", prefix="x", optional=False),
        Operand(name="Y", description="The other tensor, of the type of X.", types=BYTES),
        *parameters("X", prefix="y", optional=False),
        *parameters("X", prefix="z", optional=False),
    ),
    output=Operand(name="Z", description="The result, of the type of X.", types=BYTES),
    stages=(stage("tables", "The output for each code of X, and of Y.", BYTES),),
    plan=_plan_where,
    example={
        "inputs": {
            "condition": {"type": "tensor<3xui1>", "values": [1, 0, 1]},
            "X": {"type": "tensor<3xui8>", "values": [0, 100, 255]},
            "x_scale": {"type": "tensor<f32>", "values": [0.05]},
            "x_zero_point": {"type": "tensor<ui8>", "values": [128]},
            "Y": {"type": "tensor<1xui8>", "values": [77]},
            "y_scale": {"type": "tensor<f32>", "values": [0.1]},
            "y_zero_point": {"type": "tensor<ui8>", "values": [0]},
            "z_scale": {"type": "tensor<f32>", "values": [0.1]},
            "z_zero_point": {"type": "tensor<ui8>", "values": [128]},
        },
    },
)
