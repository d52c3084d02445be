"""Dense packing: every width, every code, and the bytes as ONNX lays them out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import TensorDataError
from core.packing import dense_bytes, pack, unpack


def test_two_int4_to_a_byte_with_the_first_in_the_low_half() -> None:
    stored = np.array([1, -2, 7, -8, 3], np.int8)
    assert pack(stored, 4).tolist() == [0xE1, 0x87, 0x03]


@given(width=st.integers(1, 7), signed=st.booleans(), data=st.data())
def test_packing_against_one_large_integer(width: int, signed: bool, data: st.DataObject) -> None:
    """The byte string is one little-endian number, and code k its digit k in base 2^width."""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    codes = data.draw(st.lists(st.integers(low, high), max_size=70))
    dtype = np.dtype(np.int8 if signed else np.uint8)
    number = sum((code % (1 << width)) << (width * index) for index, code in enumerate(codes))
    packed = pack(np.array(codes, dtype), width)
    assert packed.tobytes() == number.to_bytes(dense_bytes(len(codes), width), "little")
    assert unpack(packed, width, len(codes), dtype).tolist() == codes


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
