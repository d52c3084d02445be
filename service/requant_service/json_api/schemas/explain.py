"""Replies of the explained conversions: the reply of the conversion, and the steps of each element."""

from __future__ import annotations

from typing import Any

from pydantic import create_model

from requant.operations.explain import EXPLANATION
from requant_service.http.models import ReplyModel
from requant_service.json_api.schemas.conversions import ConversionReply, QuantizeReply, RequantizeReply
from requant_service.json_api.schemas.described import part_fields


def _explained(name: str, reply: type[ReplyModel], description: str) -> Any:
    fields: dict[str, Any] = {}
    for member in EXPLANATION:
        fields |= part_fields(member)
    return create_model(name, __base__=reply, __doc__=description, **fields)


ExplainedQuantization = _explained(
    "ExplainedQuantization", QuantizeReply, "The quantized tensor, a report, and the steps of each element."
)
ExplainedDequantization = _explained(
    "ExplainedDequantization", ConversionReply, "The dequantized tensor, a report, and the steps of each element."
)
ExplainedRequantization = _explained(
    "ExplainedRequantization",
    RequantizeReply,
    "The requantized tensor, a report, the multipliers, and the steps of each element.",
)
