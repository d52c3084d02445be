"""Options in JSON: as fields of the models of requests, and a group of them as a model of its own."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, FailFast, Field, create_model

from requant.description import LARGEST_INTEGER, Group, Kind, Option
from requant_service.http.models import ABSENT, Int32, Int64, NumberOrText, ReplyModel, RequestModel, component
from requant_service.operations.types import read_tensor_type, read_type
from requant_service.runtime.settings import MAX_ENTRIES, Settings

_BITS_32 = range(-(2**31), 2**31)


def _integer(option: Option, *, bounded: bool) -> Any:
    kind: Any = Int32 if option.lowest in _BITS_32 and option.highest in _BITS_32 else Int64
    if not bounded and (option.lowest, option.highest) == (-LARGEST_INTEGER - 1, LARGEST_INTEGER):
        return kind
    return Annotated[kind, Field(ge=option.lowest, le=option.highest)]


def _kind(option: Option, *, bounded: bool) -> Any:
    integer: Any = _integer(option, bounded=bounded)
    size = Field(min_length=option.length, max_length=option.length or option.max_length or MAX_ENTRIES)
    number: Any = Annotated[float, Field(allow_inf_nan=False)]
    match option.kind:
        case Kind.BOOLEAN:
            return bool
        case Kind.INTEGER:
            return integer
        case Kind.NUMBER:
            return number
        case Kind.INTEGERS:
            return Annotated[list[integer], FailFast(), size]
        case Kind.NUMBERS:
            return Annotated[list[number], FailFast(), size]
        case Kind.TEXTS:
            return Annotated[list[str], FailFast(), size]
        case Kind.NUMBER_OR_TEXT:
            return NumberOrText
        case Kind.TEXT | Kind.TYPE | Kind.TENSOR_TYPE:
            return Annotated[str, Field(max_length=option.max_length)]


def option_field(option: Option, *, bounded: bool = False) -> Any:
    """Return the field of an option in the model of a request. `bounded`: also by what 64 bits hold."""
    default: Any = ... if option.required else ABSENT if option.default is None else option.default
    description = option.description or None
    if option.group is not None:
        return (group_model(option.group), Field(default=default, description=description))
    if (choices := option.choices) is None:
        examples: list[Any] | None = list(option.examples) or None
        kind = _kind(option, bounded=bounded)
        return (kind, Field(default=default, description=description, examples=examples))
    if choices.enumeration is not None:
        choice: Any = choices.enumeration
        if option.kind is Kind.TEXTS:
            listed = list[Annotated[choice, Field(strict=False)]]
            return (listed, Field(default=default, max_length=option.max_length, description=description))
        return (choice, Field(default=default, strict=False, description=description))
    said = option.description or f"Default: {option.default}."
    return (Annotated[str, component(choices.name, said)], default)


@cache
def group_model(group: Group) -> type[RequestModel]:
    """Return the model of a group of options in a request."""
    return create_model(group.title, __base__=RequestModel, __doc__=group.description, **_fields(group))


@cache
def group_reply_model(group: Group) -> type[ReplyModel]:
    """Return the model of the same group in a reply."""
    return create_model(group.reply_title, __base__=_GroupReply, __doc__=group.reply_description, **_fields(group))


def _fields(group: Group) -> dict[str, Any]:
    return {each.name: option_field(each, bounded=group.bounded) for each in group.options}


def _open_group(schema: dict[str, Any]) -> None:
    """Drop defaults and the bounds of what is taken, and allow additional properties."""
    for field in schema["properties"].values():
        for node in (field, field.get("items", {})):
            for name in ("default", "maxItems", "minimum", "maximum"):
                node.pop(name, None)
    schema["additionalProperties"] = True


class _GroupReply(ReplyModel):
    model_config = ConfigDict(json_schema_extra=_open_group)


def group_value(group: Group, given: RequestModel, settings: Settings, place: str) -> dict[str, Any]:
    """Return those of the options that were given, read. `place`: where the group is, for errors about its types."""
    sent = [each for each in group.options if each.name in given.model_fields_set]
    return {each.name: read_value(each, getattr(given, each.name), settings, f"{place}/{each.name}") for each in sent}


def read_value(option: Option, value: Any, settings: Settings, place: str) -> Any:
    """Return what the value of an option stands for, which its field has let through."""
    if option.kind is Kind.TYPE:
        return read_type(value, settings.max_type_bytes, place)
    if option.kind is Kind.TENSOR_TYPE:
        return read_tensor_type(value, settings, place)
    if option.group is not None:
        return group_value(option.group, value, settings, place)
    return option.resolve(tuple(value) if isinstance(value, list) else value)
