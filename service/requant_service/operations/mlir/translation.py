"""Types as other systems hold them, and back."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from requant.errors import default_pointer, pointer_prefix
from requant.errors.cancellation import checked
from requant.translation import TRANSLATIONS, Subject, translate
from requant.translation.translation import Rounding, TranslationResult, subject_of
from requant_service.http.models import RequestModel
from requant_service.operations.described import check_factors
from requant_service.operations.mlir.translation_call import (
    LitertOperands,
    OnednnOperands,
    OnnxOperands,
    RoundedScale,
    TorchOperands,
    TosaOperands,
    TranslateReply,
    TranslateRequest,
    Translation,
    TranslationSystem,
)
from requant_service.operations.types import check_rank, read_type
from requant_service.runtime.settings import Settings

_MAX_SHOWN = 16
_MODELS: dict[str, type[RequestModel]] = {
    "onnx": OnnxOperands,
    "onednn": OnednnOperands,
    "litert": LitertOperands,
    "torch": TorchOperands,
    "tosa": TosaOperands,
}
# Every scale is read, rounded and printed by each of the systems.
_WRITINGS = 4


def translation_characters(byte_count: int) -> int:
    """Return how many characters of types take as long as the translation of a call of so many bytes."""
    return _WRITINGS * byte_count


def translate_type(call: TranslateRequest, settings: Settings) -> TranslateReply:
    """Translate a quantized type to the operands of other systems, or a system's operands to a type.

    Errors point at the member of the call at fault.
    """
    subject, rounded = _read(call, settings)
    if "rescale_to" in call.model_fields_set:
        target = _type(call.rescale_to, "/rescale_to", settings)
        check_factors(max(len(subject.scales), len(target.scales)), "channels", settings, "/rescale_to")
        subject = Subject(subject.element, subject.shape, target)
    wanted = call.systems if "systems" in call.model_fields_set else list(TranslationSystem)
    return TranslateReply(
        type=subject.text,
        source=TranslationSystem(call.source),
        rounded=_shown(rounded),
        rounded_count=len(rounded),
        translations=[_described(translate(subject, system)) for system in checked(wanted, 1)],
    )


def _type(text: str, pointer: str, settings: Settings) -> Subject:
    type_ = read_type(text, settings.max_type_bytes, pointer)
    with default_pointer(pointer):
        subject = subject_of(type_)
        check_rank("shape", len(subject.shape or ()), settings.max_rank, pointer)
    return subject


def _read(call: TranslateRequest, settings: Settings) -> tuple[Subject, tuple[Rounding, ...]]:
    """Return the type that a request is about, and the scales of its operands that were rounded."""
    if "type" in call.model_fields_set:
        return _type(call.type, "/type", settings), ()
    operands = call.given(call.source)[call.source].given()
    if call.source == "tosa" and "input" in operands:
        operands["input"] = _type(operands["input"], "/tosa/input", settings)
        check_factors(len(operands["input"].scales), "channels", settings, "/tosa/input")
    if call.source == "tosa":
        check_factors(len(operands.get("multiplier", ())), "channels", settings, "/tosa/multiplier")
    shape = tuple(call.shape) if "shape" in call.model_fields_set else None
    check_rank("shape", len(shape or ()), settings.max_rank, "/shape")
    with pointer_prefix(f"/{call.source}"):
        return TRANSLATIONS[call.source].read(operands, shape)


def _shown(rounded: Sequence[Rounding]) -> list[RoundedScale]:
    return [
        RoundedScale(index=each.index, scale=_text(each.scale), becomes=_text(each.becomes))
        for each in rounded[:_MAX_SHOWN]
    ]


def _text(number: float | Fraction) -> str:
    """Return text that reads back to the number."""
    return str(number) if isinstance(number, Fraction) else repr(number)


def _described(answer: TranslationResult) -> Translation:
    written = answer.written
    fields: dict[str, Any] = {"rounded": [], "rounded_count": 0, "losses": []}
    if written is None:
        fields["reason"] = answer.reason
    else:
        fields |= {"rounded": _shown(written.rounded), "rounded_count": len(written.rounded)}
        fields["losses"] = list(written.losses)
        if written.operators:
            fields["operators"] = list(written.operators)
        if written.opset is not None:
            fields["opset"] = written.opset
        model = _MODELS.get(answer.system)
        if model is None:
            fields["type"] = written.operands["type"]
        else:
            # Made by core from a type that was checked: not validated a second time.
            fields[answer.system] = model.model_construct(**written.operands)
    return Translation(
        system=TranslationSystem(answer.system), expressible=written is not None, exact=answer.exact, **fields
    )
