"""The order, the offsets and the bytes of a header that is written; the library's own bytes are in `make interop`."""

from __future__ import annotations

import pytest

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.safetensors.writer import head_bytes, layout
from requant.errors import SafetensorsError


def test_the_order_is_by_dtype_and_then_by_name() -> None:
    names = ["b", "a", "aa", "B", "ä", "\U0001f600", "\ufffd"]
    header = layout([(f"{dtype}.{name}", dtype, (8,)) for name in names for dtype in DTYPES])
    expected = [
        f"{dtype}.{name}"
        for dtype in reversed(DTYPES)
        for name in ("B", "a", "aa", "b", "ä", "\ufffd", "\U0001f600")  # by code point, as UTF-8 sorts
    ]
    assert [entry.name for entry in header.tensors] == expected


def test_bytes_of_a_head() -> None:
    """The bytes that safetensors 0.8 writes for these tensors."""
    tensors = [("b", "F32", (2, 3)), ('a"\\\n\x01é', "I8", (4,)), ("z", "I64", ()), ("e", "U8", (0, 3))]
    text = (
        '{"__metadata__":{"format":"pt"},"z":{"dtype":"I64","shape":[],"data_offsets":[0,8]},'
        '"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},'
        '"a\\"\\\\\\n\\u0001é":{"dtype":"I8","shape":[4],"data_offsets":[32,36]},'
        '"e":{"dtype":"U8","shape":[0,3],"data_offsets":[36,36]}}'
    ).encode()
    padded = text + b" " * (-len(text) % 8)
    header = layout(tensors, {"format": "pt"})
    assert head_bytes(header) == len(padded).to_bytes(8, "little") + padded
    assert header.size == 8 + len(padded) + 36
    assert header.tensors[0].begin == 8 + len(padded)


def test_no_tensor() -> None:
    header = layout([])
    assert head_bytes(header) == (8).to_bytes(8, "little") + b"{}      "
    assert header.size == 16


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([("a", "U8", (1,)), ("a", "F32", (1,))], "two tensors would be named 'a'"),
        ([("__metadata__", "U8", (1,))], "two tensors would be named '__metadata__'"),
        ([("a", "F4", (3,))], "does not fill whole bytes"),
    ],
)
def test_is_refused(tensors: list[tuple[str, str, tuple[int, ...]]], message: str) -> None:
    with pytest.raises(SafetensorsError, match=message):
        layout(tensors)
