"""MLIR: the type itself, as canonical text."""

from __future__ import annotations

from typing import Any

from requant.mlir import parse_type
from requant.translation.translation import Read, Subject, SystemTranslation, Written, subject_of


def _write(subject: Subject) -> Written:
    return Written({"type": subject.text})


def read_text(operands: dict[str, Any], shape: tuple[int, ...] | None) -> Read:
    """Return the type of a text. Its own shape is the one that holds."""
    return subject_of(parse_type(operands["type"])), ()


TRANSLATION = SystemTranslation(
    name="mlir",
    summary="The type in canonical text.",
    source="MLIR quant dialect, LLVM 24",
    notes=("Every uniform type is one of MLIR.",),
    write=_write,
    read=read_text,
)
