"""Models of ranges: scales and zero points derived from them, the scales and integers of a bias, fake quantization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.bias import BIAS_RULES
from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES
from requant.calibration.finished_type import Granularity, PerAxis, PerBlock
from requant.calibration.ranges import RANGE_RULES, RangeOptions
from requant.errors import TypeFitError
from requant.formats.elements import FloatElement
from requant.mlir.types import TensorType
from requant.plan.compute_dtype import widen
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES
from requant_service.oip.models.conversions import option_parameter
from requant_service.oip.models.model import Answer, Job, Model, Slot, Work
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.parameters import Kind, Parameter, Value
from requant_service.oip.tensors import Array, InputTensor, OutputTensor, output_tensor
from requant_service.operations.calibration.options import CALIBRATION_OPTIONS, LARGEST_AXIS
from requant_service.operations.parameters.ranges import (
    BYTES_PER_RANGE,
    RangeCall,
    check_ranges,
    derive_from_ranges,
    plan_bias,
    plan_fake_quantization,
)
from requant_service.operations.parameters.rules import CHARACTERS_PER_SCALE, finished_parameters

_FP64, _INT64 = DATATYPES["FP64"], DATATYPES["INT64"]
_NUMBERS = ("FP64", "FP32", "FP16", "BF16")

STORAGE = Parameter(name="storage", description="The storage type, with bounds if narrower: i8, u4, i8<-127:127>.")


_RANGE_OPTIONS = {field.name for field in fields(RangeOptions)}
RANGE_OPTIONS = tuple(option_parameter(option) for option in CALIBRATION_OPTIONS if option.name in _RANGE_OPTIONS)
SCALES_FOUND = (
    Slot(name="scale", description="One, or one per index of the axis, or one per block.", datatypes=("FP64",)),
    Slot(name="zero_point", description="One per scale.", datatypes=("INT64",)),
)
NUDGED_RANGES = (
    Slot(
        name="nudged_minimum",
        description="The nudged range, if the system moves it so that zero is exactly representable.",
        datatypes=("FP64",),
        optional=True,
    ),
    Slot(name="nudged_maximum", description="One per minimum.", datatypes=("FP64",), optional=True),
)


def real_numbers(tensor: InputTensor) -> NDArray[np.float64]:
    """Return the elements of a tensor of reals as flat f64."""
    element = tensor.datatype.element
    assert isinstance(element, FloatElement)
    return widen(tensor.data, element).astype(np.float64)


def reals_output(name: str, shape: tuple[int, ...], values: Array) -> OutputTensor:
    """Return an output of f64."""
    return OutputTensor(name, _FP64, shape, np.ascontiguousarray(values, np.float64).reshape(-1), "f64")


def integers_output(name: str, shape: tuple[int, ...], values: Array) -> OutputTensor:
    """Return an output of i64."""
    return OutputTensor(name, _INT64, shape, np.ascontiguousarray(values, np.int64).reshape(-1), "i64")


def parameters_shape(granularity: Granularity) -> tuple[int, ...]:
    """Return the shape of scales: none, the indices of an axis, or the blocks along each dimension."""
    match granularity:
        case PerAxis(count=count):
            return (count,)
        case PerBlock():
            return granularity.scale_shape
        case _:
            return ()


def given_options(call: Call, names: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of these names that are there."""
    return {name: call.parameters[name] for name in names if call.has(name)}


def texts_of(members: Mapping[str, Any]) -> dict[str, Value]:
    """Return the members of a reply that are no lists, which are outputs."""
    return {name: value for name, value in members.items() if not isinstance(value, list)}


def _plan_range(call: Call) -> Job:
    minimum, maximum = call.inputs["minimum"], call.inputs["maximum"]
    for tensor in (minimum, maximum):
        check_ranges(tensor.data.size, tensor.pointer)
    asked = RangeCall(
        minimums=real_numbers(minimum),
        maximums=real_numbers(maximum),
        scheme=call.text("scheme"),
        storage=call.text("storage"),
        expressed=call.text("expressed"),
        options=given_options(call, (field.name for field in fields(RangeOptions))),
        axis=call.integer("axis") if call.has("axis") else None,
        shape=call.integers("shape", lowest=1),
        block_sizes=call.integers("block_sizes", lowest=1),
    )

    def run() -> Answer:
        with pointing_into(call, minimums="minimum", maximums="maximum"):
            rule, expressed, found, granularity = derive_from_ranges(asked, call.settings)
        shape = parameters_shape(granularity)
        outputs = [reals_output("scale", shape, found.scales), integers_output("zero_point", shape, found.zero_points)]
        if found.nudged_minimums is not None and found.nudged_maximums is not None:
            outputs.append(reals_output("nudged_minimum", shape, found.nudged_minimums))
            outputs.append(reals_output("nudged_maximum", shape, found.nudged_maximums))
        return Answer(tuple(outputs), texts_of(finished_parameters(rule, expressed, found, granularity)))

    count = minimum.data.size
    return Job(run, BYTES_PER_RANGE * count, CHARACTERS_PER_SCALE * count, Work.TEXTS)


DERIVE_FROM_RANGE = Model(
    name="derive_from_range",
    versions=("1",),
    description="Derive scale and zero point from a range, by the rule of a system.",
    inputs=(
        Slot(name="minimum", description="One, or one per index of an axis, or one per block.", datatypes=_NUMBERS),
        Slot(name="maximum", description="One per minimum.", datatypes=_NUMBERS),
    ),
    outputs=(*SCALES_FOUND, *NUDGED_RANGES),
    parameters=(
        STORAGE,
        Parameter(name="scheme", description="The rule, named after its system.", choices=tuple(RANGE_RULES)),
        Parameter(name="expressed", description="The expressed type of the resulting type.", default="f32"),
        *RANGE_OPTIONS,
        Parameter(
            name="axis",
            kind=Kind.INTEGER,
            description="The axis along which there is a range per index.",
            optional=True,
            highest=LARGEST_AXIS,
        ),
        Parameter(
            name="shape",
            description="For ranges of blocks: the shape of the tensor, as a JSON list in text.",
            optional=True,
        ),
        Parameter(
            name="block_sizes",
            description="The size of a block along each dimension of the shape, as a JSON list in text. The ranges are "
            "row-major over the blocks.",
            optional=True,
        ),
    ),
    plan=_plan_range,
)


def _plan_bias(call: Call) -> Job:
    input_scale, weight_scale, bias = (call.inputs.get(name) for name in ("input_scale", "weight_scale", "bias"))
    assert input_scale is not None
    assert weight_scale is not None
    if input_scale.data.size != 1:
        raise TypeFitError("the input scale is one number", pointer=input_scale.pointer)
    check_ranges(weight_scale.data.size, weight_scale.pointer)
    source = None if bias is None else TensorType(bias.shape, bias.datatype.element)
    with pointing_into(call, input_scale="input_scale", weight_scales="weight_scale", bias="bias"):
        [scale] = real_numbers(input_scale).tolist()
        derived = plan_bias(call.text("scheme"), scale, real_numbers(weight_scale), source, "/bias")

    def run() -> Answer:
        shape = weight_scale.shape
        outputs = [
            reals_output("scale", shape, derived.scales),
            integers_output("zero_point", shape, np.zeros(derived.scales.size, np.int64)),
        ]
        said: dict[str, Value] = {"scheme": derived.rule.name, **derived.finished}
        if bias is not None:
            assert derived.type is not None
            with pointing_into(call, weight_scales="weight_scale", bias="bias"):
                found = derived.quantize(bias.data, "/bias")
            outputs.append(output_tensor("y", derived.type, found.values))
            said |= {
                "output_type": derived.output_type,
                "elements": bias.data.size,
                "saturated_low": found.saturated_low,
                "saturated_high": found.saturated_high,
            }
        return Answer(tuple(outputs), said)

    count = weight_scale.data.size
    elements = 0 if bias is None else bias.data.size
    return Job(run, BYTES_PER_RANGE * count + 32 * elements, BYTES_PER_RANGE * count)


DERIVE_BIAS = Model(
    name="derive_bias",
    versions=("1",),
    description="Derive the scale of a bias from the scales of input and weights, and quantize the bias to int32.",
    inputs=(
        Slot(name="input_scale", description="The scale of the input.", datatypes=_NUMBERS),
        Slot(name="weight_scale", description="One, or one per channel.", datatypes=_NUMBERS),
        Slot(
            name="bias",
            description="Any shape with one scale, else one element per channel.",
            datatypes=("FP32",),
            optional=True,
        ),
    ),
    outputs=(
        Slot(name="scale", description="One per weight scale.", datatypes=("FP64",)),
        Slot(name="zero_point", description="All 0.", datatypes=("INT64",)),
        Slot(name="y", description="The quantized bias, if there is one.", datatypes=("INT32",), optional=True),
    ),
    parameters=(Parameter(name="scheme", description="The rule, named after its system.", choices=tuple(BIAS_RULES)),),
    plan=_plan_bias,
)


def _plan_fake_quantize(call: Call) -> Job:
    x, minimum, maximum = (call.inputs[name] for name in ("x", "minimum", "maximum"))
    for tensor in (minimum, maximum):
        check_ranges(tensor.data.size, tensor.pointer)
    with pointing_into(call, input="x", minimums="minimum"):
        planned = plan_fake_quantization(
            TensorType(x.shape, x.datatype.element),
            real_numbers(minimum),
            real_numbers(maximum),
            num_bits=call.integer("num_bits"),
            narrow_range=call.boolean("narrow_range") is True,
            scheme=call.text("scheme"),
            axis=call.integer("axis") if call.has("axis") else None,
            pointer="/input",
        )
    ranges = planned.ranges
    assert ranges.nudged_minimums is not None
    assert ranges.nudged_maximums is not None
    found = {"scale": ranges.scales, "nudged_minimum": ranges.nudged_minimums, "nudged_maximum": ranges.nudged_maximums}

    def run() -> Answer:
        target = np.empty(planned.elements, np.float32)
        planned.run(x.data, target)
        shape = () if call.parameters["axis"] is None else (ranges.scales.size,)
        return Answer(
            (
                output_tensor("y", planned.type, target),
                *(reals_output(name, shape, values) for name, values in found.items()),
            ),
            {"scheme": call.text("scheme"), "elements": planned.elements},
        )

    count = minimum.data.size
    return Job(run, x.data.nbytes + BYTES_PER_RANGE * count, BYTES_PER_RANGE * count)


FAKE_QUANTIZE = Model(
    name="fake_quantize",
    versions=("1",),
    description="Fake-quantize a tensor: round each element to the nearest step of a nudged range.",
    inputs=(
        Slot(name="x", description="The real tensor.", datatypes=("FP32",)),
        Slot(
            name="minimum",
            description="The lower end of the range: one, or one per index of the axis.",
            datatypes=_NUMBERS,
        ),
        Slot(name="maximum", description="One per minimum.", datatypes=_NUMBERS),
    ),
    outputs=(
        Slot(name="y", description="The fake-quantized tensor.", datatypes=("FP32",)),
        Slot(name="scale", description="One per range.", datatypes=("FP64",)),
        Slot(name="nudged_minimum", description="The effective values.", datatypes=("FP64",)),
        Slot(name="nudged_maximum", description="The effective values.", datatypes=("FP64",)),
    ),
    parameters=(
        Parameter(
            name="num_bits",
            kind=Kind.INTEGER,
            description="The bit width of the quantized values.",
            default=8,
            lowest=2,
            highest=16,
        ),
        Parameter(
            name="narrow_range",
            kind=Kind.BOOLEAN,
            description="Do not use the lowest quantized value, so that the range is symmetric.",
            default=False,
        ),
        Parameter(
            name="scheme",
            description="The system.",
            default="tf_fake_quant",
            choices=tuple(FAKE_QUANTIZE_SCHEMES),
        ),
        Parameter(
            name="axis",
            kind=Kind.INTEGER,
            description="The last axis, if there are several ranges.",
            optional=True,
            highest=LARGEST_AXIS,
        ),
    ),
    plan=_plan_fake_quantize,
)
