"""Which rules give outputs that were observed, and which inputs tell those rules apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from math import inf, isfinite
from time import thread_time
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import flat_bits
from requant.arrays.json_values import encode_elements
from requant.convert.explain.explanation import Step
from requant.description import (
    Array,
    CallsInput,
    Choices,
    Kind,
    Member,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
)
from requant.errors import ParameterError
from requant.identification.candidates import Candidate, first_planned
from requant.identification.derivations import Derivation
from requant.identification.divergence import Divergence
from requant.identification.files import FileFormat, tensor_file
from requant.identification.identification import Consistent, Excluded, Identification, Unexplained, identify
from requant.identification.outcomes import Mismatch
from requant.identification.probes import Probe
from requant.identification.unknowns import Contradiction, Interval, ScaleInterval
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.operations.explain import STEPS
from requant.operations.parameters import axis_option, sizes_option
from requant.plan.operands import kept_dtype

MAX_GROUPS = 64
"""So many groups of excluded and of undefined candidates are listed."""


def _plan(operations: Mapping[str, Operation], call: OperationCall) -> PlannedWork:
    calls: Sequence[ArrayCall] = call.calls
    size = sum(array.nbytes for each in calls for array in each.arrays.values())
    suspects, seconds = call.options["suspects"], call.options["max_compute_seconds"]
    axis, sizes = call.options["unknown_axis"], call.options["unknown_block_sizes"]
    if seconds is not None and not seconds > 0:
        raise ParameterError(f"{seconds} is no positive number of seconds", pointer="/max_compute_seconds")
    budget = min(call.limits.compute_seconds, inf if seconds is None else seconds)
    works = [work for each in calls if (work := first_planned(each)) is not None]

    def run(_: Mapping[str, Array]) -> Result:
        begun = thread_time()
        found = identify(
            calls,
            suspects,
            lambda: thread_time() - begun > budget,
            axis,
            sizes,
            operations if call.options["derivations"] is not False else None,
            derive_known=call.options["derivations"] is True,
        )
        return Result(report=_members(found, call.options["files"]))

    return PlannedWork(
        operands={},
        run=run,
        byte_count=2 * size + sum(work.byte_count for work in works),
        weight=size,
        sums=max((work.sums for work in works), default=0),
        products=max((work.products for work in works), default=0),
        traced=any(work.traced for work in works),
        searches=True,
    )


def _members(answer: Identification, files: FileFormat | None) -> dict[str, Any]:
    said: dict[str, Any] = {
        "elements": answer.elements,
        "consistent": [_consistent(each) for each in answer.consistent],
        "try_next": [_probe(each, files) for each in answer.probes],
        "excluded": [_excluded(each) for each in answer.excluded[:MAX_GROUPS]],
        "excluded_count": len(answer.excluded),
        "undefined": [
            {"candidates": _candidates(each.candidates), "reason": each.undefined}
            for each in answer.undefined[:MAX_GROUPS]
        ],
        "not_tried": _candidates(answer.not_tried),
        "warnings": list(_warnings(answer)),
    }
    if parameters := _parameters(answer):
        said["parameters"] = parameters
    if found := _derivations(answer):
        said["derivations"] = found
    if answer.unexplained is not None:
        said |= _unexplained(answer.unexplained)
    return said


def _candidates(candidates: Iterable[Candidate]) -> list[dict[str, Any]]:
    """Return candidates as options. Of those that differ only in the first, beside others, the first."""
    kept: dict[tuple[Any, ...], Candidate] = {}
    for each in candidates:
        kept.setdefault(each[1:] if len(each) > 1 else each, each)
    return [dict(each) for each in kept.values()]


def _consistent(found: Consistent) -> dict[str, Any]:
    return {"candidates": _candidates(found.candidates), "proven": found.proven}


def _parameters(answer: Identification) -> list[dict[str, Any]]:
    return [
        _interval(place, call, each)
        for place, found in enumerate(answer.consistent)
        for call, listed in found.parameters.items()
        for each in listed
    ]


def _interval(consistent: int, call: int, interval: Interval) -> dict[str, Any]:
    said = {"consistent": consistent, "call": call, "channel": interval.channel}
    if isinstance(interval, ScaleInterval):
        said["zero_point"] = interval.zero_point
    else:
        said["shift"] = interval.shift
    return {**said, "lowest": repr(interval.lowest), "highest": repr(interval.highest)}


def _derivations(answer: Identification) -> list[dict[str, Any]]:
    places: dict[tuple[int, Derivation], list[int]] = {}
    for place, consistent in enumerate(answer.consistent):
        for call, listed in consistent.derivations.items():
            for each in listed:
                places.setdefault((call, each), []).append(place)
    found = []
    for (call, derivation), consistent_places in places.items():
        said = {"consistent": consistent_places, "call": call, **dict(derivation.options)}
        if derivation.stored_as is not None:
            said["stored_as"] = derivation.stored_as
        found.append(said)
    return found


def _contradiction(call: int, found: Contradiction) -> dict[str, Any]:
    said: dict[str, Any] = {"call": call, "channel": found.channel}
    if found.zero_point is not None:
        said["zero_point"] = found.zero_point
    if found.shift is not None:
        said["shift"] = found.shift
    return {**said, "elements": list(found.elements)}


def _text(value: Any) -> str:
    """Return a stored number as text that reads back to it."""
    number = np.asarray(value).item()
    return repr(number) if isinstance(number, float) else str(number)


def _probe(probe: Probe, files: FileFormat | None) -> dict[str, Any]:
    outcomes = [[value for output in each for value in _elements(output)] for each in probe.outcomes]
    tensors = tensors_of(probe.asked, files)
    return {"call": probe.call, "channel": probe.channel, "tensors": tensors, "outcomes": outcomes}


def tensors_of(asked: ArrayCall, files: FileFormat | None) -> list[dict[str, Any]]:
    """Return the tensors and numbers of a call as members of a reply, the tensors perhaps as files too."""
    found: list[dict[str, Any]] = [
        tensor_members(name, asked.type_of(name), each, files) for name, each in asked.arrays.items()
    ]
    return found + [{"name": name, "values": _elements(each)} for name, each in asked.numbers.items()]


def tensor_members(name: str, type_: TensorType, array: Array, files: FileFormat | None) -> dict[str, Any]:
    """Return a tensor as members of a reply, its elements as requests have them: small floats are codes."""
    flat = flat_bits(array, kept_dtype(type_.element, name), type_.element, name)
    said = {"name": name, "type": print_type(type_), "values": json.loads(encode_elements(type_.element, flat))}
    return said if files is None else {**said, "file": tensor_file(name, type_, array, files)}


def _elements(array: Array) -> list[Any]:
    """Return elements as JSON has them: numbers, and texts of those that are not finite."""
    listed = array.reshape(-1).tolist()
    if array.dtype.kind in "iub":
        return listed
    return [each if isinstance(each, str) or isfinite(each) else _NOT_FINITE[repr(float(each))] for each in listed]


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _excluded(found: Excluded) -> dict[str, Any]:
    said: dict[str, Any] = {
        "candidates": _candidates(found.group.candidates),
        "mismatches": found.group.mismatches,
    }
    if found.group.witness is not None:
        said["first"] = _mismatch(*found.group.witness)
    if found.divergence is not None:
        said |= _divergence(found.divergence)
    if contradictions := found.contradictions:
        said["contradictions"] = [
            _contradiction(index, each) for index, listed in contradictions.items() for each in listed
        ]
    return said


def _mismatch(call: int, found: Mismatch) -> dict[str, Any]:
    return {
        "call": call,
        "output": found.output,
        "index": found.index,
        "observed": _text(found.observed),
        "computed": _text(found.computed),
    }


def _divergence(found: Divergence) -> dict[str, Any]:
    steps = {"step": found.step, "consistent_step": found.other}
    return {name: _step(each) for name, each in steps.items() if each is not None}


def _step(step: Step) -> dict[str, Any]:
    members = {each.name: getattr(step, each.name) for each in fields(step)}
    return {name: value for name, value in members.items() if value is not None and value is not False}


def _unexplained(found: Unexplained) -> dict[str, Any]:
    said: dict[str, Any] = {
        "patterns": [f"{pattern}: {number}" if number else str(pattern) for pattern, number in found.patterns]
    }
    if found.readings:
        said["readings"] = [
            {"reading": each.text, "candidates": _candidates(one for group in each.groups for one in group.candidates)}
            for each in found.readings
        ]
    if found.synthesis is not None:
        said["synthesized"] = {
            "formula": found.synthesis.formulas,
            "unexplained": [asdict(each) for each in found.synthesis.unexplained[:MAX_GROUPS]],
            "unexplained_count": len(found.synthesis.unexplained),
            "tried": found.synthesis.tried,
        }
    return said


def _warnings(answer: Identification) -> Iterator[str]:
    classes = len(answer.consistent)
    if classes > 1 and answer.probes:
        decided = f"the data do not decide between {classes} rules: no element is where any two of them differ"
        yield f"{decided}; try_next has inputs where they do"
    elif classes > 1:
        yield f"the data do not decide between {classes} rules"
    if answer.not_tried:
        yield f"{len(answer.not_tried)} candidates were not tried in time"
    if any(not each.proven for each in answer.consistent):
        yield "the candidates of a group agree on many inputs, but are not proven to agree on every one"


def _choices_of(operations: Mapping[str, Operation]) -> tuple[Member, ...]:
    """Return the options that choose the arithmetic of any operation, as members of a candidate."""
    members: dict[str, Member] = {}
    for operation in operations.values():
        for option in operation.options:
            if option.chooses is not None:
                kind = Kind.BOOLEAN if option.kind is Kind.BOOLEAN else Kind.TEXT
                members.setdefault(option.name, Member(name=option.name, kind=kind, optional=True))
    return tuple(members.values())


def list_of(name: str, title: str, about: str, description: str, *members: Member, optional: bool = False) -> Member:
    return Member(
        name=name,
        repeated=True,
        title=title,
        group_description=about,
        description=description,
        members=members,
        optional=optional,
    )


TENSOR = (
    Member(name="name", kind=Kind.TEXT),
    Member(name="type", kind=Kind.TYPE, optional=True),
    Member(name="values", kind=Kind.ELEMENTS),
    Member(name="file", kind=Kind.TEXT, optional=True, description="The same as a file, if `files` asks."),
)
CALL = Member(name="call", description="The index of the call.", bits=32)
_CHANNEL = Member(name="channel", description="The index of the scale, or of the multiplier.", bits=32)
_ZERO_POINT = Member(name="zero_point", description="Where the scale is unknown.", optional=True)
_SHIFT = Member(name="shift", description="Where the multiplier is unknown.", bits=32, optional=True)
_REASON = Member(name="reason", kind=Kind.TEXT)


def _step_member(name: str, description: str) -> Member:
    return Member(
        name=name,
        title="ExplainedStep",
        group_description=STEPS.group_description,
        description=description,
        members=STEPS.members,
        optional=True,
    )


def _reply(candidate: tuple[Member, ...], derivation: tuple[Member, ...]) -> tuple[Member, ...]:
    """Return the members of the reply. `candidate`: those of a candidate; `derivation`: those of a derivation."""
    candidates = list_of(
        "candidates",
        "Candidate",
        "Options that choose the arithmetic; those that are absent have their defaults.",
        "Those that are the same arithmetic here; of those that differ only in the profile beside a scheme, the first.",
        *candidate,
    )
    first = Member(
        name="first",
        title="IdentificationWitness",
        group_description="An element for which the candidates give another value.",
        description="The first element that differs.",
        members=(
            CALL,
            Member(name="output", kind=Kind.TEXT),
            Member(name="index", description="Its flat index."),
            Member(name="observed", kind=Kind.TEXT),
            Member(name="computed", kind=Kind.TEXT),
        ),
        optional=True,
    )
    return (
        Member(name="elements", description="How many elements were compared with what each candidate computes."),
        list_of(
            "consistent",
            "ConsistentCandidates",
            "Candidates that no input told apart.",
            "Those that give every observed bit: a fact about these data, not a likelihood.",
            candidates,
            Member(
                name="proven",
                kind=Kind.BOOLEAN,
                description="Whether they give the same for every input; of a product, "
                "for every sum that a call to try next can have, of at most 4096 products.",
            ),
        ),
        list_of(
            "try_next",
            "CallToTry",
            "A small call that tells consistent candidates apart; of a convolution, with strides and dilations of 1 "
            "and without padding.",
            "At most 16 inputs, which together tell all groups of `consistent` apart, as far as any input does.",
            CALL,
            Member(name="channel", description="The index of the scale and zero point that decide.", bits=32),
            list_of(
                "tensors",
                "TensorToTry",
                "An argument of the call; the others are those of the call that it was made from.",
                "",
                *TENSOR,
            ),
            Member(
                name="outcomes",
                kind=Kind.ELEMENTS,
                description="A list for each group of `consistent`: the elements of the observed outputs as stored; "
                "empty if the group refuses the call.",
            ),
        ),
        list_of(
            "excluded",
            "ExcludedCandidates",
            "Candidates that give other bits.",
            "By number of mismatches, at most 64 groups.",
            candidates,
            Member(name="mismatches"),
            first,
            _step_member("step", "The first step at which they diverge from the first consistent group."),
            _step_member("consistent_step", "The step of that group in its place."),
            list_of(
                "contradictions",
                "ScaleContradiction",
                "Why no scale or multiplier fits.",
                "For each zero point, or shift, that is possible at all, or for one where none is.",
                CALL,
                _CHANNEL,
                _ZERO_POINT,
                _SHIFT,
                Member(name="elements", kind=Kind.INTEGERS, description="One element, or two that none fits together."),
                optional=True,
            ),
        ),
        Member(name="excluded_count", description="The total number of excluded groups.", bits=32),
        list_of(
            "undefined",
            "UndefinedCandidates",
            "Candidates that refuse a call.",
            "At most 64 groups.",
            candidates,
            _REASON,
        ),
        replace(candidates, name="not_tried", description="Those that were not reached in time."),
        list_of(
            "parameters",
            "ParameterInterval",
            "All scales, or multipliers, from the lowest to the highest give what was observed.",
            "Where a type was !quant.any: the scales that fit, numbers of its expressed type. Where plain integers "
            "were requantized without multipliers: the multipliers that fit, in the convention of the scheme.",
            Member(name="consistent", description="The index of the group of `consistent`.", bits=32),
            CALL,
            _CHANNEL,
            _ZERO_POINT,
            _SHIFT,
            Member(name="lowest", kind=Kind.TEXT),
            Member(name="highest", kind=Kind.TEXT),
            optional=True,
        ),
        list_of(
            "derivations",
            "ParameterDerivation",
            "Options of derive_from_tensor that give scales and zero points of a call of quantize.",
            "What derives parameters that fit, or that are known, from the input that was quantized.",
            Member(name="consistent", kind=Kind.INTEGERS, description="The indices of the groups of `consistent`."),
            CALL,
            *derivation,
            Member(
                name="stored_as",
                kind=Kind.TEXT,
                description="The float type that the scales are rounded to before the expressed type.",
                optional=True,
            ),
            optional=True,
        ),
        Member(
            name="patterns",
            kind=Kind.TEXTS,
            description="If nothing is consistent: what the elements that differ from the nearest have in common.",
            optional=True,
        ),
        list_of(
            "readings",
            "ConsistentReading",
            "The calls with one thing read in another way.",
            "If nothing is consistent: other readings of the data or parameters with which candidates are.",
            Member(name="reading", kind=Kind.TEXT, description="What is read in another way: `weights is transposed`."),
            candidates,
            optional=True,
        ),
        Member(
            name="synthesized",
            title="SynthesizedRule",
            group_description="A rule made of parts.",
            description="If nothing is consistent: the simplest rule that gives what was observed.",
            members=(
                Member(name="formula", kind=Kind.TEXTS, description="Its steps; empty if no rule that was tried fits."),
                list_of(
                    "unexplained",
                    "UnexplainedElement",
                    "An element that the rule gives otherwise.",
                    "Elements that the rule does not explain, at most 64.",
                    CALL,
                    Member(name="index", description="Its flat index."),
                    Member(name="observed"),
                    Member(name="computed"),
                ),
                Member(name="unexplained_count"),
                Member(name="tried", description="How many rules were tried."),
            ),
            optional=True,
        ),
        Member(name="warnings", kind=Kind.TEXTS),
    )


def files_option(what: str) -> Option:
    """Return the option that asks for tensors as files."""
    return Option(
        name="files",
        description=f"Give each tensor of {what} as a file, too: .npy as base64, a C array, or words for $readmemh, "
        "the latter with floats as their bits.",
        optional=True,
        choices=Choices.of(FileFormat),
    )


def identify_operation(operations: Mapping[str, Operation]) -> Operation:
    """Return the operation, for calls of these."""
    return Operation(
        name="identify",
        title="Identify the arithmetic",
        group="ops",
        summary="Find which rules give the observed outputs bit for bit, and which inputs tell those rules apart.",
        request="Calls of operations, or of operators such as litert.MUL, with their inputs and observed outputs: the "
        "layers of a dump.",
        source="the systems that the profiles and schemes are named after",
        inputs=(
            CallsInput(
                name="calls",
                description="Calls, each without the options that are asked for. A type of !quant.any leaves scale and "
                "zero point open; plain integers without multipliers leave those open.",
                operations=operations,
                observed=True,
            ),
        ),
        options=(
            Option(
                name="suspects",
                kind=Kind.TEXTS,
                description="Names of profiles, schemes, methods, formats, kernels; only they are tried. Default: all.",
                optional=True,
                max_length=256,
            ),
            replace(
                axis_option(
                    "The dimension along which there are several unknown scales, or multipliers. Default: one."
                ),
                name="unknown_axis",
            ),
            sizes_option(
                "unknown_block_sizes", "The size of a block along each dimension, if each block has an unknown scale."
            ),
            Option(
                name="derivations",
                kind=Kind.BOOLEAN,
                description="Whether to look for what derives the scales of calls of quantize from their inputs. "
                "Default: only of unknown scales.",
                optional=True,
            ),
            files_option("`try_next`"),
            Option(
                name="max_compute_seconds",
                kind=Kind.NUMBER,
                description="So many seconds of CPU are spent on trying candidates; `not_tried` lists those that are "
                "left. Default: no limit, or what a service has left of its own.",
                optional=True,
            ),
        ),
        reply=_reply(_choices_of(operations), _choices_of({"": operations["derive_from_tensor"]})),
        reply_title="IdentifyReply",
        reply_description="The candidates that give the observed bits, and the others.",
        plan=partial(_plan, operations),
        example={
            "calls": [
                {
                    "operation": "requantize",
                    "arguments": {
                        "input": {"type": "tensor<3x!quant.uniform<i32:f32, 0.001>>", "values": [585, 7984, -12]},
                        "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
                    },
                    "observed": {"output": [1, 31, -1]},
                }
            ],
            "suspects": ["litert", "litert_xnnpack", "cmsis_nn"],
        },
    )
