"""Writes the header of a GGUF file of version 3."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from requant.checkpoint.gguf.header import UINT32, Key, TensorInfo, aligned


def u32_value(number: int) -> bytes:
    """Return the value of a key of type u32."""
    return struct.pack("<II", UINT32, number)


def header_bytes(keys: Sequence[Key], tensors: Sequence[TensorInfo], alignment: int) -> bytes:
    """Return the header with its zero padding, up to the start of the data."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    for key in keys:
        parts += [_string(key.name), key.value]
    for info in tensors:
        rank = len(info.dimensions)
        numbers = struct.pack(f"<I{rank}QIQ", rank, *info.dimensions, info.type.number, info.offset)
        parts += [_string(info.name), numbers]
    head = b"".join(parts)
    return head.ljust(aligned(len(head), alignment), b"\0")


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded
