"""StableHLO: the same text, where it is one of its types (StableHLO specification, "Types")."""

from __future__ import annotations

from requant.errors import UnsupportedError
from requant.mlir.stablehlo import stablehlo_reason
from requant.translation.mlir import read_text
from requant.translation.translation import Subject, SystemTranslation, Written


def _write(subject: Subject) -> Written:
    if reason := stablehlo_reason(subject.type):
        raise UnsupportedError(reason)
    return Written({"type": subject.text})


TRANSLATION = SystemTranslation(
    name="stablehlo",
    summary="The same text, where StableHLO has the type.",
    source="StableHLO specification 1.20",
    notes=("Storage of 2, 4, 8, 16 or 32 bits, per tensor or per axis, zero points within the storage bounds.",),
    write=_write,
    read=read_text,
)
