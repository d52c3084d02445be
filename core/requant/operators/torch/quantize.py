"""torch's quantize, dequantize and fake_quantize: eager, and of torch.ops.quantized_decomposed.

In the `.tensor2` overloads scale, zero point and bounds are tensors of one element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize
from requant.description import Array, TensorValue
from requant.errors import ParameterError, RequantError, TypeFitError, default_pointer
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir.types import StorageType, TensorType, UniformPerAxisType
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Run, Work, empty
from requant.operators.element_names import QUANTIZED, type_key
from requant.operators.execution import converted
from requant.operators.separate_parameters import Granularity, for_each
from requant.operators.torch.parameters import (
    AXIS,
    BOUNDS,
    EAGER_SCALES,
    OUT_DTYPE,
    REAL_INPUT,
    REAL_OUTPUT,
    REALS,
    SCALE,
    SCALE_TENSOR,
    SCALES,
    SOURCE,
    STORED_DTYPE,
    STORED_INPUT,
    STORED_OUTPUT,
    VERSIONS,
    ZERO_POINT,
    ZERO_POINT_TENSOR,
    ZERO_POINTS,
    channel_scales,
    dtype_attribute,
    one_scale,
    scale_tensor,
    storage_of,
    stored_element,
)
from requant.operators.typed_conversion import converting, expressed_type
from requant.plan.float_arrays import narrowed

_F32 = FLOATS["f32"]
_EAGER = dtype_attribute(("quint8", "qint8", "qint32"), "TorchQuantizedDtype")
_REAL = Operand(name="input", description="The real tensor.", types={"f32": 1})

_EAGER_PROFILES = {"2.13": "torch", "2.14": "torch_2_14"}
_PAST_INT64 = np.float32(2.0**63)

Scaled = Callable[[OperatorCall, tuple[int, ...], StorageType, FloatElement], TensorType]


def _quantizing(scaled: Scaled, profile: str | None = None) -> Callable[[OperatorCall], Run]:
    """Return the planning of an operator by a profile; without one by that of the implementation."""

    def plan_call(call: OperatorCall) -> Run:
        tensor, element = call.inputs["input"], stored_element(call)
        expressed = tensor.type.element
        assert isinstance(expressed, FloatElement)
        stored = scaled(call, tensor.shape, storage_of(call, element), expressed)
        target = TensorType(tensor.shape, element)
        if not tensor.data.size:
            return lambda: {"output": empty(target)}
        with default_pointer("/inputs/input"):
            plan = plan_quantize(tensor.type, stored, profile or _EAGER_PROFILES[call.implementation])
        return lambda: {"output": TensorValue(target, converted(plan, tensor.data, "input"))}

    return plan_call


def _dequantizing(scaled: Scaled) -> Callable[[OperatorCall], Run]:
    def plan_call(call: OperatorCall) -> Run:
        tensor, element = call.inputs["input"], stored_element(call)
        if tensor.type.element != element:
            raise ParameterError(f"dtype is {call.text('dtype')}, which the input is not", pointer="/attributes/dtype")
        expressed = FLOATS[REALS[call.text("out_dtype")]]
        # Bounds are no part of dequantization, beside being checked.
        storage_of(call, element)
        whole = StorageType.unbounded(IntegerElement(element.width), signed=element.signed)
        stored = scaled(call, tensor.shape, whole, expressed)
        target = TensorType(tensor.shape, expressed)
        if not tensor.data.size:
            return lambda: {"output": empty(target)}
        points = call.optional("zero_points")
        if points is not None and type_key(points.type.element) == "i64" and element.name == "i32":
            assert isinstance(stored.element, UniformPerAxisType)
            return _exact_differences(tensor, stored.element, target)
        with default_pointer("/inputs/input"):
            plan = plan_dequantize(stored, None, "torch_decomposed")

        def run() -> Outputs:
            return {"output": TensorValue(target, converted(plan, tensor.data, "input"))}

        return run

    return plan_call


def _exact_differences(tensor: TensorValue, element: UniformPerAxisType, target: TensorType) -> Run:
    """Return the work on i32 with zero points of i64, which torch subtracts in int64; those of i32 wrap."""
    granularity, expressed = Granularity(element.axis), target.element
    assert isinstance(expressed, FloatElement)

    def run() -> Outputs:
        scales, points = np.array(element.scales, np.float32), np.array(element.zero_points, np.int64)
        differences = tensor.data - for_each(points, tensor.shape, granularity)
        with np.errstate(over="ignore"):
            reals = differences.astype(np.float32) * for_each(scales, tensor.shape, granularity)
        return {"output": TensorValue(target, narrowed(reals, expressed))}

    return run


def _fake(scaled: Scaled) -> Callable[[OperatorCall], Run]:
    """Quantize, and dequantize again: f32(f32(q - z) * s)."""

    def plan_call(call: OperatorCall) -> Run:
        tensor = call.inputs["input"]
        lowest, highest = call.integer("quant_min"), call.integer("quant_max")
        if not lowest <= highest:
            raise ParameterError(f"quant_min is {lowest}, and quant_max {highest}", pointer="/attributes/quant_min")
        stored = scaled(call, tensor.shape, StorageType(IntegerElement(32), True, lowest, highest), _F32)
        if not tensor.data.size:
            return lambda: {"output": empty(tensor.type)}
        with default_pointer("/inputs/input"):
            forth, back = (
                plan_quantize(tensor.type, stored, "torch_decomposed", nan=NanPolicy.LOWEST),
                plan_dequantize(stored, None, "torch_decomposed"),
            )

        def run() -> Outputs:
            source = tensor.data
            if isinstance(stored.element, UniformPerAxisType):
                source = _within_int64(source, stored.element, tensor.shape)
            indices = converted(forth, source, "input")
            reals = np.empty(forth.elements, np.float32)
            back.run(indices, reals)
            return {"output": TensorValue(tensor.type, reals)}

        return run

    return plan_call


def _within_int64(x: Array, element: UniformPerAxisType, shape: tuple[int, ...]) -> Array:
    """Replace by -infinity what is beyond int64 once scaled: per channel torch converts that to the least int64."""
    with np.errstate(over="ignore", invalid="ignore"):
        inverses = np.float32(1) / np.array(element.scales, np.float32)
        scaled = x * for_each(inverses, shape, Granularity(element.axis))
    return np.where(scaled >= _PAST_INT64, np.float32(-np.inf), x)


def _single(call: OperatorCall, shape: tuple[int, ...], storage: StorageType, expressed: FloatElement) -> TensorType:
    return one_scale(call, shape, storage, expressed, single=True)


def _plan_dequantize(call: OperatorCall) -> Run:
    tensor = call.inputs["input"]
    return converting(tensor, expressed_type(tensor), "torch", "input", "output")


_X = {"type": "tensor<2x2xf32>", "values": [0.3, 1.0, -2.0, 100.0]}
_CHANNELS = {
    "scales": {"type": "tensor<2xf32>", "values": [0.5, 0.25]},
    "zero_points": {"type": "tensor<2xi32>", "values": [3, 0]},
}
_TENSORS = {
    "scale": {"type": "tensor<f32>", "values": [0.5]},
    "zero_point": {"type": "tensor<i64>", "values": [3]},
}
_PER_TENSOR = {"scale": 0.5, "zero_point": 3}
_UINT8 = {"quant_min": 0, "quant_max": 255}
_Q = {"type": "tensor<2x2xui8>", "values": [4, 5, 0, 203]}

QUANTIZE_PER_TENSOR = Operator(
    system="torch",
    name="quantize_per_tensor",
    summary="Quantize per tensor; returns the int_repr of the quantized tensor.",
    source=SOURCE,
    inputs=(_REAL,),
    outputs=(STORED_OUTPUT,),
    attributes=(SCALE, ZERO_POINT, _EAGER),
    implementations=VERSIONS,
    plan=_quantizing(one_scale),
    example={"inputs": {"input": _X}, "attributes": {**_PER_TENSOR, "dtype": "quint8"}},
)
QUANTIZE_PER_CHANNEL = Operator(
    system="torch",
    name="quantize_per_channel",
    summary="Quantize per channel; returns the int_repr of the quantized tensor.",
    source=SOURCE,
    inputs=(_REAL, EAGER_SCALES, ZERO_POINTS),
    outputs=(STORED_OUTPUT,),
    attributes=(AXIS, _EAGER),
    implementations=VERSIONS,
    plan=_quantizing(channel_scales),
    example={"inputs": {"input": _X, **_CHANNELS}, "attributes": {"axis": 1, "dtype": "qint8"}},
)
DEQUANTIZE = Operator(
    system="torch",
    name="dequantize",
    summary="Dequantize a quantized tensor, whose type holds scales and zero points, to f32.",
    source=SOURCE,
    inputs=(Operand(name="input", description="A quantized tensor.", types={QUANTIZED: 1}),),
    outputs=(Operand(name="output", description="The real tensor.", types={"f32": 1}),),
    implementations=VERSIONS,
    plan=_plan_dequantize,
    example={"inputs": {"input": {"type": "tensor<3x!quant.uniform<u8:f32, 0.5:3>>", "values": [3, 4, 255]}}},
)
FAKE_QUANTIZE_PER_TENSOR = Operator(
    system="torch",
    name="fake_quantize_per_tensor_affine",
    summary="Fake-quantize per tensor.",
    source=SOURCE,
    inputs=(_REAL,),
    outputs=(Operand(name="output", description="The real tensor.", types={"f32": 1}),),
    attributes=(SCALE, ZERO_POINT, *BOUNDS),
    implementations=VERSIONS,
    plan=_fake(_single),
    example={"inputs": {"input": _X}, "attributes": {**_PER_TENSOR, **_UINT8}},
)
FAKE_QUANTIZE_PER_CHANNEL = Operator(
    system="torch",
    name="fake_quantize_per_channel_affine",
    summary="Fake-quantize per channel.",
    source=SOURCE,
    inputs=(_REAL, SCALES, ZERO_POINTS),
    outputs=(Operand(name="output", description="The real tensor.", types={"f32": 1}),),
    attributes=(AXIS, *BOUNDS),
    implementations=VERSIONS,
    plan=_fake(channel_scales),
    example={"inputs": {"input": _X, **_CHANNELS}, "attributes": {"axis": 0, **_UINT8}},
)
DECOMPOSED_QUANTIZE_PER_TENSOR = Operator(
    system="torch",
    name="quantized_decomposed.quantize_per_tensor",
    summary="Quantize per tensor, with the scale as a Python float.",
    source=SOURCE,
    inputs=(REAL_INPUT,),
    outputs=(STORED_OUTPUT,),
    attributes=(SCALE, ZERO_POINT, *BOUNDS, STORED_DTYPE),
    implementations=VERSIONS,
    plan=_quantizing(one_scale, "torch_decomposed"),
    example={"inputs": {"input": _X}, "attributes": {**_PER_TENSOR, **_UINT8, "dtype": "uint8"}},
)
DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR = Operator(
    system="torch",
    name="quantized_decomposed.quantize_per_tensor.tensor",
    summary="Quantize per tensor, with the scale as a tensor.",
    source=SOURCE,
    inputs=(REAL_INPUT, SCALE_TENSOR, ZERO_POINT_TENSOR),
    outputs=(STORED_OUTPUT,),
    attributes=(*BOUNDS, STORED_DTYPE),
    implementations=VERSIONS,
    plan=_quantizing(scale_tensor, "torch_decomposed"),
    example={"inputs": {"input": _X, **_TENSORS}, "attributes": {**_UINT8, "dtype": "uint8"}},
)
DECOMPOSED_QUANTIZE_PER_CHANNEL = Operator(
    system="torch",
    name="quantized_decomposed.quantize_per_channel",
    summary="Quantize per channel.",
    source=SOURCE,
    inputs=(REAL_INPUT, SCALES, ZERO_POINTS),
    outputs=(STORED_OUTPUT,),
    attributes=(AXIS, *BOUNDS, STORED_DTYPE),
    implementations=VERSIONS,
    plan=_quantizing(channel_scales, "torch_decomposed"),
    example={"inputs": {"input": _X, **_CHANNELS}, "attributes": {"axis": 1, **_UINT8, "dtype": "uint8"}},
)
DECOMPOSED_DEQUANTIZE_PER_TENSOR = Operator(
    system="torch",
    name="quantized_decomposed.dequantize_per_tensor",
    summary="Dequantize per tensor, with the scale as a Python float.",
    source=SOURCE,
    inputs=(STORED_INPUT,),
    outputs=(REAL_OUTPUT,),
    attributes=(SCALE, ZERO_POINT, *BOUNDS, STORED_DTYPE, OUT_DTYPE),
    implementations=VERSIONS,
    plan=_dequantizing(one_scale),
    example={"inputs": {"input": _Q}, "attributes": {**_PER_TENSOR, **_UINT8, "dtype": "uint8"}},
)
DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR = Operator(
    system="torch",
    name="quantized_decomposed.dequantize_per_tensor.tensor",
    summary="Dequantize per tensor, with the scale as a tensor.",
    source=SOURCE,
    inputs=(STORED_INPUT, SCALE_TENSOR, ZERO_POINT_TENSOR),
    outputs=(REAL_OUTPUT,),
    attributes=(*BOUNDS, STORED_DTYPE, OUT_DTYPE),
    implementations=VERSIONS,
    plan=_dequantizing(scale_tensor),
    example={"inputs": {"input": _Q, **_TENSORS}, "attributes": {**_UINT8, "dtype": "uint8"}},
)
DECOMPOSED_DEQUANTIZE_PER_CHANNEL = Operator(
    system="torch",
    name="quantized_decomposed.dequantize_per_channel",
    summary="Dequantize per channel.",
    source=SOURCE,
    inputs=(STORED_INPUT, SCALES, ZERO_POINTS),
    outputs=(REAL_OUTPUT,),
    attributes=(AXIS, *BOUNDS, STORED_DTYPE, OUT_DTYPE),
    implementations=VERSIONS,
    plan=_dequantizing(channel_scales),
    example={"inputs": {"input": _Q, **_CHANNELS}, "attributes": {"axis": 1, **_UINT8, "dtype": "uint8"}},
)


_NAMES = ("quant_min", "quant_max")
_BOUNDS = tuple(
    Operand(name=name, description=f"{text} One number, of any shape.", types={"i32": 1, "i64": 1})
    for name, text in zip(_NAMES, ("The lowest quantized value.", "The highest quantized value."), strict=True)
)


def _with_attributes(operator: Operator) -> Callable[[OperatorCall], Run | Work]:
    """Return the plan of an operator whose bounds are attributes, for a call whose bounds are operands."""

    def plan_call(call: OperatorCall) -> Run | Work:
        bounds = {}
        for name in _NAMES:
            operand = call.inputs[name]
            if operand.data.size != 1:
                raise TypeFitError(
                    f"{name} has one element; this has shape {list(operand.shape)}", pointer=f"/inputs/{name}"
                )
            bounds[name] = int(operand.data[0])
        try:
            return operator.plan(replace(call, attributes={**call.attributes, **bounds}))
        except RequantError as error:
            if error.pointer in {f"/attributes/{name}" for name in _NAMES}:
                error.pointer = error.pointer.replace("/attributes", "/inputs")
            raise

    return plan_call


def _overload(operator: Operator) -> Operator:
    example = operator.example
    bounds = {name: {"type": "tensor<i64>", "values": [example["attributes"][name]]} for name in _NAMES}
    kept = {name: value for name, value in example["attributes"].items() if name not in _NAMES}
    return replace(
        operator,
        name=f"{operator.name}2",
        summary=f"{operator.summary.removesuffix('.')}, and so the bounds.",
        inputs=(*operator.inputs, *_BOUNDS),
        attributes=tuple(each for each in operator.attributes if each.name not in _NAMES),
        plan=_with_attributes(operator),
        example={"inputs": {**example["inputs"], **bounds}, "attributes": kept},
    )


QUANTIZE_PER_TENSOR_TENSOR2 = _overload(DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR)
DEQUANTIZE_PER_TENSOR_TENSOR2 = _overload(DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR)
