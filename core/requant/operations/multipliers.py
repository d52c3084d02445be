"""Multipliers and shifts from real factors, or from the scales that a factor is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from requant.description import (
    Array,
    Choices,
    Chooses,
    Kind,
    Member,
    NumbersInput,
    OneOf,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    RecordMember,
    Records,
    RecordsInput,
    Report,
    Result,
)
from requant.errors import RequantError, TypeFitError, pointer_prefix
from requant.errors.cancellation import checked
from requant.schemes import SCHEMES, scheme_named
from requant.schemes.multipliers import DerivedMultiplier, derive_from_scales, derive_multiplier

CHARACTERS_PER_FACTOR = 32
"""What deriving one multiplier costs, in characters of a type."""
# What the numbers of a multiplier and their texts take while they are derived.
_BYTES_OF_MULTIPLIER = 4096
# How many multipliers are derived between two looks at whether to go on.
_AT_ONCE = 16
_MEMBERS = tuple(each.name for each in fields(DerivedMultiplier))


def _plan(call: OperationCall) -> PlannedWork:
    scheme = call.options["scheme"].name
    longest = max(call.numbers.values(), key=np.size)
    count = longest.size
    if "factors" in call.numbers:
        factors = call.numbers["factors"].reshape(-1)

        def derive(index: int) -> DerivedMultiplier:
            with pointer_prefix(f"/factors/{index}"):
                return derive_multiplier(factors[index], scheme)

    else:
        inputs, weights, outputs = (_one_each(call, f"{side}_scales", count) for side in ("input", "weight", "output"))

        def derive(index: int) -> DerivedMultiplier:
            try:
                return derive_from_scales(inputs[index], weights[index], outputs[index], scheme)
            except RequantError as error:
                # A scale that is at fault is an argument of its own, beside the list of them.
                side = (error.pointer or "").removeprefix("/")
                error.pointer = f"/{side}_scales/{index}" if side else f"/scales/{index}"
                raise

    def run(_: Mapping[str, Array]) -> Result:
        derived = [derive(index) for index in checked(range(count), _AT_ONCE)]
        # `asdict` copies each member, which takes a tenth of a small request.
        records = [{name: getattr(each, name) for name in _MEMBERS} for each in derived]
        return Result(report={"scheme": scheme}, records=records, record_shape=longest.shape)

    return PlannedWork(
        operands={}, run=run, byte_count=_BYTES_OF_MULTIPLIER * count, characters=CHARACTERS_PER_FACTOR * count
    )


def _one_each(call: OperationCall, name: str, count: int) -> Array:
    """Return the scales of that input, one for each factor: those at its index, or the one that there is for all."""
    scales = call.numbers.get(name, np.array(None, object)).reshape(-1)
    if scales.size not in (1, count):
        detail = f"there are {scales.size} scales, and {count} of another input; expected one, or as many"
        raise TypeFitError(detail, pointer=f"/{name}")
    return np.broadcast_to(scales, count) if scales.size == 1 else scales


_SCALE = "A number, or decimal or C99 hexadecimal text."


def _scales(side: str, said: str, list_said: str, *, optional: bool = False, example: float | str = "") -> RecordMember:
    """Return the scales of a side: of the record what is `said`, of the list of them `list_said`."""
    numbers = NumbersInput(
        name=f"{side}_scales",
        kind=Kind.NUMBER_OR_TEXT,
        description=list_said,
        optional=True,
        model_name=f"{side}_scale",
    )
    examples = (example,) if example else ()
    return RecordMember(name=side, numbers=numbers, description=said, optional=optional, examples=examples)


DERIVE_MULTIPLIER = Operation(
    name="derive_multiplier",
    path="parameters/multiplier",
    request_title="MultiplierRequest",
    title="Multiplier and shift from a factor",
    group="params",
    summary="Derive the integer multiplier and shift for each factor, and the value that they represent.",
    request="Real factors, or the scales to compute them from.",
    source="the systems that the schemes are named after (docs/parameters.md)",
    inputs=(
        NumbersInput(
            name="factors",
            kind=Kind.NUMBER_OR_TEXT,
            description="Numbers, or strings in decimal or C99 hexadecimal. Each is read as the nearest binary64, ties "
            "to even; a number means the same as a string of the same characters.",
            optional=True,
            model_name="factor",
            model_description="Real factors. Give either these or scales.",
            examples=([0.0123, "0x1.8p-5"],),
        ),
        RecordsInput(
            name="scales",
            description="Scales, from which the scheme computes factors in its own precision. Give either factors or "
            "scales.",
            title="ScaleTriple",
            record_description="The scales of one factor, each a number, or decimal or C99 hexadecimal text, read as "
            "the nearest binary64.",
            members=(
                _scales(
                    "input",
                    f"The scale of the input. {_SCALE}",
                    "Scales, from which the scheme computes factors in its own precision: one, or one each.",
                    example=0.05,
                ),
                _scales(
                    "weight",
                    f"The scale of the second operand of a product. {_SCALE} Default: none.",
                    "Of the second operand of a product. Default: none.",
                    optional=True,
                ),
                _scales("output", f"The scale of the output. {_SCALE}", "One, or one a factor.", example="0.25"),
            ),
        ),
    ),
    options=(
        Option(
            name="scheme",
            description="The scheme to derive them by.",
            choices=Choices("SchemeName", tuple(SCHEMES)),
            chooses=Chooses.RULES,
            read=scheme_named,
        ),
    ),
    one_of=(OneOf(names=("factors", "scales"), code="factors_form"),),
    reply=(
        Member(name="scheme", kind=Kind.TEXT),
        Records(
            name="results",
            record=Report(
                title="DerivedMultiplier",
                description="The multiplier and shift for one factor, and their error.",
                members=(
                    Member(name="multiplier", model_description="One per factor."),
                    Member(name="shift", description="In the scheme's own sign convention.", bits=32),
                    Member(
                        name="represented",
                        kind=Kind.EXACT_NUMBER,
                        description="The exact real value of multiplier and shift, as decimal text.",
                        model_description="The value that multiplier and shift represent, as the nearest binary64.",
                    ),
                    Member(
                        name="fraction",
                        kind=Kind.TEXT,
                        description="The same as numerator/denominator; the denominator is a power of two.",
                    ),
                    Member(
                        name="factor",
                        kind=Kind.EXACT_NUMBER,
                        description="The binary64 factor that they were derived from, as the shortest decimal text "
                        "that reads back to it.",
                        model_description="The factor that they were derived from.",
                    ),
                    Member(
                        name="relative_error",
                        kind=Kind.NUMBER,
                        description="represented / factor - 1.",
                        model_description="represented / factor - 1, of the exact value.",
                    ),
                ),
            ),
        ),
    ),
    reply_title="MultiplierReply",
    reply_description="One result for each factor, in the order of the request.",
    plan=_plan,
    example={"factors": [0.0123, "0x1.8p-5"], "scheme": "litert"},
)
