"""The cases of a pack: each an operation of a profile, or requantization by a scheme, with the vectors of two types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from requant.errors import PreconditionError, TypeFitError, UnsupportedError
from requant.errors.names import entry_named
from requant.operations.vectors import MadeVectors, VectorsCall, make_vectors, read_element_type
from requant.profiles import PROFILES
from requant.schemes import SCHEMES

COUNT = 256
"""The vectors of a case."""
NAMES = tuple(dict.fromkeys((*PROFILES, *SCHEMES)))
"""The names of all packs: profiles, and schemes that no profile is named after."""

_INTEGERS = ("i8", "ui8", "i16", "i4")
_FLOATS = (
    "f16", "bf16", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN", "f8E8M0FNU",
)  # fmt: skip
_PAIRS = (
    *(("quantize", "f32", each) for each in (*_INTEGERS, *_FLOATS)),
    *(("dequantize", each, "") for each in _INTEGERS),
    *(("dequantize", each, "f32") for each in _FLOATS),
    *(("requantize", *each) for each in (("i32", "i8"), ("i32", "ui8"), ("i32", "i16"), ("i8", "i8"), ("i16", "i8"))),
)
_REFUSED = (UnsupportedError, TypeFitError, PreconditionError)


@dataclass(frozen=True, slots=True)
class PackCase:
    """Vectors under a name that is that of a folder."""

    name: str
    made: MadeVectors


def cases_of(name: str) -> Iterator[PackCase]:
    """Yield the cases of a profile, or of a scheme that is none. What it refuses has none. Raise UnknownNameError."""
    entry_named(dict.fromkeys(NAMES), name, "profile or scheme")
    profile, scheme = (name, "") if name in PROFILES else ("", name)
    for operation, source, target in _PAIRS:
        if name not in PROFILES and operation != "requantize":
            continue
        call = VectorsCall(
            operation=operation, input_type=source, output_type=target, profile=profile, scheme=scheme, count=COUNT
        )
        try:
            made = make_vectors(call, read_element_type)
        except _REFUSED:
            continue
        yield PackCase("-".join(each for each in (operation, source, target) if each), made)
