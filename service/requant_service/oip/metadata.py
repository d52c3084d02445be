"""What the service says of itself and its models, made from their descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from requant import VERSION
from requant_service.oip import schemas
from requant_service.oip.models.model import Model, Slot
from requant_service.oip.models.registry import MODELS
from requant_service.oip.parameters import Parameter, Value
from requant_service.runtime.runtime import HealthStatus

NAME = "requant"
_EXTENSIONS = ("binary_tensor_data", "parameters")
_SHARED_MEMORY = "system_shared_memory"

_PLATFORM = NAME
_ANY_SHAPE = [-1]


def server_metadata(*, shared_memory: bool) -> schemas.ServerMetadata:
    """Return what the service says of itself. `shared_memory`: whether clients may use it."""
    extensions = [*_EXTENSIONS, *[_SHARED_MEMORY] * shared_memory]
    return schemas.ServerMetadata(name=NAME, version=VERSION, extensions=extensions)


def model_metadata(model: Model) -> schemas.ModelMetadata:
    """Return a model's description as the protocol gives it, with members of our own for what it has no place for."""
    return schemas.ModelMetadata(
        name=model.name,
        versions=list(model.versions),
        platform=_PLATFORM,
        inputs=[_tensor(slot) for slot in model.inputs],
        outputs=[_tensor(slot) for slot in model.outputs],
        description=model.description,
        request_parameters=[_parameter(parameter) for parameter in model.parameters],
    )


def repository_index(status: HealthStatus) -> Iterator[schemas.ModelState]:
    """Yield every version of every model, and its state."""
    is_ready = status is HealthStatus.READY
    state, reason = ("READY", "") if is_ready else ("UNAVAILABLE", f"the service is {status}")
    for model in MODELS.values():
        for version in model.versions:
            yield schemas.ModelState(name=model.name, version=version, state=state, reason=reason)


def _tensor(slot: Slot) -> schemas.TensorMetadata:
    members = {
        "datatypes": ", ".join(slot.datatypes),
        "optional": slot.optional,
        **({"variadic": True} if slot.variadic else {}),
        "description": slot.description,
    }
    return schemas.TensorMetadata(name=slot.name, datatype=slot.datatypes[0], shape=_ANY_SHAPE, parameters=members)


def _parameter(parameter: Parameter) -> schemas.ParameterMetadata:
    members: dict[str, Any] = {}
    if parameter.default is not None:
        members["default"] = _text(parameter.default)
    if parameter.choices:
        members["choices"] = list(parameter.choices)
    return schemas.ParameterMetadata(
        name=parameter.name,
        kind=parameter.kind,
        required=parameter.required,
        description=parameter.description,
        **members,
    )


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
