"""Small GGUF files, written from gguf.md; nothing of ours."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(encoded)) + encoded


def u32(value: int) -> bytes:
    return struct.pack("<II", 4, value)


def string(value: str) -> bytes:
    return struct.pack("<I", 8) + text(value)


def strings(values: Sequence[str]) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


@dataclass
class Tensor:
    """`dimensions`: innermost first. `offset`: None for the next one."""

    name: str | bytes
    dimensions: Sequence[int]
    type: int
    data: bytes
    offset: int | None = None


@dataclass
class GgufFile:
    """The parts of a file, each of which a test may get wrong."""

    tensors: list[Tensor] = field(default_factory=list)
    keys: list[tuple[str, bytes]] = field(default_factory=lambda: [("general.architecture", string("llama"))])
    alignment: int = 32
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    key_count: int | None = None

    def to_bytes(self) -> bytes:
        counts = (
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.keys) if self.key_count is None else self.key_count,
        )
        head = self.magic + struct.pack("<IQQ", self.version, *counts)
        head += b"".join(text(name) + value for name, value in self.keys)
        data = b""
        for tensor in self.tensors:
            offset = len(data) if tensor.offset is None else tensor.offset
            numbers = [len(tensor.dimensions), *tensor.dimensions, tensor.type, offset]
            head += text(tensor.name) + struct.pack(f"<I{len(tensor.dimensions)}QIQ", *numbers)
            data += tensor.data + bytes(-len(tensor.data) % self.alignment)
        return head + bytes(-len(head) % self.alignment) + data


def legacy_importance(
    sums: Mapping[str, NDArray[Any]], count: int, chunks: int | None = None, dataset: str | None = None
) -> bytes:
    """An importance matrix in the older form, with one count for all."""
    parts = [struct.pack("<i", len(sums))]
    for name, values in sums.items():
        parts += [struct.pack("<i", len(name)), name.encode(), struct.pack("<ii", count, values.size), values.tobytes()]
    if chunks is not None:
        parts.append(struct.pack("<i", chunks))
    if dataset is not None:
        parts += [struct.pack("<i", len(dataset)), dataset.encode()]
    return b"".join(parts)
