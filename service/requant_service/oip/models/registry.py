"""All models by name."""

from __future__ import annotations

from collections.abc import Mapping

from requant.errors import UnknownNameError, excerpt
from requant.errors.names import entry_named
from requant_service.oip.models.conversions import DEQUANTIZE, QUANTIZE, REQUANTIZE
from requant_service.oip.models.described import OPERATION_MODELS
from requant_service.oip.models.explanations import EXPLAIN_DEQUANTIZE, EXPLAIN_QUANTIZE, EXPLAIN_REQUANTIZE
from requant_service.oip.models.model import Model
from requant_service.oip.models.modules import EVALUATE
from requant_service.oip.models.operators import OPERATOR_MODELS
from requant_service.oip.models.vectors import VECTORS_MODEL

_OPERATIONS = (
    QUANTIZE,
    DEQUANTIZE,
    REQUANTIZE,
    EXPLAIN_QUANTIZE,
    EXPLAIN_DEQUANTIZE,
    EXPLAIN_REQUANTIZE,
    VECTORS_MODEL,
    *OPERATION_MODELS.values(),
    EVALUATE,
)
MODELS: Mapping[str, Model] = {**{model.name: model for model in _OPERATIONS}, **OPERATOR_MODELS}


def model_named(name: str, version: str | None) -> tuple[Model, str]:
    """Return a model and which of its versions is meant: the one named, or the last. Raise UnknownNameError."""
    model = entry_named(MODELS, name, "model")
    if version is not None and version not in model.versions:
        raise UnknownNameError(f"{name} has no version {excerpt(version)!r}; available: {', '.join(model.versions)}")
    return model, model.versions[-1] if version is None else version
