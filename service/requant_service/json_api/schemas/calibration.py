"""How a quantization finds the scales that its output type leaves open, and what it found.

In the words of the operation `derive_from_tensor`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import create_model

from requant.operations import parameters
from requant_service.http.models import ReplyModel, RequestModel
from requant_service.json_api.schemas.described import part_fields
from requant_service.operations.options import option_field

_OPTIONS = (
    *parameters.RANGE_OPTIONS,
    parameters.METHOD,
    parameters.METHOD_SCHEME,
    parameters.GRANULARITY,
    parameters.AXIS,
    parameters.BLOCK_SIZES,
    *parameters.METHOD_OPTIONS,
    replace(
        parameters.STORAGE,
        description="For a calibrated type: the storage type, such as i8 or u4.",
        examples=(),
        optional=True,
    ),
)

QuantizeCalibration: Any = create_model(
    "QuantizeCalibration",
    __base__=RequestModel,
    __doc__="How to derive the scales that `output_type` leaves open. `!quant.any` states the storage.\n\n"
    "`!quant.calibrated` states a range, so nothing is measured: it needs `storage` and `scheme`, and takes the "
    "options\nof the scheme.",
    **{each.name: option_field(each) for each in _OPTIONS},
)

# Nothing is found in data if the output type stated a range.
_FOUND = {
    "method": "The calibration method; absent if the output type stated a range.",
    "minimums": "The ranges found in the data, one per scale.",
    "maximums": "",
}
_OF_DATA = (*_FOUND, "left_out")
_PARTS = [
    replace(part, description=_FOUND.get(part.name, part.description), optional=True) if part.name in _OF_DATA else part
    for part in parameters.DERIVE_FROM_TENSOR.reply
]

DerivedParameters: Any = create_model(
    "DerivedParameters",
    __base__=ReplyModel,
    __doc__="The scales and zero points derived for the output, its type without the shape, and the method.",
    **{name: field for part in _PARTS for name, field in part_fields(part).items()},
)
