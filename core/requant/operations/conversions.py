"""Quantize, dequantize and requantize: what goes in and out, and the options of each.

The service converts a tensor while it arrives, and `requant.arrays.conversions` is a shorter way for arrays; both read
the options from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import numpy as np

from requant import profiles
from requant.comparison.comparison import ErrorReport, conversion_error
from requant.convert.dequantize import plan_dequantize
from requant.convert.explain.dequantize import dequantize_explainer
from requant.convert.explain.quantize import quantize_explainer
from requant.convert.explain.requantize import requantize_explainer
from requant.convert.quantize import CHOSEN_ROUNDINGS, NanPolicy, plan_quantize, rounding_named
from requant.convert.requantize import plan_requantize
from requant.convert.scaling import ScalingPlan
from requant.description import (
    Array,
    Choices,
    Chooses,
    Kind,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Records,
    Result,
    Stored,
    TensorInput,
    TensorOutput,
    TensorValue,
)
from requant.errors import ParameterError, PreconditionError, default_pointer
from requant.mlir import print_type
from requant.mlir.lexer import MAXIMUM_LIST_LENGTH
from requant.operations.derived_scales import (
    CALIBRATION,
    PARAMETERS,
    check_no_calibration,
    leaves_scales_open,
    plan_with_derived_scales,
)
from requant.operations.options import (
    PACKING,
    REPORT,
    USED_MULTIPLIER,
    given_multipliers,
    multipliers_input,
)
from requant.plan.plan import Conversion, Plan, Report
from requant.profiles import DEFAULT_PROFILES, PROFILES
from requant.profiles.cast import DRAWN_BITS
from requant.schemes import SCHEMES, scheme_named

Made = TypeVar("Made")

ROUNDING = Option(
    name="rounding",
    description="Replaces the profile's rounding.",
    optional=True,
    choices=Choices("RoundingName", CHOSEN_ROUNDINGS),
    chooses=Chooses.PART,
    read=rounding_named,
)
NAN = Option(
    name="nan",
    description="The result of NaN.",
    default=NanPolicy.PROFILE,
    choices=Choices.of(NanPolicy),
    chooses=Chooses.PART,
    read=NanPolicy,
)
SEED = Option(name="seed", kind=Kind.INTEGER, description="Seed of stochastic rounding.", default=0, lowest=0)
RANDOM_BITS = Option(
    name="random_bits",
    kind=Kind.INTEGER,
    description="How many random bits stochastic rounding to a float takes. Default: 32.",
    optional=True,
    lowest=1,
    highest=DRAWN_BITS,
)
SATURATE = Option(
    name="saturate",
    kind=Kind.BOOLEAN,
    description="Whether values beyond the largest value of a float saturate to it. Only for profiles whose `casts` "
    "offer the choice, which say what their default is.",
    optional=True,
    chooses=Chooses.PART,
)
SCHEME = Option(
    name="scheme",
    description="Replaces the profile's scheme; accepts all integer types.",
    optional=True,
    choices=Choices("SchemeName", tuple(SCHEMES)),
    chooses=Chooses.RULES,
    read=lambda name: scheme_named(name).name,
)
AXIS = Option(
    name="axis",
    kind=Kind.INTEGER,
    description="The dimension of several multipliers, if no type states it.",
    optional=True,
    lowest=0,
    highest=255,
)

ERROR = Option(
    name="error",
    kind=Kind.BOOLEAN,
    description="Whether to report the error against the input.",
    default=False,
)

CONVERSION_OPTIONS: Mapping[profiles.Operation, tuple[Option, ...]] = {
    profiles.Operation.QUANTIZE: (ROUNDING, NAN, SEED, RANDOM_BITS, SATURATE),
    profiles.Operation.DEQUANTIZE: (),
    profiles.Operation.REQUANTIZE: (SCHEME, AXIS),
}
"""Those that replace a rule of the profile, which are keywords of the function that plans the conversion."""

_PLANNERS: Mapping[profiles.Operation, Callable[..., Plan]] = {
    profiles.Operation.QUANTIZE: plan_quantize,
    profiles.Operation.DEQUANTIZE: plan_dequantize,
    profiles.Operation.REQUANTIZE: plan_requantize,
}


def defining_profiles(conversion: profiles.Operation) -> tuple[str, ...]:
    """Return the profiles that define a conversion, or the casts that it is for floats."""
    casts = conversion is not profiles.Operation.REQUANTIZE
    return tuple(
        name
        for name, profile in PROFILES.items()
        if conversion in profile.operations or (casts and profile.casts is not None)
    )


def _profile(conversion: profiles.Operation) -> Option:
    return Option(
        name="profile",
        description="",
        default=DEFAULT_PROFILES[conversion],
        choices=Choices("ProfileName", defining_profiles(conversion), "The arithmetic contract."),
        chooses=Chooses.RULES,
    )


def build_from_call(conversion: profiles.Operation, call: OperationCall, make: Callable[..., Made]) -> Made:
    """Return what a function that takes the arguments of a plan's makes of a call."""
    arguments = call.has(*(each.name for each in CONVERSION_OPTIONS[conversion]))
    about: AbstractContextManager[None] = nullcontext()
    if (multipliers := given_multipliers(call)) is not None:
        arguments["multipliers"] = multipliers
        about = default_pointer("/multipliers", ParameterError, PreconditionError)
    with about:
        return make(call.types["input"], call.options["output_type"], call.options["profile"], **arguments)


class ConversionReply:
    """What the reply of a conversion has beside its numbers: all that depends on the plan alone is made once."""

    def __init__(self, conversion: profiles.Operation, call: OperationCall, plan: Plan) -> None:
        self.conversion = Conversion(plan)
        self.measured = call.options.get(ERROR.name) is True
        self._plan = plan
        self._text = print_type(plan.output_type)
        self._scheme = {"scheme": plan.scheme.name} if isinstance(plan, ScalingPlan) else {}
        self._requantizes = conversion is profiles.Operation.REQUANTIZE

    def result(self, source: Array, output: Array, report: Report) -> Result:
        """Return the result of a conversion from `source` to `output`."""
        plan, members = self._plan, {**report._asdict(), **self._scheme}
        if self.measured:
            members[ERROR.name] = error_measures(conversion_error(plan, source, output))
        records = None
        if self._requantizes:
            records = [{"multiplier": each.multiplier, "shift": each.shift} for each in plan.multipliers]
        outputs = {"output": TensorValue(plan.output_type, output, self._text)}
        return Result(outputs, members, records=records, conversion=self.conversion)


def error_measures(error: ErrorReport) -> dict[str, Any]:
    """Return the measures that are finite numbers, by name."""
    return {name: value for name, value in asdict(error).items() if value is not None}


def _planned(conversion: profiles.Operation, call: OperationCall) -> PlannedWork:
    if conversion is profiles.Operation.QUANTIZE:
        if leaves_scales_open(call.options["output_type"]):
            return plan_with_derived_scales(call, partial(_planned, conversion))
        check_no_calibration(call.options[CALIBRATION.name])
    plan = build_from_call(conversion, call, _PLANNERS[conversion])
    reply = ConversionReply(conversion, call, plan)

    def run(arrays: Mapping[str, Array]) -> Result:
        output = np.empty(plan.elements, plan.output_dtype)
        return reply.result(arrays["input"], output, plan.report(reply.conversion.run(arrays["input"], output)))

    return PlannedWork(
        operands={"input": Stored(plan.input_type, plan.input_dtype)},
        run=run,
        byte_count=plan.elements * plan.output_dtype.itemsize,
        conversion=reply.conversion,
        in_pieces=not reply.measured,
    )


_OUTPUT = TensorOutput(name="output", model_name="y")
_BARE = "MLIR text. A bare element type takes its shape from the input."

QUANTIZE = Operation(
    name="quantize",
    title="Quantize",
    group="ops",
    summary="Quantize a tensor to a given type, or cast it to a narrower float.",
    request="A tensor to quantize, or to cast to a narrower float.",
    source="the systems that the profiles are named after",
    inputs=(TensorInput(name="input", description="The real tensor.", packable=False, model_name="x"),),
    options=(
        Option(
            name="output_type",
            kind=Kind.TYPE,
            description=f"{_BARE} A float of at most 16 bits is a cast. `!quant.any` and `!quant.calibrated` leave the "
            "scales to be derived.",
            examples=("!quant.uniform<i8:f32, 0.5:3>", "f8E4M3FNUZ", "!quant.any<i8:f32>"),
        ),
        _profile(profiles.Operation.QUANTIZE),
        *CONVERSION_OPTIONS[profiles.Operation.QUANTIZE],
        PACKING,
        CALIBRATION,
        ERROR,
    ),
    reply=(_OUTPUT, REPORT, PARAMETERS),
    reply_title="QuantizeReply",
    reply_description="The quantized tensor, a report, and the parameters that were derived.",
    converts=profiles.Operation.QUANTIZE,
    plan=lambda call: _planned(profiles.Operation.QUANTIZE, call),
    explainer=lambda call: build_from_call(profiles.Operation.QUANTIZE, call, quantize_explainer),
    example={
        "input": {"type": "tensor<2x2xf32>", "values": [0.25, 0.75, -1.5, "Infinity"]},
        "output_type": "!quant.uniform<i8:f32, 0.5:3>",
    },
)

DEQUANTIZE = Operation(
    name="dequantize",
    title="Dequantize",
    group="ops",
    summary="Dequantize a tensor, or widen a tensor of small floats.",
    request="A quantized tensor, or floats of at most 16 bits, to dequantize.",
    source="the systems that the profiles are named after",
    inputs=(TensorInput(name="input", description="Stored numbers, or floats of at most 16 bits.", model_name="x"),),
    options=(
        Option(
            name="output_type",
            kind=Kind.TYPE,
            description=f"{_BARE} Default: the expressed type of the input, or f32.",
            optional=True,
            examples=("f32",),
        ),
        _profile(profiles.Operation.DEQUANTIZE),
        PACKING,
    ),
    reply=(_OUTPUT, REPORT),
    converts=profiles.Operation.DEQUANTIZE,
    reply_title="ConversionReply",
    reply_description="The converted tensor and a report.",
    plan=lambda call: _planned(profiles.Operation.DEQUANTIZE, call),
    explainer=lambda call: build_from_call(profiles.Operation.DEQUANTIZE, call, dequantize_explainer),
    example={"input": {"type": "tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>", "values": [3, 4, 0, 127]}},
)

REQUANTIZE = Operation(
    name="requantize",
    title="Requantize",
    group="ops",
    summary="Requantize quantized values or accumulators to another scale in integer arithmetic.",
    request="Quantized values or accumulators to requantize.",
    source="the systems that the profiles and schemes are named after",
    inputs=(
        TensorInput(name="input", description="Quantized values or accumulators.", model_name="x"),
        multipliers_input(
            "Replace the derived multipliers: one, or one per channel. Required for plain integers such as "
            "tensor<4xi64>, which have no scale.",
            "In the scheme's convention: one, or one per channel.",
            MAXIMUM_LIST_LENGTH,
        ),
    ),
    options=(
        Option(
            name="output_type",
            kind=Kind.TYPE,
            description=_BARE,
            examples=("!quant.uniform<i8:f32, 0.25:-1>",),
        ),
        _profile(profiles.Operation.REQUANTIZE),
        *CONVERSION_OPTIONS[profiles.Operation.REQUANTIZE],
        PACKING,
    ),
    reply=(_OUTPUT, REPORT, Records(name="multipliers", record=USED_MULTIPLIER)),
    reply_title="RequantizeReply",
    reply_description="The converted tensor, a report, and the multipliers.\n\n"
    "There is one multiplier, or one per channel; none where the profile dequantizes and quantizes again.",
    converts=profiles.Operation.REQUANTIZE,
    plan=lambda call: _planned(profiles.Operation.REQUANTIZE, call),
    explainer=lambda call: build_from_call(profiles.Operation.REQUANTIZE, call, requantize_explainer),
    example={
        "input": {"type": "tensor<4x!quant.uniform<i32:f32, 0.001>>", "data": "6AMAANAHAAC4CwAAoA8AAA=="},
        "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
    },
)

CONVERSIONS: Mapping[profiles.Operation, Operation] = {
    profiles.Operation.QUANTIZE: QUANTIZE,
    profiles.Operation.DEQUANTIZE: DEQUANTIZE,
    profiles.Operation.REQUANTIZE: REQUANTIZE,
}
