"""Vectors: inputs of an operation worth testing, each with the expected bits, the steps and the reasons."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from requant import profiles
from requant.convert.explain.working import float_text
from requant.convert.quantize import CHOSEN_ROUNDINGS, NanPolicy
from requant.convert.vectors.conversions import conversion_subjects
from requant.convert.vectors.export import c_header, identifier_of, npz, readmemh, real_bits
from requant.convert.vectors.subject import ParameterReason, Reason, Subject
from requant.convert.vectors.vectors import DEFAULT_COUNT, MAX_VECTORS, MIN_PER_SET, Vector, Vectors, vectors_of
from requant.description import (
    Array,
    Choices,
    Kind,
    Member,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
)
from requant.errors import (
    InvalidRequestError,
    ParameterError,
    PreconditionError,
    UnsupportedError,
    default_pointer,
    pointers_for_sides,
)
from requant.errors.names import did_you_mean
from requant.formats.elements import FLOATS
from requant.mlir import parse_type
from requant.mlir.types import Type
from requant.operations.conversions import CONVERSION_OPTIONS, NAN, ROUNDING, SATURATE, SCHEME
from requant.operations.explain import STEPS, element_members
from requant.operations.options import given_multipliers, multipliers_input
from requant.operators.tosa.rescale_plan import RescaleRounding
from requant.operators.vectors import RESCALE, operation_named, rescale_subjects
from requant.profiles import PROFILES, profile_named
from requant.schemes import SCHEMES, Multiplier

CHARACTERS_PER_VECTOR = 1024
"""The cost of a vector, in characters of text that cost the same."""
MAX_GIVEN = 256
"""The most multipliers of a request."""
BYTES_PER_VECTOR = 24 << 10
"""About how much memory a vector, its steps and their text take."""
_VECTORS_OF_A_DESIGNED_SET = 16
_MAX_DESIGNED = 12


ReadType = Callable[[str, str], Type]
"""Reads the text of a type; errors point at the second argument."""


class Format(StrEnum):
    """The format of the response."""

    JSON = "json"
    NPZ = "npz"
    C_HEADER = "c_header"
    READMEMH = "readmemh"


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
    """The vectors of a call, with the profile that they are of, and how that rounds."""

    call: VectorsCall
    profile: str
    rounding: str
    found: Vectors

    @property
    def identifier(self) -> str:
        """The prefix of names in C: the operation and the scheme that was asked for."""
        return identifier_of(self.call.operation, self.call.scheme)


def make_vectors(call: VectorsCall, read_type: ReadType) -> MadeVectors:
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
            subjects = _rescale(call, read_type)
        else:
            subjects = _conversion(call, operator.operation, profile, read_type)
        with default_pointer("/input_type", PreconditionError, UnsupportedError):
            found = vectors_of(subjects, call.count, call.seed, operator.names)
            rounding = subjects[0].explainer(subjects[0].place.shape(1)).plan.rounding
            return MadeVectors(call, profile, str(rounding), found)


def _designed(count: int) -> int:
    """Return how many sets of parameters are designed for so many vectors."""
    return max(1, min(_MAX_DESIGNED, count // _VECTORS_OF_A_DESIGNED_SET))


def _check_fields(call: VectorsCall, taken: frozenset[str]) -> None:
    """Raise InvalidRequestError for a field that the operation does not have."""
    for name in call.given():
        if name not in taken:
            hint = did_you_mean(name, taken)
            detail = f"{call.operation} has no {name}" + (f"; {hint}" if hint else "")
            raise InvalidRequestError.of_field(f"/{name}", "extra_forbidden", detail, message=detail)


def _required(call: VectorsCall) -> None:
    if not call.output_type:
        raise InvalidRequestError.of_field("/output_type", "missing", "required", message="output_type: required")


def _rescale(call: VectorsCall, read_type: ReadType) -> list[Subject]:
    _check_fields(call, _OF_ALL | _OF_RESCALE)
    _required(call)
    types = (
        read_type(call.input_type, "/input_type"),
        read_type(call.output_type, "/output_type"),
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


def _conversion(call: VectorsCall, operation: profiles.Operation, profile: str, read_type: ReadType) -> list[Subject]:
    left_out = ("seed", "random_bits", "axis")
    options = {option.name: option for option in CONVERSION_OPTIONS[operation] if option.name not in left_out}
    taken = _OF_ALL | {"profile", *options} | ({"multipliers"} if operation is profiles.Operation.REQUANTIZE else set())
    _check_fields(call, taken)
    if operation is not profiles.Operation.DEQUANTIZE:
        _required(call)
    arguments: dict[str, Any] = {}
    for name, option in options.items():
        if (value := getattr(call, name)) not in (None, ""):
            with default_pointer(f"/{name}"):
                arguments[name] = option.resolve(value)
    if call.rounding == "stochastic":
        detail = "stochastic rounding depends on the place of an element; vectors are of elements by themselves"
        raise UnsupportedError(detail, pointer="/rounding")
    input_type = read_type(call.input_type, "/input_type")
    output_type = None
    if call.output_type:
        output_type = read_type(call.output_type, "/output_type")
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
    request = json.dumps(made.call.given())
    if form is Format.NPZ:
        return npz(made.found, {"request": request, "profile": made.profile})
    of_scheme = [f"Scheme: {made.call.scheme}"] if made.call.scheme else []
    about = [f"Request: {request}", f"Profile: {made.profile}", *of_scheme, f"Rounding: {made.rounding}"]
    if form is Format.C_HEADER:
        return c_header(made.found, made.call.operation, about, name=made.identifier).encode()
    return readmemh(made.found, made.call.operation, about).encode()


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


def read_element_type(text: str, pointer: str) -> Type:
    """Return the type that a text says. Errors point at the pointer."""
    with default_pointer(pointer):
        return parse_type(text)


def vectors_call(call: OperationCall) -> VectorsCall:
    """Return what a call asks for. Raise ParameterError unless there are as many shifts as multipliers."""
    given = call.has(*(each.name for each in VECTORS.options if each.name != "format"))
    if (multipliers := given_multipliers(call)) is not None:
        given["multipliers"] = multipliers
    return VectorsCall(**given)


def _plan(call: OperationCall) -> PlannedWork:
    asked, form = vectors_call(call), call.options["format"]

    def run(_: Mapping[str, Array]) -> Result:
        made = make_vectors(asked, read_element_type)
        if form is not Format.JSON:
            return Result(file=vectors_file(made, form))
        return Result(report=vectors_members(made))

    return PlannedWork(
        operands={},
        run=run,
        byte_count=BYTES_PER_VECTOR * asked.count,
        characters=CHARACTERS_PER_VECTOR * asked.count,
    )


def _zero_point(name: str) -> Option:
    return Option(
        name=name,
        kind=Kind.INTEGER,
        description="tosa.RESCALE. Default: 0 if multipliers are given, else several values are generated.",
        model_description="tosa.RESCALE.",
        optional=True,
        lowest=-(1 << 31),
        highest=(1 << 31) - 1,
    )


_PARAMETER = Member(
    name="parameters",
    repeated=True,
    title="VectorParameter",
    group_description="A parameter of a parameter set.",
    members=(
        Member(name="name", kind=Kind.TEXT, examples=("multiplier",)),
        Member(name="value", kind=Kind.TEXT),
        Member(
            name="element", kind=Kind.TEXT, description="Its element type, an integer or a float.", examples=("i32",)
        ),
        Member(name="bits", kind=Kind.TEXT, description="The bits of a float, in hexadecimal.", optional=True),
    ),
)
_SET = Member(
    name="parameter_sets",
    repeated=True,
    title="VectorParameterSet",
    group_description="A parameter set.",
    members=(
        _PARAMETER,
        Member(
            name="why",
            kind=Kind.TEXTS,
            description="Why the set was selected: given in the request, or a property of its parameters.",
            choices=Choices.of(ParameterReason),
        ),
    ),
)
_VECTOR = Member(
    name="vectors",
    repeated=True,
    title="TestVector",
    group_description="An input and its expected result. Numbers are decimal strings, as in explanations.",
    members=(
        Member(name="parameter_set", description="Index of its parameter set.", bits=32),
        Member(name="input", kind=Kind.TEXT),
        Member(
            name="input_bits",
            kind=Kind.TEXT,
            description="The stored bits, in hexadecimal.",
            examples=("0x3E800000",),
        ),
        Member(name="expected", kind=Kind.TEXT),
        Member(name="expected_bits", kind=Kind.TEXT),
        Member(name="why", kind=Kind.TEXTS, description="Why the input was selected.", choices=Choices.of(Reason)),
        replace(STEPS, description="The steps from the input to the result."),
    ),
)

VECTORS = Operation(
    name="vectors",
    title="Vectors",
    group="explain",
    summary="Inputs worth testing, each with the expected bits, the intermediate steps and the reasons for its "
    "selection.",
    request="An operation, its types, and the options of its arithmetic.",
    source="Requant (docs/vectors.md)",
    inputs=(
        multipliers_input(
            "requantize and tosa.RESCALE: parameter sets, one per multiplier; one multiplier per channel for types "
            "with an axis.",
            "requantize and tosa.RESCALE: one per parameter set.",
            MAX_GIVEN,
        ),
    ),
    options=(
        Option(
            name="operation",
            description="quantize, dequantize or requantize, or an operator by its full name: tosa.RESCALE, "
            "onnx.QuantizeLinear, onnx.DequantizeLinear and others; the error for an unknown name lists all.",
            model_description="quantize, dequantize, requantize, or an operator by its full name.",
            examples=("tosa.RESCALE", "onnx.QuantizeLinear"),
        ),
        Option(
            name="input_type",
            description="MLIR text of the element type. If it is a plain integer in place of a quantized type, the "
            "service generates the parameters.",
            model_description="MLIR text of the element type.",
            examples=("i32", "f32"),
        ),
        Option(
            name="output_type",
            description="MLIR text of the element type of the result. Required unless the operation dequantizes.",
            optional=True,
            examples=("i8", "!quant.uniform<i8:f32, 0.5:3>"),
        ),
        Option(
            name="profile",
            description="Default: that of the operation.",
            optional=True,
            choices=Choices("ProfileName", tuple(PROFILES)),
        ),
        Option(
            name="scheme",
            description=f"requantize: {SCHEME.description}",
            optional=True,
            choices=Choices("SchemeName", tuple(SCHEMES)),
        ),
        Option(
            name="rounding",
            description=f"quantize: {ROUNDING.description} Not stochastic.",
            optional=True,
            choices=Choices("RoundingName", CHOSEN_ROUNDINGS),
        ),
        Option(
            name="nan",
            description=f"quantize: {NAN.description} Default: {NanPolicy.PROFILE}.",
            model_description=f"quantize: {NAN.description}",
            optional=True,
            choices=Choices.of(NanPolicy),
        ),
        Option(name="saturate", kind=Kind.BOOLEAN, description=f"quantize: {SATURATE.description}", optional=True),
        _zero_point("input_zp"),
        _zero_point("output_zp"),
        Option(
            name="scale32",
            kind=Kind.BOOLEAN,
            description="tosa.RESCALE: whether multipliers have 32 bits. Default: true.",
            optional=True,
        ),
        Option(
            name="rounding_mode",
            description=f"tosa.RESCALE. Default: {RescaleRounding.SINGLE_ROUND}.",
            model_description="tosa.RESCALE.",
            optional=True,
            choices=Choices.of(RescaleRounding),
        ),
        Option(
            name="seed",
            kind=Kind.INTEGER,
            description="Seed of the random vectors and parameters.",
            default=0,
            lowest=0,
        ),
        Option(
            name="count",
            kind=Kind.INTEGER,
            description="Maximum number of vectors.",
            default=DEFAULT_COUNT,
            lowest=MIN_PER_SET,
            highest=MAX_VECTORS,
        ),
        Option(
            name="format",
            description="json returns this response. The other formats return a file: npz as "
            "application/octet-stream, c_header as text/x-c, readmemh, for SystemVerilog's $readmemh, as text/plain.",
            model_description="json: the response parameters formula, parameter_sets and vectors are JSON. c_header "
            "and readmemh: the response parameter text is the file.",
            default=Format.JSON,
            choices=Choices.of(Format),
            read=Format,
        ),
    ),
    reply=(
        Member(name="operation", kind=Kind.TEXT),
        Member(name="profile", kind=Kind.TEXT),
        Member(name="input_element", kind=Kind.TEXT, description="The element type of the inputs.", examples=("i32",)),
        Member(name="expected_element", kind=Kind.TEXT),
        Member(
            name="formula",
            kind=Kind.TEXTS,
            description="The steps of an ordinary element of the first parameter set.",
        ),
        _SET,
        _VECTOR,
    ),
    reply_title="VectorsReply",
    reply_description="The vectors, grouped by parameter set and in ascending order of their inputs.",
    plan=_plan,
    files={
        Format.NPZ: "application/octet-stream",
        Format.C_HEADER: "text/x-c; charset=utf-8",
        Format.READMEMH: "text/plain; charset=utf-8",
    },
    example={
        "operation": "tosa.RESCALE",
        "input_type": "i32",
        "output_type": "i8",
        "multipliers": [{"multiplier": 1073741824, "shift": 34}],
        "output_zp": -1,
        "count": 64,
    },
)
