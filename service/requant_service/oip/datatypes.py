"""The protocol's datatypes: how each is kept in an array, and which MLIR type it means when the request names none.

BF16 is in no table of the REST protocol, but servers and clients use it. BYTES is not a number and not served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.errors import InvalidRequestError
from requant.errors.names import unknown_name
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.mlir.types import ElementType


@dataclass(frozen=True, slots=True)
class Datatype:
    """One datatype. `dtype` is little-endian; BOOL is a byte that is 0 or 1, BF16 its bit pattern."""

    name: str
    dtype: np.dtype[Any]
    element: IntegerElement | FloatElement


def _integer(bits: int, signedness: Signedness) -> Datatype:
    element = IntegerElement(bits, signedness)
    return Datatype(f"{'INT' if element.signed else 'UINT'}{bits}", element.dtype, element)


def _float(name: str, element: str) -> Datatype:
    return Datatype(name, FLOATS[element].tensor_dtype, FLOATS[element])


BOOL = Datatype("BOOL", np.dtype(np.uint8), IntegerElement(1, Signedness.UNSIGNED))
BF16 = _float("BF16", "bf16")

DATATYPES: dict[str, Datatype] = {
    datatype.name: datatype
    for datatype in (
        BOOL,
        *(_integer(bits, Signedness.UNSIGNED) for bits in (8, 16, 32, 64)),
        *(_integer(bits, Signedness.SIGNLESS) for bits in (8, 16, 32, 64)),
        _float("FP16", "f16"),
        _float("FP32", "f32"),
        _float("FP64", "f64"),
        BF16,
    )
}

REALS = ("FP32", "FP16", "BF16", "FP64")
"""Those that hold real numbers, the most usual first."""

STORED = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32")
"""Those that hold stored numbers: every integer storage, and small floats as UINT8."""

NARROW_FLOATS = ("FP16", "BF16")
"""Those that hold floats of 16 bits, to which real numbers are cast."""

_OF_DTYPE = {datatype.dtype: datatype for datatype in DATATYPES.values() if datatype not in (BOOL, BF16)}


def datatype_named(name: str, pointer: str) -> Datatype:
    """Return the datatype of that name, or raise InvalidRequestError listing those that are served."""
    if name not in DATATYPES:
        raise InvalidRequestError.of_field(pointer, "enum", unknown_name("datatype", name, DATATYPES).detail)
    return DATATYPES[name]


def datatype_of(element: ElementType, dtype: np.dtype[Any]) -> Datatype:
    """Return the datatype that elements of a type travel as, kept in an array of `dtype`."""
    return BF16 if element == FLOATS["bf16"] else _OF_DTYPE[dtype]
