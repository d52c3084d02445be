"""MLIR: the type itself, as canonical text; StableHLO: the same text, where it is one of its types ("Types")."""

from __future__ import annotations

from typing import Any

from requant.errors import UnsupportedError
from requant.mlir import parse_type
from requant.mlir.stablehlo import stablehlo_reason
from requant.translation.translation import Read, Subject, SystemTranslation, Written, subject_of


def _write(subject: Subject) -> Written:
    return Written({"type": subject.text})


def read_text(operands: dict[str, Any], shape: tuple[int, ...] | None) -> Read:
    """Return the type of a text. Its own shape is the one that holds."""
    return subject_of(parse_type(operands["type"])), ()


MLIR = SystemTranslation(
    name="mlir",
    summary="The type in canonical text.",
    source="MLIR quant dialect, LLVM 24",
    notes=("Every uniform type is one of MLIR.",),
    write=_write,
    read=read_text,
)


def _write_stablehlo(subject: Subject) -> Written:
    if reason := stablehlo_reason(subject.type):
        raise UnsupportedError(reason)
    return Written({"type": subject.text})


STABLEHLO = SystemTranslation(
    name="stablehlo",
    summary="The same text, where StableHLO has the type.",
    source="StableHLO specification 1.20",
    notes=("Storage of 2, 4, 8, 16 or 32 bits, per tensor or per axis, zero points within the storage bounds.",),
    write=_write_stablehlo,
    read=read_text,
)
