"""The request and response of /v1/vectors."""

from __future__ import annotations

from typing import Any

from pydantic import Field, create_model

from requant.operations.vectors import VECTORS, VectorsCall
from requant.schemes import Multiplier
from requant_service.http.models import RequestModel
from requant_service.json_api.schemas.described import records_kind, reply_model
from requant_service.operations.options import option_field

[_MULTIPLIERS] = VECTORS.record_inputs
_FIELDS: dict[str, Any] = {each.name: option_field(each) for each in VECTORS.options}
# Beside what they are of: behind the options of conversions, before those of tosa.RESCALE.
_PLACE = list(_FIELDS).index("input_zp")
_PAIRS: Any = (
    records_kind(_MULTIPLIERS),
    Field(default=[], max_length=_MULTIPLIERS.max_length, description=_MULTIPLIERS.description),
)

VectorsRequest: Any = create_model(
    "VectorsRequest",
    __base__=RequestModel,
    __doc__=VECTORS.request,
    **dict([*list(_FIELDS.items())[:_PLACE], (_MULTIPLIERS.name, _PAIRS), *list(_FIELDS.items())[_PLACE:]]),
)
VectorsReply = reply_model(VECTORS)


def vectors_call(request: RequestModel) -> VectorsCall:
    """Return the call that a request describes."""
    given = request.given()
    given.pop("format", None)
    return VectorsCall(**given | {"multipliers": tuple(Multiplier(*each) for each in given.get("multipliers", ()))})
