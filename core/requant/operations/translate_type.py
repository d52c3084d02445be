"""A type translated: what other systems hold in its place, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any

from requant.description import (
    Array,
    Choices,
    Kind,
    Limits,
    Member,
    OneOf,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Work,
)
from requant.errors import InvalidRequestError, LimitError, default_pointer, pointer_prefix
from requant.errors.cancellation import checked
from requant.mlir.parser import MAXIMUM_RANK
from requant.mlir.types import Type
from requant.translation import TRANSLATIONS, Subject, TranslationResult, translate
from requant.translation.translation import Rounding, subject_of


class TranslationSystem(StrEnum):
    """The systems whose operands a type is translated to. Each has a file of its own in `requant.translation`."""

    MLIR = "mlir"
    STABLEHLO = "stablehlo"
    ONNX = "onnx"
    ONEDNN = "onednn"
    LITERT = "litert"
    TORCH = "torch"
    TOSA = "tosa"


_GROUPS = {name: each.operands for name, each in TRANSLATIONS.items() if each.operands is not None}
_MAX_SHOWN = 16
# Every scale is read, rounded and printed by each of the systems.
_READINGS = 4


def _plan(call: OperationCall) -> PlannedWork:
    systems = call.options["systems"]
    if call.options["type"] is not None and call.options["shape"] is not None:
        detail = "the shape is part of the type: write tensor<...> around it"
        raise InvalidRequestError.of_field("", "translation_shape", detail)
    if systems is not None and len(set(systems)) != len(systems):
        raise InvalidRequestError.of_field("", "translation_systems", "systems has one of them twice")
    source, subject, rounded = _source(call)
    if (target := call.options["rescale_to"]) is not None:
        rescaled = _subject(target, "/rescale_to", call.limits)
        _check_channels(max(len(subject.scales), len(rescaled.scales)), call.limits, "/rescale_to")
        subject = Subject(subject.element, subject.shape, rescaled)
    wanted = TranslationSystem if systems is None else systems

    def run(_: Mapping[str, Array]) -> Result:
        said = {
            "type": subject.text,
            "source": source,
            **_shown(rounded),
            "translations": [_described(translate(subject, str(system))) for system in checked(list(wanted), 1)],
        }
        return Result(report=said)

    return PlannedWork(operands={}, run=run, byte_count=0)


def _source(call: OperationCall) -> tuple[str, Subject, Sequence[Rounding]]:
    """Return the system that the type is from, the type, and the scales of its operands that were rounded."""
    options, limits = call.options, call.limits
    if (type_ := options["type"]) is not None:
        return TranslationSystem.MLIR, _subject(type_, "/type", limits), ()
    source = next(name for name in _GROUPS if options[name] is not None)
    operands = dict(options[source])
    if "input" in operands:
        operands["input"] = _subject(operands["input"], f"/{source}/input", limits)
        _check_channels(len(operands["input"].scales), limits, f"/{source}/input")
    # A multiplier is a fraction, which takes long to compute with.
    _check_channels(len(operands.get("multiplier", ())), limits, f"/{source}/multiplier")
    shape = options["shape"]
    limits.check_rank(len(shape or ()), "/shape")
    with pointer_prefix(f"/{source}"):
        return source, *TRANSLATIONS[source].read(operands, shape)


def _subject(type_: Type, pointer: str, limits: Limits) -> Subject:
    with default_pointer(pointer):
        subject = subject_of(type_)
    limits.check_rank(len(subject.shape or ()), pointer)
    return subject


def _check_channels(count: int, limits: Limits, pointer: str) -> None:
    limit = limits.factors
    if count > limit:
        raise LimitError(f"there are {count} channels; the limit is {limit}", limit=limit, pointer=pointer)


def _shown(rounded: Sequence[Rounding]) -> dict[str, Any]:
    """Return the first scales that were rounded, and how many there are."""
    first = [
        {"index": each.index, "scale": _text(each.scale), "becomes": _text(each.becomes)}
        for each in rounded[:_MAX_SHOWN]
    ]
    return {"rounded": first, "rounded_count": len(rounded)}


def _text(number: float | Fraction) -> str:
    """Return text that reads back to the number."""
    return str(number) if isinstance(number, Fraction) else repr(number)


def _described(answer: TranslationResult) -> dict[str, Any]:
    """Return a translation as a member of the reply, in the order of its description."""
    written, system = answer.written, answer.system
    said = {"system": system, "expressible": written is not None, "exact": answer.exact}
    if written is None:
        return said | {"reason": answer.reason, **_shown(()), "losses": []}
    said |= {**_shown(written.rounded), "losses": list(written.losses)}
    if written.operators:
        said["operators"] = list(written.operators)
    if written.opset is not None:
        said["opset"] = written.opset
    if system not in _GROUPS:
        return said | written.operands
    ordered = (each.name for each in _GROUPS[system].options)
    return said | {system: {name: written.operands[name] for name in ordered if name in written.operands}}


def _group(system: str, said: str = "") -> Option:
    """Return the operands of a system as an option. `said`: what a model says of them, where that differs."""
    group = _GROUPS[system]
    return Option(
        name=system,
        kind=Kind.GROUP,
        description="",
        model_description=f"In the place of type: {said or group.description} A JSON object as text, as "
        "/v1/types/translate takes it.",
        optional=True,
        group=group,
    )


def _rounded(description: str) -> tuple[Member, Member]:
    return (
        Member(
            name="rounded",
            description=description,
            repeated=True,
            title="RoundedScale",
            group_description="A scale that the system rounds.",
            members=_ROUNDED_SCALE,
        ),
        Member(name="rounded_count", description="The total number.", bits=32),
    )


_SYSTEM = Choices.of(TranslationSystem)
_ROUNDED_SCALE = (
    Member(name="index", description="Its index among the scales.", bits=32),
    Member(
        name="scale",
        kind=Kind.TEXT,
        description="The scale as shortest decimal text; a quotient of scales as numerator/denominator.",
    ),
    Member(
        name="becomes",
        kind=Kind.TEXT,
        description="The exact rounded value: decimal text that reads back to it, or a fraction.",
    ),
)
_TRANSLATION = (
    Member(name="system", kind=Kind.TEXT, choices=_SYSTEM),
    Member(name="expressible", kind=Kind.BOOLEAN),
    Member(name="exact", kind=Kind.BOOLEAN, description="Whether the operands express everything in the type."),
    Member(name="reason", kind=Kind.TEXT, description="Why the system has no operands for the type.", optional=True),
    *_rounded("The first 16 scales that the system cannot represent exactly."),
    Member(name="losses", kind=Kind.TEXTS, description="What else of the type the operands cannot express."),
    Member(
        name="operators",
        kind=Kind.TEXTS,
        description="The operators that accept these operands, if not all do.",
        optional=True,
    ),
    Member(name="opset", description="onnx: the first opset that has them.", optional=True, bits=32),
    Member(name="type", kind=Kind.TEXT, description="mlir and stablehlo: the text.", optional=True),
    *(Member(name=name, kind=Kind.GROUP, optional=True, group=group) for name, group in _GROUPS.items()),
)

TRANSLATE_TYPE = Operation(
    name="translate_type",
    path="types/translate",
    request_title="TranslateRequest",
    title="Translate a type",
    group="types",
    summary="Translate a quantized type to the operands of other systems, or a system's operands to a type.",
    request="A quantized type, or a system's operands for one, and the systems to translate to.",
    source="the systems themselves (docs/translation.md)",
    inputs=(),
    options=(
        Option(
            name="type",
            kind=Kind.TYPE,
            description="MLIR text: !quant.uniform<...>, or a tensor of it.",
            optional=True,
            examples=("tensor<4x64x!quant.uniform<i8:f32:0, {0.5:3, 0.25, 0.125, 1.0}>>",),
        ),
        _group("onnx", "x_scale and x_zero_point of DequantizeLinear, and related attributes."),
        _group("onednn"),
        _group("litert"),
        _group("torch", "Parameters of a torch tensor."),
        _group("tosa", "Zero points, and multipliers and shifts of a RESCALE."),
        Option(
            name="shape",
            kind=Kind.INTEGERS,
            description="With operands: the shape of the tensor, if known.",
            model_description="With operands: the shape of the tensor, if known, as a JSON list in text.",
            optional=True,
            lowest=0,
            max_length=MAXIMUM_RANK,
        ),
        Option(
            name="rescale_to",
            kind=Kind.TYPE,
            description="MLIR text: the output type of TOSA's RESCALE, for multipliers and shifts.",
            optional=True,
        ),
        Option(
            name="systems",
            kind=Kind.TEXTS,
            description="The systems to translate to, each at most once. Default: all.",
            model_description="Which systems are answered for, a JSON list as text, of "
            f"{', '.join(TranslationSystem)}. Default: all.",
            optional=True,
            max_length=16,
            choices=_SYSTEM,
        ),
    ),
    one_of=(OneOf(names=("type", *_GROUPS), code="translation_source"),),
    reply=(
        Member(name="type", kind=Kind.TEXT, description="Canonical text; a tensor type if the shape is known."),
        Member(name="source", kind=Kind.TEXT, description="The operands it was read from.", choices=_SYSTEM),
        *_rounded("The first 16 given scales that their type cannot represent exactly."),
        Member(
            name="translations",
            description="One per requested system, in order.",
            repeated=True,
            title="Translation",
            group_description="The translation to one system.",
            members=_TRANSLATION,
        ),
    ),
    reply_title="TranslateReply",
    reply_description="The type, and each system's operands for it.",
    plan=_plan,
    example={"type": "tensor<4x64x!quant.uniform<i8:f32:0, {0.5:3, 0.25, 0.125, 1.0}>>"},
    work=Work.TEXTS,
    readings=_READINGS,
    model_summary="Translate a quantized type to the operands of other systems, or a system's operands to a type. The "
    "reply has the parameters type, source, rounded_count, and as JSON text rounded and translations.",
)
