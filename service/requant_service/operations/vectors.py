"""Vectors of an operation: the call of all protocols, and the forms that they are answered in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from enum import StrEnum
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.explain.working import float_text
from requant.convert.quantize import NanPolicy
from requant.convert.vectors.conversions import conversion_subjects
from requant.convert.vectors.export import Column, Kind, Table, c_header, readmemh, real_bits
from requant.convert.vectors.subject import Subject
from requant.convert.vectors.vectors import DEFAULT_COUNT, Vector, Vectors, vectors_of
from requant.errors import (
    InvalidRequestError,
    ParameterError,
    PreconditionError,
    UnsupportedError,
    default_pointer,
    pointers_for_sides,
)
from requant.formats.elements import FLOATS
from requant.operations.conversions import CONVERSION_OPTIONS
from requant.operations.explain import element_members
from requant.operators.tosa.rescale_plan import RescaleRounding
from requant.operators.vectors import RESCALE, operation_named, rescale_subjects
from requant.plan.compute_dtype import COMPUTE_DTYPES
from requant.profiles import Operation, profile_named
from requant.schemes import Multiplier
from requant_service.operations.types import read_type
from requant_service.runtime.settings import Settings

MAX_GIVEN = 256
"""The most multipliers of a call."""
CHARACTERS_PER_VECTOR = 1024
"""The cost of a vector, in characters of text that cost the same."""
BYTES_PER_VECTOR = 24 << 10
"""About how much memory a vector, its steps and their text take."""
_VECTORS_OF_A_DESIGNED_SET = 16
_MAX_DESIGNED = 12


class Format(StrEnum):
    """The format of the response."""

    JSON = "json"
    NPZ = "npz"
    C_HEADER = "c_header"
    READMEMH = "readmemh"


MEDIA_TYPES: Mapping[Format, str] = {
    Format.JSON: "application/json",
    Format.NPZ: "application/octet-stream",
    Format.C_HEADER: "text/x-c; charset=utf-8",
    Format.READMEMH: "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsCall:
    """What vectors are asked for. Options that are None or empty were not given."""

    operation: str
    input_type: str
    output_type: str = ""
    profile: str = ""
    scheme: str = ""
    rounding: str = ""
    nan: NanPolicy | None = None
    saturate: bool | None = None
    multipliers: tuple[Multiplier, ...] = ()
    input_zp: int | None = None
    output_zp: int | None = None
    scale32: bool | None = None
    rounding_mode: RescaleRounding | None = None
    seed: int = 0
    count: int = DEFAULT_COUNT

    def given(self) -> dict[str, Any]:
        """Return the members that were given, as a request has them."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "multipliers":
                value = [{"multiplier": pair.multiplier, "shift": pair.shift} for pair in value]
            if value not in (None, "", []):
                found[each.name] = value
        return found


_OF_RESCALE = frozenset({"multipliers", "input_zp", "output_zp", "scale32", "rounding_mode"})
_OF_ALL = frozenset({"operation", "input_type", "output_type", "seed", "count"})


@dataclass(frozen=True, slots=True)
class MadeVectors:
    """The vectors of a call, with the profile that they are of."""

    call: VectorsCall
    profile: str
    found: Vectors


def make_vectors(call: VectorsCall, settings: Settings) -> MadeVectors:
    """Make the vectors of a call: work on texts. Errors point at the fields of the call."""
    with default_pointer("/operation"):
        operator = operation_named(call.operation)
    profile = call.profile or operator.profiles[0]
    if profile not in operator.profiles:
        with default_pointer("/profile"):
            profile_named(profile)
        detail = f"{call.operation} has the profile {' or '.join(operator.profiles)}"
        raise UnsupportedError(detail, pointer="/profile")
    with pointers_for_sides(input="/input_type", output="/output_type"):
        if call.operation == RESCALE:
            subjects = _rescale(call, settings)
        else:
            subjects = _conversion(call, operator.operation, profile, settings)
        with default_pointer("/input_type", PreconditionError, UnsupportedError):
            return MadeVectors(call, profile, vectors_of(subjects, call.count, call.seed, operator.names))


def _designed(count: int) -> int:
    """Return how many sets of parameters are designed for so many vectors."""
    return max(1, min(_MAX_DESIGNED, count // _VECTORS_OF_A_DESIGNED_SET))


def _check_fields(call: VectorsCall, taken: frozenset[str]) -> None:
    """Raise InvalidRequestError for a field that the operation does not have."""
    for name in call.given():
        if name not in taken:
            detail = f"{call.operation} has no {name}"
            raise InvalidRequestError.of_field(f"/{name}", "extra_forbidden", detail, message=detail)


def _required(call: VectorsCall) -> None:
    if not call.output_type:
        raise InvalidRequestError.of_field("/output_type", "missing", "required", message="output_type: required")


def _rescale(call: VectorsCall, settings: Settings) -> list[Subject]:
    _check_fields(call, _OF_ALL | _OF_RESCALE)
    _required(call)
    types = (
        read_type(call.input_type, settings.max_type_bytes, "/input_type"),
        read_type(call.output_type, settings.max_type_bytes, "/output_type"),
    )
    return rescale_subjects(
        *types,
        multipliers=call.multipliers or None,
        input_zp=call.input_zp,
        output_zp=call.output_zp,
        scale32=call.scale32 is not False,
        rounding_mode=call.rounding_mode or RescaleRounding.SINGLE_ROUND,
        seed=call.seed,
        max_sets=_designed(call.count),
    )


def _conversion(call: VectorsCall, operation: Operation, profile: str, settings: Settings) -> list[Subject]:
    options = {option.name: option for option in CONVERSION_OPTIONS[operation] if option.name not in ("seed", "axis")}
    taken = _OF_ALL | {"profile", *options} | ({"multipliers"} if operation is Operation.REQUANTIZE else set())
    _check_fields(call, taken)
    if operation is not Operation.DEQUANTIZE:
        _required(call)
    arguments: dict[str, Any] = {}
    for name, option in options.items():
        if (value := getattr(call, name)) not in (None, ""):
            with default_pointer(f"/{name}"):
                arguments[name] = option.resolve(value)
    if call.rounding == "stochastic":
        detail = "stochastic rounding depends on the place of an element; vectors are of elements by themselves"
        raise UnsupportedError(detail, pointer="/rounding")
    input_type = read_type(call.input_type, settings.max_type_bytes, "/input_type")
    output_type = None
    if call.output_type:
        output_type = read_type(call.output_type, settings.max_type_bytes, "/output_type")
    of_multipliers: AbstractContextManager[None] = nullcontext()
    if call.multipliers:
        of_multipliers = default_pointer("/multipliers", ParameterError, PreconditionError)
    with (
        default_pointer("/profile", UnsupportedError),
        pointers_for_sides(input="/input_type", output="/output_type"),
        of_multipliers,
    ):
        return conversion_subjects(
            operation,
            input_type,
            output_type,
            profile,
            multipliers=call.multipliers or None,
            seed_of_sets=call.seed,
            max_sets=_designed(call.count),
            **arguments,
        )


def vectors_file(made: MadeVectors, form: Format) -> bytes:
    """Return vectors as a file."""
    if form is Format.NPZ:
        return _npz(made)
    about = [f"Request: {json.dumps(made.call.given())}", f"Profile: {made.profile}"]
    write = c_header if form is Format.C_HEADER else readmemh
    return write(made.found, made.call.operation, about).encode()


def vectors_members(made: MadeVectors) -> dict[str, Any]:
    """Return vectors as members of replies."""
    found = made.found
    return {
        "operation": made.call.operation,
        "profile": made.profile,
        "input_element": found.input.name,
        "expected_element": found.output.name,
        "formula": list(found.formula),
        "parameter_sets": [_set(found, index) for index in range(len(found.sets))],
        "vectors": [_vector(found, each) for each in found.vectors],
    }


def _set(found: Vectors, index: int) -> dict[str, Any]:
    numbers, why = found.sets[index].numbers, found.sets[index].why
    parameters = []
    for name, number in numbers.items():
        if name in found.reals:
            (bits,) = real_bits([float(number)], found.scale)
            text = float_text(float(number), FLOATS["f64"])
            width = found.scale.width // 4
            parameters.append({"name": name, "value": text, "element": found.scale.name, "bits": f"0x{bits:0{width}X}"})
        else:
            parameters.append({"name": name, "value": str(number), "element": f"i{found.widths[name]}"})
    return {"parameters": parameters, "why": [str(each) for each in why]}


def _vector(found: Vectors, vector: Vector) -> dict[str, Any]:
    explained = element_members(vector.explanation, found.output)
    return {
        "parameter_set": vector.parameters,
        "input": explained["input"],
        "input_bits": _hexadecimal(vector.input, found.input.width),
        "expected": explained["result"],
        "expected_bits": _hexadecimal(vector.expected, found.output.width),
        "why": [str(each) for each in vector.why],
        "steps": explained["steps"],
    }


def _hexadecimal(number: int, width: int) -> str:
    return f"0x{number & ((1 << width) - 1):0{(width + 3) // 4}X}"


def column_array(column: Column) -> NDArray[Any]:
    """Return a column as an array: floats as they are where numpy has them, else their bits."""
    if column.kind is not Kind.FLOAT:
        sign = "i" if column.kind is Kind.SIGNED else "u"
        return np.array(column.numbers, f"<{sign}{column.container // 8}")
    bits = np.array(column.numbers, f"<u{column.container // 8}")
    return bits.view(FLOATS[column.element].tensor_dtype) if column.element in COMPUTE_DTYPES else bits


def _npz(made: MadeVectors) -> bytes:
    """Return an archive of arrays: one entry for each vector, or for each set of parameters."""
    found, table = made.found, Table.of(made.found)
    arrays = {column.name: column_array(column) for column in (table.input, table.expected, *table.stages)}
    arrays["parameter_set"] = np.array(table.places, "<i4")
    arrays["why"] = np.array([",".join(each.why) for each in found.vectors])
    arrays |= {f"parameter_{column.name}": column_array(column) for column in table.parameters}
    arrays["parameter_why"] = np.array([",".join(each.why) for each in found.sets])
    arrays["formula"] = np.array(found.formula)
    arrays["request"] = np.array(json.dumps(made.call.given()))
    arrays["profile"] = np.array(made.profile)
    file = BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # no array is named allow_pickle
    return file.getvalue()
