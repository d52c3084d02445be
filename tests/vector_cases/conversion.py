"""What every case of the vectors is turned into, and how its types are written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VECTORS = Path(__file__).parents[1] / "vectors"
Array = NDArray[Any]

STORAGE = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32"}
STORAGE |= {"int4": "i4", "uint4": "u4", "int2": "i2", "uint2": "u2", "quint8": "u8", "qint8": "i8", "qint32": "i32"}
STORAGE |= {"s8": "i8", "f8_e4m3": "f8E4M3FN", "f8_e5m2": "f8E5M2", "float8e4m3fn": "f8E4M3FN"}
STORAGE |= {"float8e4m3fnuz": "f8E4M3FNUZ", "float8e5m2": "f8E5M2", "float8e5m2fnuz": "f8E5M2FNUZ"}
STORAGE |= {name: name for name in ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "i32")}


def storage_dtype(storage: str) -> str:
    """How stored numbers travel: in the next wider integer; small floats as bytes."""
    if storage.startswith("f"):
        return "|u1"
    width = next(width for width in (1, 2, 4, 8) if int(storage[1:]) <= 8 * width)
    return f"{'|' if width == 1 else '<'}{storage[0]}{width}"


@dataclass(frozen=True)
class Conversion:
    """One conversion: the types, the input, and the output's bits or the code of the error that is due.

    `options` are further fields of the request: `saturate`, `rounding`, `scheme`, `axis`.
    """

    name: str
    operation: str
    profile: str
    input_type: str
    output_type: str
    values: Array
    expected: Array | None
    error: str | None = None
    multipliers: tuple[tuple[int, int], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def casts(self) -> bool:
        """Whether it is a cast between floats, where what a NaN gives depends on its bits."""
        return self.operation != "requantize" and "!quant" not in self.input_type + self.output_type


@dataclass(frozen=True)
class Derivation:
    """One multiplier: the factor, and multiplier and shift or the code of the error that is due.

    In the place of the factor there may be `scales`: the input's, the other operand's or nothing, and the output's.
    """

    name: str
    scheme: str
    factor: str
    multiplier: int = 0
    shift: int = 0
    error: str | None = None
    scales: tuple[str, str, str] | None = None


@dataclass
class Quantized:
    """Writes `!quant.uniform` text."""

    storage: str
    scales: Sequence[float] = (1.0,)
    zero_points: Sequence[int] = (0,)
    axis: int | None = None
    expressed: str = "f32"
    parameters: list[str] = field(init=False)

    def __post_init__(self) -> None:
        zero_points = list(self.zero_points) * (len(self.scales) if len(self.zero_points) == 1 else 1)
        self.parameters = [f"{s:.17e}:{z}" for s, z in zip(self.scales, zero_points, strict=True)]

    def __str__(self) -> str:
        storage = STORAGE[self.storage]
        if self.axis is None:
            return f"!quant.uniform<{storage}:{self.expressed}, {self.parameters[0]}>"
        return f"!quant.uniform<{storage}:{self.expressed}:{self.axis}, {{{', '.join(self.parameters)}}}>"

    def tensor(self, *shape: int) -> str:
        return f"tensor<{''.join(f'{size}x' for size in shape)}{self}>"

    @property
    def dtype(self) -> str:
        return storage_dtype(STORAGE[self.storage])


@cache
def load(name: str) -> Any:
    """Read one file of vectors."""
    return json.loads((VECTORS / f"{name}.json").read_text())


def floats(patterns: Sequence[str]) -> Array:
    """f32 values of bit patterns in hexadecimal."""
    return np.array([int(pattern, 16) for pattern in patterns], "<u4").view("<f4")


def plain(element: str, *shape: int) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"
