"""Whether two rules give the same for every input, decided and certified."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from math import inf
from typing import Any

from requant.convert.explain.working import float_text
from requant.description import (
    Array,
    Choices,
    Group,
    Kind,
    Member,
    OneOf,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
)
from requant.equality.addition import AdditionEquivalence, addition, compare_additions
from requant.equality.certificates import certificate
from requant.equality.decision import Difference, Equivalence, PartDecision, compare
from requant.equality.multipliers import MultiplierDecision, compare_schemes
from requant.equality.rules import Rule, dequantization, quantization, requantization
from requant.equality.smt import smt2
from requant.equality.sweep import MAX_INPUTS
from requant.errors import InvalidRequestError, ParameterError, UnsupportedError, default_pointer, pointers_for_sides
from requant.errors.progress import progress_report
from requant.formats.elements import FloatElement
from requant.integer.add import AddPlan
from requant.mlir.types import Type
from requant.operations.conversions import NAN, ROUNDING, SATURATE, SCHEME
from requant.operations.function_rules import function_rule
from requant.operations.modules import FUNCTION, MODULE
from requant.operations.options import given_multipliers, multipliers_input
from requant.profiles import DEFAULT_PROFILES, PROFILES
from requant.profiles import Operation as ConversionName
from requant.schemes import Multiplier

MAX_SHORT = 1024
"""A certificate of no more intervals is given unasked."""
MAX_MULTIPLIERS = 1024
_INPUTS_OF_SECOND = 1 << 22
"""How many inputs two rules have surely been computed for in a second, one thread."""
_INPUTS_OF_FUNCTION = 32
"""How many inputs of a conversion are computed while a function computes one."""
_BYTES = 16 << 20
_BYTES_OF_CERTIFICATE = 96 << 20


class Compared(StrEnum):
    """What two rules are compared of."""

    QUANTIZE = "quantize"
    DEQUANTIZE = "dequantize"
    REQUANTIZE = "requantize"
    ADD = "add"


_INPUT_TYPE = Option(
    name="input_type",
    kind=Kind.TYPE,
    description="MLIR text of an element type, with its scale and zero point. Of an addition: that of both operands.",
    optional=True,
    examples=("!quant.uniform<i32:f32, 0.001>",),
)
_RHS_TYPE = Option(
    name="rhs_type",
    kind=Kind.TYPE,
    description="Of an addition: that of the second operand, if it is another.",
    optional=True,
)
_OUTPUT_TYPE = Option(
    name="output_type",
    kind=Kind.TYPE,
    description="MLIR text of an element type. Of a dequantization: default the expressed type, or f32.",
    optional=True,
    examples=("!quant.uniform<i8:f32, 0.25:-1>",),
)
_TYPES = (_INPUT_TYPE, _RHS_TYPE, _OUTPUT_TYPE)

RULE = Group(
    title="EquivalenceRule",
    description="What one of two rules has of its own: options of the operation, and types where they differ.",
    options=(
        Option(
            name="profile",
            description="The arithmetic contract. Default: that of the operation.",
            optional=True,
            choices=Choices("ProfileName", tuple(PROFILES), "The arithmetic contract."),
        ),
        replace(SCHEME, description="Replaces the profile's scheme."),
        ROUNDING,
        replace(NAN, default=None, optional=True),
        SATURATE,
        Option(
            name="multiplier",
            kind=Kind.INTEGER,
            description="With `shift`: replaces the multiplier that the scales make, in the scheme's convention.",
            optional=True,
        ),
        Option(name="shift", kind=Kind.INTEGER, description="Of the multiplier.", optional=True),
        *(replace(each, description=f"Replaces the common {each.name}.", examples=()) for each in _TYPES),
    ),
)
_OF_OPERATION: Mapping[Compared, frozenset[str]] = {
    Compared.QUANTIZE: frozenset({"profile", "rounding", "nan", "saturate"}),
    Compared.DEQUANTIZE: frozenset({"profile"}),
    Compared.REQUANTIZE: frozenset({"profile", "scheme", "multiplier", "shift"}),
    Compared.ADD: frozenset({"profile", "scheme"}),
}


def _about(side: str, own: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Point at the type that an error is about: the rule's own, or that of both."""

    def place(name: str) -> str:
        return f"/{side}/{name}" if name in own else f"/{name}"

    rhs = "rhs_type" if "rhs_type" in own else "input_type"
    return pointers_for_sides(
        input=place("input_type"), lhs=place("input_type"), rhs=place(rhs), output=place("output_type")
    )


class _Compared:
    """What a call compares: options and types of both rules, checked."""

    def __init__(self, call: OperationCall) -> None:
        self.operation: Compared = call.options["operation"]
        self._options = call.options
        self._limits = call.limits
        seconds = call.limits.compute_seconds
        self.compared = MAX_INPUTS if seconds == inf else int(seconds * _INPUTS_OF_SECOND)

    @property
    def sides(self) -> tuple[str, ...]:
        """The rules that are given by options."""
        return ("first",) if self._options["module"] is not None else ("first", "second")

    def own(self, side: str) -> Mapping[str, Any]:
        """Return the options of one rule. Raise ParameterError for one that the operation has not."""
        given: Mapping[str, Any] = self._options[side] or {}
        known = _OF_OPERATION[self.operation] | {"input_type", "output_type"}
        known |= {"rhs_type"} if self.operation is Compared.ADD else set()
        for name in given:
            if name not in known:
                detail = f"a rule of {self.operation} has no {name}; it has: {', '.join(sorted(known))}"
                raise ParameterError(detail, pointer=f"/{side}/{name}")
        return given

    def type_of(self, side: str, name: str) -> Type | None:
        """Return the type that a rule has, its own or that of both."""
        found: Type | None = self.own(side).get(name, self._options[name])
        return found

    def needed_type(self, side: str, name: str) -> Type:
        """Return a type that has to be there. Raise ParameterError."""
        if (found := self.type_of(side, name)) is None:
            detail = f"{self.operation} needs {name}, of both rules or of each"
            raise InvalidRequestError.of_field(f"/{name}", "missing", detail)
        return found

    def rule(self, side: str) -> Rule:
        """Return one rule. Raise what its plan raises."""
        own, source = self.own(side), self.needed_type(side, "input_type")
        if self._options["rhs_type"] is not None:
            raise ParameterError(f"{self.operation} has no second operand", pointer="/rhs_type")
        with default_pointer(f"/{side}"), _about(side, own):
            if self.operation is Compared.DEQUANTIZE:
                profile = own.get("profile", DEFAULT_PROFILES[ConversionName.DEQUANTIZE])
                return dequantization(source, self.type_of(side, "output_type"), profile)
            target = self.needed_type(side, "output_type")
            if self.operation is Compared.REQUANTIZE:
                profile = own.get("profile", DEFAULT_PROFILES[ConversionName.REQUANTIZE])
                return requantization(
                    source, target, profile, scheme=own.get("scheme"), multiplier=_multiplier(own)
                )  # fmt: skip
            profile = own.get("profile", DEFAULT_PROFILES[ConversionName.QUANTIZE])
            chosen = {name: own[name] for name in ("rounding", "nan", "saturate") if name in own}
            return quantization(source, target, profile, **chosen)

    def decided(self, first: Rule, second: Rule | None) -> Equivalence:
        """Compare two rules, or one with the function of the module."""
        if second is None:
            options = self._options
            second = function_rule(options["module"], options["function"], first, self._limits.module)
        limit, workers = self.compared, self._limits.threads
        if limit < MAX_INPUTS:
            # Within a request, whose time is that of its thread.
            workers = 1
            limit //= 1 if self._options["module"] is None else _INPUTS_OF_FUNCTION
        return compare(first, second, progress=progress_report.get(), workers=workers, limit=limit)

    def additions(self) -> tuple[list[AddPlan], list[str]]:
        """Return two additions, and what they are in words. Raise what their plans raise."""
        plans, texts = [], []
        for side in self.sides:
            own, lhs = self.own(side), self.needed_type(side, "input_type")
            rhs = self.type_of(side, "rhs_type") or lhs
            target = self.needed_type(side, "output_type")
            profile = own.get("profile", "litert")
            with default_pointer(f"/{side}"), _about(side, own):
                plans.append(addition(lhs, rhs, target, profile, scheme=own.get("scheme")))
            given = "".join(f", {name} {own[name]}" for name in ("scheme",) if name in own)
            texts.append(f"add, profile {profile}{given}")
        return plans, texts

    def schemes(self) -> tuple[str, str]:
        """Return the schemes that are compared for many multipliers. Raise ParameterError unless both are named."""
        names: list[str] = [self.own(side).get("scheme", "") for side in self.sides]
        if self.operation is not Compared.REQUANTIZE or len(names) != 2 or "" in names:
            detail = "multipliers are for two requantizations, each of which names its scheme"
            raise ParameterError(detail, pointer="/multipliers")
        return names[0], names[1]


def _multiplier(own: Mapping[str, Any]) -> Multiplier | None:
    if ("multiplier" in own) != ("shift" in own):
        raise ParameterError("multiplier and shift come together")
    return Multiplier(own["multiplier"], own["shift"]) if "shift" in own else None


def _plan(call: OperationCall) -> PlannedWork:
    asked = _Compared(call)
    wants, with_smt2 = call.options["certificate"], call.options["smt2"]
    multipliers = given_multipliers(call)
    if multipliers is not None:
        schemes = asked.schemes()
        if wants or with_smt2:
            detail = "a certificate or a formula is of two rules: ask for one multiplier in first and in second"
            raise ParameterError(detail, pointer="/certificate" if wants else "/smt2")
        types = asked.needed_type("first", "input_type"), asked.needed_type("first", "output_type")
        run = _runs(lambda: _of_multipliers(compare_schemes(*schemes, *types, multipliers)))
    elif asked.operation is Compared.ADD:
        if wants or with_smt2 or call.options["module"] is not None:
            name = "certificate" if wants else "smt2" if with_smt2 else "module"
            raise UnsupportedError(f"two additions are compared without {name}", pointer=f"/{name}")
        plans, texts = asked.additions()
        run = _runs(lambda: _of_additions(compare_additions(plans[0], plans[1]), texts))
    else:
        first, *others = map(asked.rule, asked.sides)
        second = others[0] if others else None
        run = _runs(lambda: _of_rules(asked.decided(first, second), wants, with_smt2))
    bytes_ = _BYTES_OF_CERTIFICATE if wants else _BYTES
    return PlannedWork(operands={}, run=run, byte_count=bytes_, searches=True)


def _runs(report: Callable[[], dict[str, Any]]) -> Callable[[Mapping[str, Array]], Result]:
    return lambda _: Result(report=report())


def _counts(decided: Equivalence | AdditionEquivalence) -> dict[str, Any]:
    names = ("inputs", "differing", "only_first", "only_second", "neither")
    return {"equal": decided.equal, **{name: getattr(decided, name) for name in names}}


def _of_rules(decided: Equivalence, wants: bool | None, with_smt2: bool) -> dict[str, Any]:
    said = {
        **_counts(decided),
        "sample": [_difference(decided, each) for each in decided.sample],
        "rules": [decided.first.text, decided.second.text],
        "decided": [_part(each) for each in decided.parts],
    }
    if wants or (wants is None and decided.is_certifiable and _intervals(decided) <= MAX_SHORT):
        with default_pointer("/certificate"):
            said["certificate"] = json.dumps(certificate(decided))
    if with_smt2:
        with default_pointer("/smt2"):
            said["smt2"] = smt2(decided.first, decided.second, "unsat" if decided.equal else "sat")
    return said


def _intervals(decided: Equivalence) -> int:
    return sum(each.common.starts.size for each in decided.parts if each.common is not None)


def _part(found: PartDecision) -> dict[str, Any]:
    tally = found.tally
    differing = tally.differing + tally.only_first + tally.only_second
    return {"name": found.part.name, "method": str(found.method), "inputs": found.part.size, "differing": differing}


def _difference(decided: Equivalence, found: Difference) -> dict[str, Any]:
    said: dict[str, Any] = {"input": found.text}
    if (source := decided.first.source) is not None:
        said = {"input": float_text(source.value(found.code), source), "input_bits": _bits(found.code, source)}
    for side, rule, code in (("first", decided.first, found.first), ("second", decided.second, found.second)):
        if code is None:
            continue
        target = rule.plan.output_type.element
        if isinstance(target, FloatElement):
            said[side], said[f"{side}_bits"] = float_text(target.value(code), target), _bits(code, target)
        else:
            said[side] = str(code)
    return said


def _bits(code: int, element: FloatElement) -> str:
    return f"{code:#0{2 + -(-element.width // 4)}x}"


def _of_additions(decided: AdditionEquivalence, texts: list[str]) -> dict[str, Any]:
    sample = []
    for each in decided.sample:
        outcomes = {"first": each.first, "second": each.second}
        known = {name: str(code) for name, code in outcomes.items() if code is not None}
        sample.append({"input": str(each.lhs), "rhs": str(each.rhs), **known})
    counts = _counts(decided)
    differing = decided.differing + decided.only_first + decided.only_second
    part = {"name": "pairs", "method": str(decided.method), "inputs": decided.inputs, "differing": differing}
    return {**counts, "sample": sample, "rules": texts, "decided": [part]}


def _of_multipliers(decisions: Iterable[MultiplierDecision]) -> dict[str, Any]:
    """Return what is said of many multipliers: the counts are of all inputs of each."""
    listed: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    parts = 0
    counts = dict.fromkeys(("inputs", "differing", "only_first", "only_second", "neither"), 0)
    texts: list[str] = []
    for each in decisions:
        entry: dict[str, Any] = {"multiplier": each.first.multiplier, "shift": each.first.shift}
        if each.second != each.first:
            entry |= {"second_multiplier": each.second.multiplier, "second_shift": each.second.shift}
        if (found := each.equivalence) is None:
            entry["refusal"] = each.refusal
        else:
            differing = found.differing + found.only_first + found.only_second
            entry["differing"] = differing
            counts = {name: count + getattr(found, name) for name, count in counts.items()}
            if differing and not samples:
                samples = [_difference(found, one) for one in found.sample]
                texts = [found.first.text, found.second.text]
            texts = texts or [found.first.text, found.second.text]
            parts += 1
        listed.append(entry)
    differing = counts["differing"] + counts["only_first"] + counts["only_second"]
    part = {"name": "integers", "method": "thresholds", "inputs": counts["inputs"], "differing": differing}
    return {
        "equal": parts > 0 and not differing,
        **counts,
        "sample": samples,
        "rules": texts,
        "decided": [part] if parts else [],
        "multipliers": listed,
    }


def _count(name: str, description: str) -> Member:
    return Member(name=name, kind=Kind.DECIMAL, description=description)


def _text(name: str, description: str = "") -> Member:
    return Member(name=name, kind=Kind.TEXT, description=description, optional=True)


_BITS = "Its bits, if it is a float."
_REPLY = (
    Member(
        name="equal",
        kind=Kind.BOOLEAN,
        description="Whether no input differs, and both are defined for the same.",
        verdict=True,
    ),
    _count("inputs", "How many there are."),
    _count("differing", "Inputs with two outcomes that are not the same."),
    _count("only_first", "Inputs that only the first rule is defined for."),
    _count("only_second", "Inputs that only the second rule is defined for."),
    _count("neither", "Inputs that neither is defined for."),
    Member(
        name="sample",
        repeated=True,
        title="DifferingInput",
        group_description="An input that is not the same by both rules. An outcome is absent where one is undefined.",
        description="Up to 16 inputs, in ascending order: the first and the last that differ, and some between.",
        members=(
            Member(name="input", kind=Kind.TEXT, description="As stored; of an addition the first operand."),
            _text("input_bits", _BITS),
            _text("rhs", "Of an addition: the second operand."),
            _text("first", "What the first rule gives."),
            _text("first_bits", _BITS),
            _text("second", "What the second rule gives."),
            _text("second_bits", _BITS),
        ),
    ),
    Member(name="rules", kind=Kind.TEXTS, description="Both in words, with their multipliers."),
    Member(
        name="decided",
        repeated=True,
        title="DecidedPart",
        group_description="Inputs that were decided in one way.",
        description="How it was decided: by thresholds, by one formula that both are (formula), by computing every "
        "input (sweep) or every pair, or by reduction of an addition to what becomes of the sum.",
        members=(
            Member(name="name", kind=Kind.TEXT),
            Member(name="method", kind=Kind.TEXT),
            Member(name="inputs", kind=Kind.DECIMAL),
            Member(name="differing", kind=Kind.DECIMAL),
        ),
    ),
    Member(
        name="certificate",
        kind=Kind.TEXT,
        description="A JSON document that proves the counts, if thresholds decided: see certificates.",
        optional=True,
    ),
    Member(
        name="smt2",
        kind=Kind.TEXT,
        description="If requested: the claim as SMT-LIB 2 of bit vectors, to be refuted by a solver.",
        optional=True,
    ),
    Member(
        name="multipliers",
        repeated=True,
        title="ComparedMultiplier",
        group_description="What two schemes make of one multiplier.",
        description="One for each multiplier of the request.",
        members=(
            Member(name="multiplier"),
            Member(name="shift", bits=32),
            Member(name="second_multiplier", description="Of the second scheme, if it is another.", optional=True),
            Member(name="second_shift", description="In its convention.", bits=32, optional=True),
            Member(name="differing", kind=Kind.DECIMAL, description="Inputs that are not the same.", optional=True),
            _text("refusal", "Why one of the schemes has no such multiplier."),
        ),
        optional=True,
    ),
)

EQUIVALENCE = Operation(
    name="equivalence",
    title="Compare two rules for every input",
    group="ops",
    summary="Decide whether two rules give the same for every input, with a certificate.",
    request="An operation, and two rules for it: two profiles or schemes, or one and an MLIR function.",
    source="the systems that the profiles and schemes are named after (docs/certificates.md)",
    inputs=(
        multipliers_input(
            "For many multipliers of the first scheme's convention: for which of them two schemes differ at all.",
            "Multipliers for which two schemes are compared, in the convention of the first.",
            MAX_MULTIPLIERS,
        ),
    ),
    options=(
        Option(
            name="operation",
            description="What both rules are of.",
            choices=Choices("ComparedOperation", tuple(Compared), enumeration=Compared),
        ),
        *_TYPES,
        Option(name="first", kind=Kind.GROUP, description="The first rule.", optional=True, group=RULE),
        Option(name="second", kind=Kind.GROUP, description="The second rule.", optional=True, group=RULE),
        replace(
            MODULE,
            description=f"In the place of the second rule a function on single elements. {MODULE.description}",
            examples=(),
            optional=True,
        ),
        replace(FUNCTION, description="Of the module. Default: main, or the only function with a body."),
        Option(
            name="certificate",
            kind=Kind.BOOLEAN,
            description=f"Whether to give the certificate. Default: if it has at most {MAX_SHORT} intervals.",
            optional=True,
        ),
        Option(
            name="smt2",
            kind=Kind.BOOLEAN,
            description="Whether to give the claim as SMT-LIB. Default: false.",
            default=False,
        ),
    ),
    one_of=(OneOf(names=("second", "module"), code="second_form"),),
    reply=_REPLY,
    reply_title="EquivalenceReply",
    reply_description="The number of inputs that differ, some of them, and how it was decided.",
    plan=_plan,
    example={
        "operation": "requantize",
        "input_type": "!quant.uniform<i32:f32, 0.001>",
        "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
        "first": {"profile": "litert"},
        "second": {"profile": "litert_xnnpack"},
    },
)
