"""Dense packing: every width, every code, and the bytes as ONNX lays them out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.errors import TensorDataError
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import dense_bytes, dense_width, pack, pack_into, unpack


def test_two_int4_to_a_byte_with_the_first_in_the_low_half() -> None:
    stored = np.array([1, -2, 7, -8, 3], np.int8)
    assert pack(stored, 4).tolist() == [0xE1, 0x87, 0x03]


WIDTHS = [width for width in range(1, 64) if width not in (8, 16, 32)]


def dtype_of(width: int, *, signed: bool) -> np.dtype[Any]:
    """The narrowest integer that numpy has for so many bits."""
    return np.dtype(f"{'i' if signed else 'u'}{next(size for size in (1, 2, 4, 8) if width <= 8 * size)}")


def digits(codes: Iterable[int], width: int) -> bytes:
    """The byte string is one little-endian number, and code k its digit k in base 2^width."""
    number, count = 0, 0
    for count, code in enumerate(codes, 1):
        number |= (code % (1 << width)) << (width * (count - 1))
    return number.to_bytes(-(-count * width // 8), "little")


@given(width=st.sampled_from(WIDTHS), signed=st.booleans(), data=st.data())
def test_packing_against_one_large_integer(width: int, signed: bool, data: st.DataObject) -> None:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    ends = st.sampled_from([low, low + 1, -1 if signed else high - 1, 0, 1 if high else 0, high])
    codes = data.draw(st.lists(ends | st.integers(low, high), max_size=70))
    dtype = dtype_of(width, signed=signed)
    packed = pack(np.array(codes, dtype), width)
    assert packed.tobytes() == digits(codes, width)
    assert unpack(packed, width, len(codes), dtype).tolist() == codes


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_and_length(width: int) -> None:
    """Of codes with all bits drawn, those above the width do not count. Nothing is written beyond the last byte."""
    random = np.random.default_rng(width)
    for signed in (False, True):
        dtype = dtype_of(width, signed=signed)
        for count in (0, 1, 2, 7, 8, 9, 31, 32, 33, 1001):
            stored = random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
            around = np.full(dense_bytes(count, width) + 2, 0xA5, np.uint8)
            pack_into(around[1:-1], stored, width)
            assert around[0] == around[-1] == 0xA5
            assert around[1:-1].tobytes() == digits(stored.tolist(), width)
            again = unpack(around[1:-1], width, count, dtype).tolist()
            half = 1 << (width - 1)
            assert again == [
                (code + half) % (2 * half) - half if signed else code % (2 * half) for code in stored.tolist()
            ]


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("i1", 1), ("ui4", 4), ("i7", 7), ("i8", None), ("i9", 9), ("i12", 12), ("i16", None), ("ui24", 24),
        ("i31", 31), ("i32", None), ("i33", 33), ("i63", 63), ("i64", None), ("f4E2M1FN", 4), ("f16", None),
        ("bf16", None), ("f32", None), ("f64", None), ("!quant.uniform<i12:f32, 0.5>", 12),
        ("!quant.uniform<u24:f32, 0.5>", 24), ("!quant.uniform<i32:f32, 0.5>", None),
    ],
)  # fmt: skip
def test_what_has_a_dense_form(text: str, width: int | None) -> None:
    tensor = parse_type(f"tensor<4x{text}>")
    assert isinstance(tensor, TensorType)
    assert dense_width(tensor) == width


@pytest.mark.parametrize("elements", [31, 32, 33, 63, 64, 65, 1000, 4097])
def test_half_bytes_of_many_numbers(elements: int) -> None:
    """Whole vectors of them, and what is left."""
    for dtype in (np.int8, np.uint8):
        stored = (np.random.default_rng(8).integers(0, 16, elements) - 8 * (dtype is np.int8)).astype(dtype)
        even = np.append(stored, dtype(0))[: 2 * dense_bytes(elements, 4)]
        packed = pack(stored, 4)
        assert packed.tolist() == ((even[::2] & 15) | ((even[1::2] & 15).astype(np.uint8) << 4)).tolist()
        assert unpack(packed, 4, elements, np.dtype(dtype)).tolist() == stored.tolist()


@pytest.mark.parametrize(("packed", "elements"), [([1, 2, 3], 4), ([1], 4), ([], 1), ([0, 0x10], 3)])
def test_bytes_that_are_not_the_numbers(packed: list[int], elements: int) -> None:
    with pytest.raises(TensorDataError):
        unpack(np.array(packed, np.uint8), 4, elements, np.dtype(np.int8))
