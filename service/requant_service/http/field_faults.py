"""What pydantic finds wrong with the fields of a request, as an error of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from requant.errors import FieldFault, InvalidRequestError, LimitError, RequantError, excerpt
from requant.errors.names import did_you_mean
from requant_service.http.problems import pointer

_MAX_FAULTS = 16
# Faults that the message itself names.
_MAX_NAMED = 3
# Faults come from schemas and say nothing of the input; a list of names may be long.
_LONGEST_DETAIL = 400

# What pydantic says of Python's types, in the terms of JSON.
# What other systems have beside the tensor, and the types here in themselves.
_IN_THE_TYPE = ("scale", "scales", "zero_point", "zero_points")
_QUOTED = re.compile("'([^']*)'")
_IN_JSON = {"model_type": "input should be an object", "list_type": "input should be an array"}


def invalid_request(error: ValidationError, model: type[BaseModel], max_values: int) -> RequantError:
    """Return what pydantic found wrong with the fields of `model` as our own error, without the input.

    `max_values` is the limit that a list of values has passed before it was found too long here.
    """
    found = error.errors(include_url=False)
    if found[0]["type"] == "too_long":
        place = found[0]["loc"]
        if "values" in place:
            place, limit = place[: place.index("values") + 1], max_values
        else:
            limit = found[0]["ctx"]["max_length"]
        return LimitError(f"a list has more than {limit} entries", limit=limit, pointer=pointer(*place))
    listed: set[str] = set()
    faults = [_fault(item, model, listed) for item in found[:_MAX_FAULTS]]
    named = "; ".join(f"{fault.pointer or 'the body'}: {fault.detail}" for fault in faults[:_MAX_NAMED])
    more = f" (and {len(found) - _MAX_NAMED} more)" if len(found) > _MAX_NAMED else ""
    return InvalidRequestError(named + more, tuple(faults))


def _fault(item: Any, model: type[BaseModel], listed: set[str]) -> FieldFault:
    """Return one fault. `listed`: the objects whose fields a fault has listed already, which gets this one's."""
    location, kind, given = item["loc"], item["type"], item["input"]
    place = pointer(*location)
    if kind == "extra_forbidden" and location:
        parent = pointer(*location[:-1])
        known = fields_at(model, location[:-1])
        meant = did_you_mean(str(location[-1]), known)
        there_are = "" if parent in listed else f"; available: {', '.join(known)}"
        listed.add(parent)
        if there_are and location[-1] in _IN_THE_TYPE and "output_type" in known:
            there_are = "; scale and zero point are part of a type: !quant.uniform<i8:f32, 0.5:3>"
        detail = f"unknown field, {meant}" if meant else f"unknown field{there_are}"
        if excerpt(place) != place:
            # Too long to be shown, or unprintable.
            place = parent
    else:
        detail = _IN_JSON.get(kind) or item["msg"][:1].lower() + item["msg"][1:]
        if kind == "enum" and isinstance(given, str):
            meant = did_you_mean(given, _QUOTED.findall(item["ctx"]["expected"]))
            detail += f"; {meant}" if meant else ""
        if kind == "model_type" and (known := fields_at(model, location)):
            detail += f" with {', '.join(known)}"
    detail = detail if len(detail) <= _LONGEST_DETAIL else detail[: _LONGEST_DETAIL - 3] + "..."
    return FieldFault(excerpt(place), kind, detail)


def fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Return the names of the fields of the object at a place in a model; none where no object is described."""
    found: Any = model
    for key in location:
        if isinstance(key, int):
            found = next((each for each in map(_model_in, get_args(found)) if each is not None), None)
        else:
            field = getattr(found, "model_fields", {}).get(key)
            found = None if field is None else field.annotation
            found = _model_in(found) or found
    found = _model_in(found)
    return [] if found is None else list(found.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that an annotation is, perhaps with something said about it, but not of a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = get_args(annotation)
    return _model_in(inner[0]) if inner and hasattr(annotation, "__metadata__") else None
