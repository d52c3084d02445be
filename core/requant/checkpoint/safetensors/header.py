"""The header of a safetensors file: u64 length, JSON, then the tensors' bytes without a gap.

Source: https://github.com/huggingface/safetensors, version 0.8 (`safetensors/src/tensor.rs`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype by its name in the header. `bits`: of one element. `array`: the numpy dtype that its bytes are read as.

    Floats that numpy does not have are read as the bits of unsigned integers. Elements of 4 and 6 bits are packed, and
    are read as bytes. `rank` is the place of the dtype in the order of files that the library writes, ascending.
    """

    name: str
    bits: int
    array: str
    rank: int


_ASCENDING = (
    ("BOOL", 8, "|u1"),
    ("F4", 4, "|u1"),
    ("F6_E2M3", 6, "|u1"),
    ("F6_E3M2", 6, "|u1"),
    ("U8", 8, "|u1"),
    ("I8", 8, "|i1"),
    ("F8_E5M2", 8, "|u1"),
    ("F8_E4M3", 8, "|u1"),
    ("F8_E8M0", 8, "|u1"),
    ("F8_E4M3FNUZ", 8, "|u1"),
    ("F8_E5M2FNUZ", 8, "|u1"),
    ("I16", 16, "<i2"),
    ("U16", 16, "<u2"),
    ("F16", 16, "<u2"),
    ("BF16", 16, "<u2"),
    ("I32", 32, "<i4"),
    ("U32", 32, "<u4"),
    ("F32", 32, "<f4"),
    ("C64", 64, "<c8"),
    ("F64", 64, "<f8"),
    ("I64", 64, "<i8"),
    ("U64", 64, "<u8"),
)

DTYPES: dict[str, Dtype] = {name: Dtype(name, bits, array, rank) for rank, (name, bits, array) in enumerate(_ASCENDING)}
"""By name, in ascending rank."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file. `begin` and `end` are offsets from the start of the file, in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file holds. `tensors` are in the order of their offsets; `size` is that of the whole file in bytes."""

    tensors: tuple[TensorEntry, ...]
    metadata: dict[str, str] | None
    size: int
