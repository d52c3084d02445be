"""Quantized types as other systems hold their parameters, and back: one file for each system.

`translate` writes a type in a system's operands, or says why that system cannot hold it; each file also reads its
system's operands back as a type. No scale is rounded without being reported.
"""

from __future__ import annotations

from requant.errors import UnsupportedError
from requant.translation import litert, mlir, onednn, onnx, torch, tosa
from requant.translation.translation import Subject, SystemTranslation, TranslationResult, Written

TRANSLATIONS: dict[str, SystemTranslation] = {
    each.name: each
    for each in (
        mlir.MLIR,
        mlir.STABLEHLO,
        onnx.TRANSLATION,
        onednn.TRANSLATION,
        litert.TRANSLATION,
        torch.TRANSLATION,
        tosa.TRANSLATION,
    )
}


def translate(subject: Subject, system: str) -> TranslationResult:
    """Return the system's operands for a type, or the reason why it has none."""
    translation = TRANSLATIONS[system]
    try:
        return TranslationResult(system, translation.write(subject))
    except UnsupportedError as error:
        return TranslationResult(system, None, error.detail)


__all__ = ["TRANSLATIONS", "Subject", "SystemTranslation", "TranslationResult", "Written", "translate"]
