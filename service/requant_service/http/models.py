"""Bases of the pydantic models of requests and replies, and the model of an error.

Requests refuse unknown fields, so that a misspelt option is never ignored. Optional fields are absent, never null: the
models give them a default, and `model_fields_set` says whether they were sent. Replies may gain fields, and their
schemas say so.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from requant.mlir.parser import MAXIMUM_RANK
from requant_service.runtime.settings import MAX_ENTRIES

# Marks a field whose schema is the enum component of that name; `requant_service.openapi` puts the reference there.
COMPONENT = "x-component"

# Optional fields are absent, never null: the default is not validated, and a given null is refused.
ABSENT: Any = None

_MAX_UNKNOWN = 16

Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]


def _number_or_text(value: Any) -> Any:
    if type(value) not in (int, float, str):
        raise PydanticCustomError("number_or_text", "input should be a number, or the text of one")
    return value


def copied_lists(members: list[Any], depth: int = MAXIMUM_RANK) -> list[Any]:
    """Return a copy of lists that are nested as a tensor is: pydantic keeps an `Any` by reference, and the document is
    freed after reading. Lists that are nested deeper than a shape can be are refused.
    """
    if depth == 0:
        raise PydanticCustomError("nesting", "input should be lists that are nested as the shape")
    return [copied_lists(each, depth - 1) if type(each) is list else each for each in members]


NumberOrText = Annotated[Any, BeforeValidator(_number_or_text)]
"""A factor or scale as a JSON number, or as decimal or C99 hexadecimal text.

`JsonDocument.number_text` gives both as text: a number means what the text of the same characters means.
"""

Numbers = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], FailFast(), Field(max_length=MAX_ENTRIES)]


def default_in_words(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional member of a request with its default in the description.

    Generators disagree about `default`: for openapi-typescript the member is then required, others send it in every
    request, and the one for Java writes the default of a member without a type as code. An empty text, an empty list
    and zero only stand for an absent member, and are not stated.
    """
    default = field.get("default")
    rest = {name: value for name, value in field.items() if name != "default"}
    description = rest.get("description", "")
    if not default or "Default: " in description:
        return rest
    shown = default if isinstance(default, str) else json.dumps(default)
    return {**rest, "description": f"{description} Default: {shown}.".lstrip()}


def _state_defaults(schema: dict[str, Any]) -> None:
    """State the defaults of all members in words."""
    for name, field in schema.get("properties", {}).items():
        schema["properties"][name] = default_in_words(field)


def _open_reply(schema: dict[str, Any]) -> None:
    """Drop all defaults, since a field that a reply lacks has no value, and allow additional properties.

    Generated clients may refuse unknown fields otherwise.
    """
    for field in schema.get("properties", {}).values():
        field.pop("default", None)
    schema["additionalProperties"] = True


def component(component: str, description: str) -> Any:
    """Describe a text field by an enum component. `core` checks the name, so that its own message lists the others."""
    return Field(description=description, json_schema_extra={COMPONENT: component})


class RequestModel(BaseModel):
    """Base of the models of requests."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=_state_defaults)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        """Refuse many unknown fields with one error: pydantic would make one for each of them."""
        # The number of known fields is asked for last: that takes longest.
        if isinstance(value, dict) and len(value) > _MAX_UNKNOWN and len(value) > len(cls.model_fields) + _MAX_UNKNOWN:
            count, known = len(value), ", ".join(cls.model_fields)
            raise PydanticCustomError(
                "extra_forbidden", "there are {count} fields; known are {known}", {"count": count, "known": known}
            )
        return value

    def given(self, *names: str) -> dict[str, Any]:
        """Return the fields that were sent, in the order of the model: all of them, or those of `names`."""
        return {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set and (not names or name in names)
        }


class ReplyModel(BaseModel):
    """Base of the models of replies."""

    model_config = ConfigDict(frozen=True, json_schema_extra=_open_reply)


class FieldProblem(ReplyModel):
    """One invalid field."""

    pointer: str = Field(description="JSON pointer (RFC 6901) into the body, or `/name` for a query parameter.")
    code: str = Field(description="That of the problem, or which check refused the field, such as `missing`.")
    detail: str
    offset: Int32 = Field(default=0, description="Index of the first invalid character, for type texts.")


class Problem(ReplyModel):
    """An error (RFC 9457). `code` is stable; GET `type` for an explanation."""

    type: str
    title: str
    status: Int32
    detail: str
    code: str = Field(
        description="Stable; GET /problems lists all. A minor version may add some: go by the status then."
    )
    errors: list[FieldProblem] = Field(
        default=[],
        description="What is wrong, and where: all fields, or else all types, names and numbers; at most 17.",
    )
    error: str = Field(
        default="", description="Under /v2: the detail, in the member that clients of that protocol read."
    )
    offset: Int32 = Field(
        default=0,
        description="Index of the first invalid character in a type text or a module.",
    )
    line: Int32 = Field(default=0, description="Line of a module, from 1.")
    column: Int32 = Field(default=0, description="Column of a module, from 1.")
    caret: str = Field(default="", description="The text around the offset, and a caret under the character.")
    hint: str = Field(default="", description="The likely intended value.")
    index: Int64 = Field(default=0, description="Flat row-major index of the element in error.")
    limit: Int64 = Field(default=0, description="The limit that was exceeded.")
    request_id: str


class ProblemExplanation(ReplyModel):
    """Explanation of a problem code."""

    code: str
    status: Int32
    title: str
    explanation: str


class ProblemList(ReplyModel):
    """All problem codes."""

    problems: list[ProblemExplanation]
