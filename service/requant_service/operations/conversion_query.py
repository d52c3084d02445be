"""Conversion calls as texts by name: the query of a request whose body is a tensor, or the fields of a form."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request

from requant.description import LARGEST_INTEGER, Kind, Option
from requant.errors import FieldFault, InvalidRequestError, LimitError, ParameterError
from requant.mlir.types import ElementType, Type
from requant.operations.conversions import CONVERSION_OPTIONS
from requant.operations.options import MAX_MULTIPLIER, MAX_SHIFT
from requant.plan.plan import Packing
from requant.profiles import DEFAULT_PROFILES, Operation
from requant.schemes import Multiplier
from requant.schemes.scheme import parse_factor
from requant_service.http.openapi_operation import SCHEMAS, query_parameter
from requant_service.http.query import read_query
from requant_service.operations.calibration.options import CALIBRATION_OPTIONS, given_calibration
from requant_service.operations.conversion_call import ConversionCall, Value, given_options
from requant_service.operations.types import read_query_type
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import MAX_ENTRIES

_PAIR = re.compile(r"(-?[0-9]{1,17}):(-?[0-9]{1,5})", re.ASCII)

_TYPES = ("input_type", "output_type")
_PACKING = (
    "How elements of widths other than 8, 16 or 32 bits, such as i4 or i12, are stored. Dense elements are a .npy "
    "of bytes, and the type must then be a whole tensor type."
)
_MULTIPLIERS = "Replace the derived multipliers: one, or one per channel, as comma-separated multiplier:shift pairs."


def options_of(operation: Operation) -> tuple[Option, ...]:
    """Return the options of an operation, and those that say how scales are found that a quantization leaves open."""
    return CONVERSION_OPTIONS[operation] + (CALIBRATION_OPTIONS if operation is Operation.QUANTIZE else ())


def text_fields(operation: Operation) -> list[str]:
    """Return the names of all fields of an operation."""
    options = [option.name for option in options_of(operation)]
    if operation is Operation.REQUANTIZE:
        options.insert(options.index("axis"), "multipliers")
    return [*_TYPES, "profile", "packing", *options]


def described_fields(operation: Operation, input_type: str, output_type: str) -> list[dict[str, Any]]:
    """Return the fields as the OpenAPI document has them. `input_type` and `output_type` describe the types."""
    profile = DEFAULT_PROFILES[operation]
    schemas = {option.name: (option.description, schema_of(option)) for option in options_of(operation)} | {
        "input_type": (input_type, None),
        "output_type": (output_type, None),
        "profile": (f"Default: {profile}.", {"$ref": f"{SCHEMAS}ProfileName", "default": profile}),
        "packing": (_PACKING, {"$ref": f"{SCHEMAS}Packing", "default": "unpacked"}),
        "multipliers": (_MULTIPLIERS, None),
    }
    return [
        query_parameter(name, schemas[name][0], required=name == required_type(operation), schema=schemas[name][1])
        for name in ("output_type", "input_type", *text_fields(operation)[len(_TYPES) :])
    ]


def required_type(operation: Operation) -> str:
    """Return the name of the type that has no default."""
    return "input_type" if operation is Operation.DEQUANTIZE else "output_type"


def schema_of(option: Option) -> dict[str, Any]:
    """Return the OpenAPI schema of an option."""
    default = {} if option.default is None else {"default": option.default}
    if option.kind is Kind.BOOLEAN:
        return {"type": "boolean"}
    if option.kind is Kind.NUMBER:
        return {"type": "number", "format": "double"}
    if option.kind is Kind.TEXT:
        return {"type": "string"} if option.choices is None else {"$ref": f"{SCHEMAS}{option.choices.name}", **default}
    bounds = {"minimum": max(option.lowest, 0)}
    if option.highest != LARGEST_INTEGER:
        bounds["maximum"] = option.highest
    return {"type": "integer", "format": "int64" if option.highest == LARGEST_INTEGER else "int32", **bounds, **default}


class ConversionQuery(NamedTuple):
    """A query, read: the conversion of an array whose shape is not known yet, and the length of its types as texts."""

    conversion: ConversionCall
    characters: int

    def call(self, shape: tuple[int, ...], element: ElementType | None) -> ConversionCall:
        """Return the conversion of an array. `element` is what its elements are by themselves."""
        return self.conversion._replace(shape=shape, element=element)


async def read_conversion_query(
    request: Request, operation: Operation, running: Runtime, others: Collection[str] = ()
) -> tuple[ConversionQuery, Mapping[str, str]]:
    """Read the query of a request. Return with it the parameters of the names in `others`.

    Raise InvalidRequestError, LimitError or TypeTextError, pointing at a field.
    """
    query = read_query(request, [*text_fields(operation), *others], (required_type(operation),))
    read = partial(read_query_type, settings=running.settings)
    asked = await conversion_of_texts(query, operation, running, read)
    return asked, {name: query[name] for name in others if name in query}


async def conversion_of_texts(
    texts: Mapping[str, str], operation: Operation, running: Runtime, read: Callable[..., Type]
) -> ConversionQuery:
    """Read the fields of an operation. `read` parses a type text, given with the `pointer` of its field.

    Raise as `read_conversion_query`.
    """
    packing = _choice("packing", texts.get("packing", Packing.UNPACKED), tuple(Packing))
    values = {
        option.name: read_value(option, texts[option.name]) for option in options_of(operation) if option.name in texts
    }
    characters = sum(len(texts.get(name, "")) for name in (*_TYPES, "multipliers"))
    calibration = given_calibration(values) if operation is Operation.QUANTIZE else ()

    def read_types() -> list[Type | None]:
        return [read(texts[name], pointer=f"/{name}") if name in texts else None for name in _TYPES]

    input_type, output_type = await running.executor.run_text(characters, read_types)
    multipliers = _multipliers(texts["multipliers"]) if "multipliers" in texts else None
    conversion = ConversionCall(
        operation,
        texts.get("profile", DEFAULT_PROFILES[operation]),
        input_type,
        output_type,
        options=given_options(operation, values),
        multipliers=multipliers,
        packing=Packing(packing),
        calibration=calibration,
    )
    return ConversionQuery(conversion, characters)


def _wrong(name: str, code: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name}: {detail}", (FieldFault(f"/{name}", code, detail),))


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise _wrong(name, "enum", f"not one of {', '.join(choices)}")
    return value


def read_value(option: Option, text: str) -> Value:
    """Return the value of an option that a text stands for. Raise InvalidRequestError."""
    if option.kind is Kind.BOOLEAN:
        if text not in ("true", "false"):
            raise _wrong(option.name, "bool", "expected true or false")
        return text == "true"
    if option.kind is Kind.NUMBER:
        try:
            return parse_factor(text)
        except ParameterError:
            raise _wrong(option.name, "float_parsing", "expected a finite decimal number") from None
    if option.kind is Kind.INTEGER:
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= option.highest):
            highest = "2^63 - 1" if option.highest == LARGEST_INTEGER else option.highest
            raise _wrong(option.name, "int_parsing", f"expected a decimal integer from 0 to {highest}")
        return int(text)
    if (fault := option.choice_fault(text)) is not None:
        raise _wrong(option.name, "enum", fault)
    return text


def _multipliers(text: str) -> tuple[Multiplier, ...]:
    """Return pairs of multiplier and shift, such as 1073741824:-3,1431655765:-2."""
    if text.count(",") >= MAX_ENTRIES:
        raise LimitError(f"there are more than {MAX_ENTRIES} multipliers", limit=MAX_ENTRIES, pointer="/multipliers")
    pairs = [_PAIR.fullmatch(pair) for pair in text.split(",")]
    found = tuple(Multiplier(int(pair[1]), int(pair[2])) for pair in pairs if pair is not None)
    fit = all(abs(each.multiplier) <= MAX_MULTIPLIER and abs(each.shift) <= MAX_SHIFT for each in found)
    if len(found) != len(pairs) or not fit:
        detail = "expected pairs multiplier:shift with commas between, such as 1073741824:-3,1431655765:-2"
        raise _wrong("multipliers", "multipliers", detail)
    return found
