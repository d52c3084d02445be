"""Scales and zero points from data as a model: the search of a calibration method, in tensors of one type."""

from __future__ import annotations

from dataclasses import fields

from requant.calibration.methods import CALIBRATION_METHODS, CalibrationOptions
from requant.calibration.methods.search import DEFAULT_METHOD, CalibrationRequest, GranularityName, plan_calibration
from requant.calibration.ranges import RANGE_RULES, RangeOptions
from requant.errors import TypeFitError
from requant.mlir.types import TensorType
from requant.profiles import PROFILES
from requant_service.oip.call import Call
from requant_service.oip.datatypes import REALS
from requant_service.oip.models.conversions import option_parameter
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.models.ranges import (
    NUDGED_RANGES,
    RANGE_OPTIONS,
    SCALES_FOUND,
    STORAGE,
    given_options,
    integers_output,
    parameters_shape,
    reals_output,
    texts_of,
)
from requant_service.oip.parameters import Parameter
from requant_service.oip.tensors import InputTensor
from requant_service.operations.calibration.options import CALIBRATION_OPTIONS
from requant_service.operations.parameters.ranges import BYTES_PER_RANGE
from requant_service.operations.parameters.rules import finished_parameters, read_expressed, read_storage

_OPTIONS = tuple(field.name for kind in (RangeOptions, CalibrationOptions) for field in fields(kind))
_NAMES = {"granularity", "axis", "block_sizes", *(field.name for field in fields(CalibrationOptions))}


def _common_type(call: Call, tensors: list[InputTensor]) -> TensorType:
    """Return the type of all tensors, or raise TypeFitError for the first that has another."""
    first = tensors[0]
    for tensor in tensors[1:]:
        if (tensor.datatype, tensor.shape) != (first.datatype, first.shape):
            raise TypeFitError(
                "the tensors must have one type; this one differs from the first", pointer=tensor.pointer
            )
    return TensorType(first.shape, first.datatype.element)


def _request(call: Call) -> CalibrationRequest:
    given = given_options(call, ("method", "scheme", "axis", *_OPTIONS))
    if call.has("granularity"):
        given["granularity"] = call.choice("granularity", GranularityName)
    if (block_sizes := call.integers("block_sizes", lowest=1)) is not None:
        given["block_sizes"] = block_sizes
    return CalibrationRequest.of(given)


def _plan(call: Call) -> Job:
    tensors = call.several("x")
    with pointing_into(call, input="x"):
        expressed = read_expressed(call.text("expressed")) if call.has("expressed") else None
        storage = read_storage(call.text("storage"))
        calibration = plan_calibration(_request(call), _common_type(call, tensors), storage, expressed)
    target = calibration.target

    def run() -> Answer:
        with pointing_into(call):
            arrays, places = tuple(tensor.data for tensor in tensors), tuple(tensor.pointer for tensor in tensors)
            ranges, found = calibration.run(arrays, places)
        shape = parameters_shape(target.granularity)
        outputs = [
            reals_output("scale", shape, found.scales),
            integers_output("zero_point", shape, found.zero_points),
            reals_output("minimum", shape, ranges.minimums),
            reals_output("maximum", shape, ranges.maximums),
        ]
        if found.nudged_minimums is not None and found.nudged_maximums is not None:
            outputs.append(reals_output("nudged_minimum", shape, found.nudged_minimums))
            outputs.append(reals_output("nudged_maximum", shape, found.nudged_maximums))
        said = texts_of(finished_parameters(target.rule, target.expressed, found, target.granularity))
        return Answer(tuple(outputs), {**said, "method": calibration.method.name, "left_out": ranges.left_out})

    elements, size = sum(tensor.data.size for tensor in tensors), sum(tensor.data.nbytes for tensor in tensors)
    byte_count = calibration.byte_count(elements) + BYTES_PER_RANGE * target.granularity.count
    return Job(run, byte_count, calibration.weight(size, call.settings.inline_bytes))


DERIVE_FROM_TENSOR = Model(
    name="derive_from_tensor",
    versions=("1",),
    description="Calibrate: find ranges in data by the method of a system, and derive scales and zero points.",
    inputs=(
        Slot(
            name="x",
            description="The data: a tensor, or several of one shape and datatype in order of observation.",
            datatypes=REALS,
            variadic=True,
        ),
    ),
    outputs=(
        *SCALES_FOUND,
        Slot(name="minimum", description="As found, before the range rule is applied.", datatypes=("FP64",)),
        Slot(name="maximum", description="One per minimum.", datatypes=("FP64",)),
        *NUDGED_RANGES,
    ),
    parameters=(
        STORAGE,
        Parameter(
            name="method",
            description="The calibration method.",
            default=DEFAULT_METHOD,
            choices=tuple(CALIBRATION_METHODS),
        ),
        Parameter(
            name="scheme",
            description="The range rule. Default: that of the method's system.",
            optional=True,
            choices=tuple(RANGE_RULES),
        ),
        Parameter(
            name="expressed", description="The expressed type of the resulting type. Default: that of x.", optional=True
        ),
        *RANGE_OPTIONS,
        *(option_parameter(option) for option in CALIBRATION_OPTIONS if option.name in _NAMES),
        Parameter(
            name="profile",
            description="For mse: the profile that quantizes and dequantizes the candidates. Default: stablehlo.",
            optional=True,
            choices=tuple(PROFILES),
        ),
    ),
    plan=_plan,
)
