"""The header of a GGUF file, version 3.

    "GGUF", u32 version, u64 tensors, u64 keys
    keys: name, u32 type of the value, value; an array is u32 type, u64 length, values; a string u64 length, bytes
    tensors: name, u32 rank, u64 dimensions (innermost first), u32 type, u64 offset from the start of the data
    data: at the next multiple of `general.alignment` (32), each tensor at a multiple of it

Numbers are little-endian. Source: ggml's docs/gguf.md and src/gguf.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from requant.checkpoint.gguf.tensor_types import TensorType

DEFAULT_ALIGNMENT = 32
STRING, ARRAY, UINT32 = 8, 9, 4


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and its value as the file has it: the u32 type and what follows."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor. `dimensions`: innermost first. `offset`: in bytes from the start of the data."""

    name: str
    dimensions: tuple[int, ...]
    type: TensorType
    offset: int

    @property
    def elements(self) -> int:
        return prod(self.dimensions)

    @property
    def size(self) -> int:
        return self.type.size(self.elements)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a file holds. `data`: where its tensors begin, in bytes from the start of the file."""

    keys: tuple[Key, ...]
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data: int


def aligned(offset: int, alignment: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-offset // alignment) * alignment
