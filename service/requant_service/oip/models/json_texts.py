"""Parameters that are JSON as text."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel

from requant.errors import InvalidRequestError, MalformedRequestError, RequantError
from requant_service.http.json_body import read_json
from requant_service.oip.call import Call
from requant_service.oip.parameters import pointer_to

Model = TypeVar("Model", bound=BaseModel)


def read_json_text(call: Call, name: str, model: type[Model], expected: str) -> Model:
    """Return a parameter as a model. Errors point at it, and say where in it. `expected`: what it is, in words."""
    place = pointer_to(name)
    try:
        return read_json(call.text(name).encode("utf-8", "surrogatepass"), model, call.settings)
    except MalformedRequestError:
        raise InvalidRequestError.of_field(place, "json", f"expected {expected} as text") from None
    except RequantError as error:
        error.pointer = place
        if isinstance(error, InvalidRequestError):
            error.faults = tuple(
                replace(each, pointer=place, detail=f"{each.pointer}: {each.detail}" if each.pointer else each.detail)
                for each in error.faults
            )
        raise
