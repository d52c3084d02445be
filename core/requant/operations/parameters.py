"""Scales and zero points from ranges, and from data: ranges found by the calibration method of a system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor, finish_type
from requant.calibration.methods import CALIBRATION_METHODS, CalibrationOptions, Target
from requant.calibration.methods.search import DEFAULT_METHOD, CalibrationRequest, GranularityName, plan_calibration
from requant.calibration.ranges import RANGE_RULES, RangeOptions, RangeParameters, RangeRule, range_rule_named
from requant.description import (
    LARGEST_INTEGER,
    Array,
    Choices,
    Chooses,
    Elements,
    Kind,
    Member,
    NumbersInput,
    NumbersOutput,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Stored,
    TensorInput,
)
from requant.errors import (
    InvalidRequestError,
    PreconditionError,
    RequantError,
    TypeFitError,
    UnsupportedError,
    default_pointer,
    error_side,
    excerpt,
)
from requant.formats.elements import FloatElement
from requant.mlir import parse_storage, parse_type, print_storage, print_type
from requant.mlir.types import ElementType, StorageType
from requant.plan.operands import float_element, static_shape
from requant.profiles import PROFILES

# What printing the range of a channel and its scale costs, in bytes of a tensor.
BYTES_PER_RANGE = 256
MAX_AXIS = 2**31 - 1
MAX_BLOCK_DIMENSIONS = 64

_wrong = InvalidRequestError.of_field


def read_float_type(text: str) -> FloatElement:
    """Return the float type of that text. Raise TypeTextError or UnsupportedError."""
    element = parse_type(text)
    if not isinstance(element, FloatElement):
        raise UnsupportedError(f"{excerpt(text)} is not a float type; usually f32 is meant")
    return element


def axis_option(description: str) -> Option:
    """Return the option that names an axis."""
    return Option(name="axis", kind=Kind.INTEGER, description=description, optional=True, lowest=0, highest=MAX_AXIS)


def sizes_option(name: str, description: str) -> Option:
    """Return an option that has a size for each dimension."""
    return Option(
        name=name,
        kind=Kind.INTEGERS,
        description=description,
        optional=True,
        lowest=1,
        highest=LARGEST_INTEGER,
        max_length=MAX_BLOCK_DIMENSIONS,
    )


def _flag(name: str, description: str) -> Option:
    return Option(name=name, kind=Kind.BOOLEAN, description=description, optional=True, chooses=Chooses.PART)


def _number(name: str, description: str) -> Option:
    return Option(name=name, kind=Kind.NUMBER, description=description, optional=True)


def _count(name: str, description: str) -> Option:
    return Option(name=name, kind=Kind.INTEGER, description=description, optional=True)


RANGE_OPTIONS = (
    _flag("symmetric", "A range of -m to m, with a fixed zero point."),
    _flag("narrow", "Do not use the lowest quantized value."),
    _flag("reduced", "Use the system's reduced range of quantized values."),
    _flag("power_of_two", "Round scales to powers of two."),
    _flag("preserve_sparsity", "FBGEMM's symmetric range."),
    _number("minimum_real_range", "The minimum width of a range; narrower ranges are widened."),
    _number("epsilon", "The smallest scale. Default: the system's."),
)
"""What a caller may ask of a range rule (`RangeOptions`)."""

METHOD_OPTIONS = (
    _number("averaging_constant", "For moving_average: the weight of a new tensor. Default: 0.01."),
    _number("percentile", "For percentile: the percentage of elements that the range keeps. Default: 99.999."),
    _flag("magnitudes", "For percentile: use |x|, so that the range is symmetric."),
    _count("bins", "Number of histogram bins. Default: 2048; for entropy 128."),
    _count("quantized_bins", "For the entropy methods: the number of quantized bins. Default: 128."),
    _count("first_bins", "For entropy_model_optimizer: number of bins of the smallest candidate. Default: 128."),
    _count("candidates", "For mse: the number of candidate ranges. Default: 100."),
    Option(
        name="profile",
        description="For mse. Default: stablehlo.",
        optional=True,
        choices=Choices("ProfileName", tuple(PROFILES)),
    ),
)
"""What a caller may ask of a calibration method (`CalibrationOptions`)."""

STORAGE = Option(
    name="storage",
    description="The storage type, with bounds if narrower: i8, u4, i8<-127:127>.",
    examples=("i8", "u8", "i8<-127:127>"),
    max_length=256,
    read=parse_storage,
)
METHOD = Option(
    name="method",
    description=f"Default: {DEFAULT_METHOD}.",
    default=DEFAULT_METHOD,
    choices=Choices("CalibrationMethodName", tuple(CALIBRATION_METHODS)),
    chooses=Chooses.RULES,
)
METHOD_SCHEME = Option(
    name="scheme",
    description="The range rule. Default: that of the method's system.",
    optional=True,
    choices=Choices("RangeSchemeName", tuple(RANGE_RULES)),
    chooses=Chooses.RULES,
)
AXIS = axis_option("For per_axis: the axis.")
BLOCK_SIZES = sizes_option(
    "block_sizes",
    "For sub_channel: the size of a block along each dimension. The ranges are row-major over the blocks, the last of "
    "which may be short.",
)
GRANULARITY = Option(
    name="granularity",
    description="Default: per_axis with axis, sub_channel with block_sizes, else per_tensor.",
    optional=True,
    choices=Choices.of(GranularityName),
    read=GranularityName,
)

_PARAMETERS = (
    Member(name="scheme", kind=Kind.TEXT),
    Member(
        name="storage",
        kind=Kind.TEXT,
        description="The storage type, with the bounds that the parameters were derived for.",
    ),
    NumbersOutput(
        name="scales",
        description="One, or one per index of the axis, or one per block.",
        model_name="scale",
    ),
    NumbersOutput(name="zero_points", kind=Kind.INTEGER, description="One per scale.", model_name="zero_point"),
    Member(
        name="type",
        kind=Kind.TEXT,
        description="The resulting MLIR type. Absent if no type can hold the scales; `untyped` then gives the reason.",
        optional=True,
    ),
    Member(
        name="untyped",
        kind=Kind.TEXT,
        description="Why there is no type, for example a scale of 0.",
        optional=True,
    ),
)
_NUDGED_RANGES = (
    NumbersOutput(
        name="nudged_minimums",
        description="The nudged range, if the system moves it so that zero is exactly representable.",
        optional=True,
        model_name="nudged_minimum",
    ),
    NumbersOutput(name="nudged_maximums", description="One per minimum.", optional=True, model_name="nudged_maximum"),
)


def finished_type(
    storage: StorageType,
    expressed: FloatElement,
    scales: NDArray[np.float64],
    zero_points: NDArray[np.int64],
    granularity: Granularity,
) -> tuple[ElementType | None, dict[str, str]]:
    """Return the finished type, and its text as `type`; or none, and as `untyped` the scale that no type has."""
    try:
        type_ = finish_type(storage, expressed, scales, zero_points, granularity)
    except PreconditionError as error:
        return None, {"untyped": error.detail}
    return type_, {"type": print_type(type_)}


def finished_members(
    rule: RangeRule, expressed: FloatElement, derived: RangeParameters, granularity: Granularity
) -> dict[str, str]:
    """Return the members of a reply about the parameters of a rule that are texts."""
    _, finished = finished_type(derived.storage, expressed, derived.scales, derived.zero_points, granularity)
    return {"scheme": rule.name, "storage": print_storage(derived.storage), **finished}


def derived_numbers(derived: RangeParameters, granularity: Granularity) -> dict[str, Array]:
    """Return the numbers of a reply about the parameters of a rule, in the shape of the granularity.

    Nudged ranges only where the rule has them.
    """
    shape = granularity.scale_shape
    arrays = {
        "scales": derived.scales,
        "zero_points": derived.zero_points,
        "nudged_minimums": derived.nudged_minimums,
        "nudged_maximums": derived.nudged_maximums,
    }
    return {name: array.reshape(shape) for name, array in arrays.items() if array is not None}


@contextmanager
def at_range(pointer: str) -> Iterator[None]:
    """Put the place in the list at `pointer` on an error about one range."""
    try:
        yield
    except RequantError as error:
        index = getattr(error, "index", None)
        if error.pointer is None and index is not None:
            error.pointer = f"{pointer}/{index}"
        raise


def _plan_range(call: OperationCall) -> PlannedWork:
    minimums, maximums = (call.numbers[name].reshape(-1) for name in ("minimums", "maximums"))
    rule, storage, expressed = (call.options[name] for name in ("scheme", "storage", "expressed"))
    options = RangeOptions(**call.has(*_names(RANGE_OPTIONS)))
    if maximums.size != minimums.size:
        detail = f"there are {minimums.size} minimums and {maximums.size} maximums; expected equal numbers"
        raise _wrong("/maximums", "wrong_length", detail)
    granularity = _granularity_of_ranges(call, minimums.size)
    with default_pointer("/scheme"):
        rule.check_blocks(blocks=isinstance(granularity, PerBlock))
    # Printing a type of many scales is work on texts, as planning is.
    with at_range("/minimums"), default_pointer("/storage", UnsupportedError):
        target = Target(rule, options, storage, expressed, granularity)
        derived = target.parameters(minimums, maximums)
    members = finished_members(rule, expressed, derived, granularity)
    result = Result(report=members, numbers=derived_numbers(derived, granularity))
    cost = BYTES_PER_RANGE * minimums.size
    return PlannedWork(operands={}, run=lambda _: result, byte_count=cost, weight=cost, plan=target)


def _names(options: tuple[Option, ...]) -> list[str]:
    return [each.name for each in options]


def _granularity_of_ranges(call: OperationCall, count: int) -> Granularity:
    """Return what the ranges are of: the tensor, the indices of an axis, or blocks."""
    axis, shape, block_sizes = (call.options[name] for name in ("axis", "shape", "block_sizes"))
    if shape is not None or block_sizes is not None:
        if axis is not None:
            raise _wrong("/axis", "extra_forbidden", "axis is for one range per index; blocks have block_sizes")
        if not shape:
            raise _wrong("/shape", "missing", "blocks need the shape of the tensor, of at least one dimension")
        if len(shape) != len(block_sizes or ()):
            detail = f"there are {len(block_sizes or ())} block_sizes for {len(shape)} dimensions of shape"
            raise _wrong("/block_sizes", "missing" if block_sizes is None else "wrong_length", detail)
        call.limits.check_rank(len(shape), "/shape")
        blocks = PerBlock(shape, block_sizes)
        if blocks.count != count:
            detail = f"there are {count} minimums; the shape has {prod(blocks.scale_shape)} blocks"
            raise TypeFitError(detail, pointer="/minimums")
        return blocks
    if axis is not None:
        return PerAxis(axis, count)
    if count > 1:
        raise _wrong("/axis", "missing", f"there are {count} ranges; give axis, or block_sizes and shape")
    return PerTensor()


DERIVE_FROM_RANGE = Operation(
    name="derive_from_range",
    path="parameters/range",
    request_title="RangeRequest",
    title="Scale and zero point from a range",
    group="params",
    summary="Derive scale and zero point from a range, by the rule of a system.",
    request="Ranges of real values: one, one per index of an axis, or one per block.",
    source="the systems that the schemes are named after (docs/parameters.md)",
    inputs=(
        NumbersInput(
            name="minimums",
            description="One, or one per index of an axis, or one per block.",
            model_name="minimum",
            examples=([-1.0],),
        ),
        NumbersInput(name="maximums", description="One per minimum.", model_name="maximum", examples=([2.0],)),
    ),
    options=(
        STORAGE,
        Option(
            name="scheme",
            description="The rule, named after its system.",
            choices=Choices("RangeSchemeName", tuple(RANGE_RULES)),
            chooses=Chooses.RULES,
            read=range_rule_named,
        ),
        Option(
            name="expressed",
            description="The expressed type of the resulting type.",
            default="f32",
            max_length=256,
            read=read_float_type,
        ),
        *RANGE_OPTIONS,
        axis_option("The axis along which there is a range per index."),
        sizes_option("shape", "The shape of the tensor, for ranges of blocks."),
        sizes_option(
            "block_sizes",
            "The size of a block along each dimension of the shape. The ranges are row-major over the blocks.",
        ),
    ),
    reply=(*_PARAMETERS, *_NUDGED_RANGES),
    reply_title="ParametersReply",
    reply_description="Scales and zero points in the order of the ranges, and the resulting type.",
    plan=_plan_range,
    example={"minimums": [-1.0], "maximums": [2.0], "storage": "i8", "scheme": "litert"},
)


def _plan_tensor(call: OperationCall) -> PlannedWork:
    tensor, options = call.types["input"], call.options
    with error_side("input"):
        shape = static_shape(tensor)
        float_element(tensor, "input")
    request = CalibrationRequest(
        range_options=RangeOptions(**call.has(*_names(RANGE_OPTIONS))),
        options=CalibrationOptions(**call.has(*_names(METHOD_OPTIONS))),
        **call.has("method", "scheme", "granularity", "axis", "block_sizes"),
    )
    search = plan_calibration(request, tensor, options["storage"], options["expressed"])
    target, count = search.target, call.counts["input"]

    def run(arrays: Mapping[str, Array]) -> Result:
        observed = tuple(arrays[f"input_{index}"] for index in range(count))
        ranges, derived = search.run(observed, tuple(f"/input/{index}" for index in range(count)))
        numbers = derived_numbers(derived, target.granularity)
        numbers |= {"minimums": ranges.minimums.reshape(target.granularity.scale_shape)}
        numbers |= {"maximums": ranges.maximums.reshape(target.granularity.scale_shape)}
        members = finished_members(target.rule, target.expressed, derived, target.granularity)
        return Result(report={**members, "method": search.method.name, "left_out": ranges.left_out}, numbers=numbers)

    cost = BYTES_PER_RANGE * target.granularity.count
    return PlannedWork(
        operands={f"input_{index}": Stored(tensor, search.element.tensor_dtype) for index in range(count)},
        run=run,
        byte_count=search.byte_count(count * prod(shape)) + cost,
        weight=cost,
        searches=not search.method.one_pass,
    )


DERIVE_FROM_TENSOR = Operation(
    name="derive_from_tensor",
    path="parameters/tensor",
    request_title="TensorParametersRequest",
    title="Scale and zero point from a tensor",
    group="params",
    summary="Calibrate: find ranges in data by the method of a system, and derive scales and zero points.",
    request="One tensor, or several in order of observation, and the calibration method.\n\n"
    "Not every option applies to every method; absent options take the method's defaults.",
    source="the systems that the methods and schemes are named after (docs/parameters.md)",
    inputs=(
        TensorInput(
            name="input",
            description="One tensor, or several of one type in order of observation.",
            elements=Elements.REALS,
            model_name="x",
            several="inputs",
            several_description="Several tensors of one type, in order of observation.",
        ),
    ),
    options=(
        STORAGE,
        METHOD,
        METHOD_SCHEME,
        Option(
            name="expressed",
            description="The expressed type of the resulting type. Default: the input's.",
            optional=True,
            max_length=256,
            read=read_float_type,
        ),
        *RANGE_OPTIONS,
        GRANULARITY,
        AXIS,
        BLOCK_SIZES,
        *METHOD_OPTIONS,
    ),
    reply=(
        *_PARAMETERS,
        Member(name="method", kind=Kind.TEXT),
        NumbersOutput(name="minimums", description="As found, before the range rule is applied.", model_name="minimum"),
        NumbersOutput(name="maximums", description="One per minimum.", model_name="maximum"),
        Member(name="left_out", description="NaN or infinite elements that the method excluded."),
        *_NUDGED_RANGES,
    ),
    reply_title="TensorParametersReply",
    reply_description="Scales and zero points, the resulting type, and the ranges found, one per scale.",
    plan=_plan_tensor,
    example={
        "input": {"type": "tensor<6xf32>", "values": [-1.5, -0.25, 0.0, 0.5, 0.75, 2.0]},
        "storage": "i8",
        "granularity": "per_tensor",
        "method": "mse",
        "scheme": "torch_observer",
    },
)
