"""The three conversions as models that return the steps of each element as JSON text in the reply's parameters."""

from __future__ import annotations

from dataclasses import replace

from requant_service.oip.models.conversions import DEQUANTIZE, QUANTIZE, REQUANTIZE
from requant_service.oip.models.model import Model
from requant_service.operations.described import MAX_EXPLAINED


def _explained(model: Model, description: str) -> Model:
    told = f"of at most {MAX_EXPLAINED} elements, with the parameters `formula` and `explained`: the steps of each."
    return replace(
        model,
        name=f"explain_{model.name}",
        description=f"{description}, {told}",
        needs_input=lambda parameters: True,
        explained=True,
    )


EXPLAIN_QUANTIZE = _explained(QUANTIZE, "As quantize")
EXPLAIN_DEQUANTIZE = _explained(DEQUANTIZE, "As dequantize")
EXPLAIN_REQUANTIZE = _explained(REQUANTIZE, "As requantize")
