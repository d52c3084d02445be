"""What the three conversions read and answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, FailFast, Field, create_model

from requant.operations.conversions import CONVERSIONS, MAX_MULTIPLIER, MAX_SHIFT
from requant.operations.options import REPORT, USED_MULTIPLIER
from requant.profiles import Operation
from requant.schemes import Multiplier
from requant_service.http.models import ABSENT, Int32, Int64, RequestModel
from requant_service.json_api.schemas.calibration import DerivedParameters, QuantizeCalibration
from requant_service.json_api.schemas.described import reply_model, report_model, request_fields
from requant_service.operations.options import option_field
from requant_service.runtime.settings import MAX_ENTRIES

Report: Any = report_model(REPORT)
UsedMultiplier: Any = report_model(USED_MULTIPLIER)


MultiplierPair: Any = create_model(
    "MultiplierPair",
    __base__=RequestModel,
    __doc__=USED_MULTIPLIER.description,
    multiplier=(Int64, Field(ge=-MAX_MULTIPLIER, le=MAX_MULTIPLIER)),
    shift=(Int32, Field(ge=-MAX_SHIFT, le=MAX_SHIFT)),
)


def as_multiplier(pair: Any) -> Multiplier:
    """Return what the arithmetic takes. There may be very many, and a model is slow to free."""
    return Multiplier(pair.multiplier, pair.shift)


def _request(conversion: Operation, **more: Any) -> Any:
    """Return the model of a request for a conversion. `more`: what only JSON has, or has in other words."""
    described = CONVERSIONS[conversion]
    fields = request_fields(described) | more
    return create_model(f"{described.title}Request", __base__=RequestModel, __doc__=described.request, **fields)


_OUTPUT_TYPE = CONVERSIONS[Operation.QUANTIZE].option("output_type")

QuantizeRequest = _request(
    Operation.QUANTIZE,
    output_type=option_field(
        replace(
            _OUTPUT_TYPE,
            description=f"{_OUTPUT_TYPE.description} `!quant.any` and `!quant.calibrated` leave the scales to be "
            "derived.",
            examples=(*_OUTPUT_TYPE.examples, "!quant.any<i8:f32>"),
        )
    ),
    calibration=(
        QuantizeCalibration,
        Field(
            default=ABSENT,
            description="How to derive the scales that output_type leaves open. Default: method min_max.",
        ),
    ),
    error=(bool, Field(default=False, description="Whether to report the error against the input.")),
)
DequantizeRequest = _request(Operation.DEQUANTIZE)
RequantizeRequest = _request(
    Operation.REQUANTIZE,
    multipliers=(
        Annotated[list[Annotated[MultiplierPair, AfterValidator(as_multiplier)]], FailFast()],
        Field(
            default=[],
            max_length=MAX_ENTRIES,
            description="Replace the derived multipliers: one, or one per channel. Required for plain integers such as "
            "tensor<4xi64>, which have no scale.",
        ),
    ),
)

ConversionReply: Any = reply_model(CONVERSIONS[Operation.DEQUANTIZE])


class QuantizeReply(ConversionReply):  # type: ignore[misc]
    """The quantized tensor, a report, and the parameters that were derived."""

    parameters: DerivedParameters = Field(
        default=ABSENT, description="Present if output_type left the scales to be derived."
    )


class RequantizeReply(ConversionReply):  # type: ignore[misc]
    """The converted tensor, a report, and the multipliers.

    There is one multiplier, or one per channel; none where the profile dequantizes and quantizes again.
    """

    multipliers: list[UsedMultiplier]
