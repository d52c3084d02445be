"""The header of a safetensors file: u64 length, JSON, then the tensors' bytes without a gap.

Source: https://github.com/huggingface/safetensors, version 0.8 (`safetensors/src/tensor.rs`).
"""

from __future__ import annotations

from dataclasses import dataclass


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
