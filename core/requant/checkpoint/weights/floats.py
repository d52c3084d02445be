"""The floats of weights and scales: as bits, as the f32 in which their arithmetic is done, and by their codes.

BF16, F16 and F32 here are those of scales, of which there are few. Weights are the matter of
`requant.kernels.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.convert.small_floats import decode_table, small_float
from requant.errors import CheckpointError
from requant.formats.elements import FLOATS
from requant.kernels.convert.floats.f16 import narrow_to_f16, widen_f16
from requant.kernels.jit.jit import Kernel
from requant.plan.float_arrays import narrowed, widen

Array = NDArray[Any]

EPSILON = {"BF16": np.float32(2.0**-7), "F16": np.float32(2.0**-10), "F32": np.float32(2.0**-23)}
"""From 1 to the next number of the dtype: torch.finfo(dtype).eps."""

TORCH_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


class CodeTable(NamedTuple):
    """The codes of a small float, by the byte that holds one, in its lowest bits.

    `values`: f32. `places`: in the order of all values, i16, as `Codes` counts them; that of a NaN is beyond the last.
    `highest`: the place of `largest`.
    """

    values: Array
    places: Array
    highest: int
    largest: float


def _code_table(element_name: str) -> CodeTable:
    element = small_float(element_name)
    codes = np.arange(256) % (1 << element.width)
    magnitudes = (codes & ~element.sign_bit).astype(np.int16)
    places = np.where(codes & element.sign_bit, -magnitudes, magnitudes)
    return CodeTable(decode_table(element_name)[codes], places, element.largest_code, element.largest)


E2M1 = _code_table("f4E2M1FN")
E2M3 = _code_table("f6E2M3FN")
E3M2 = _code_table("f6E3M2FN")
E4M3 = _code_table("f8E4M3FN")
E5M2 = _code_table("f8E5M2")
UNSIGNED = np.arange(256, dtype=np.float32)
"""The values of unsigned integers, by their bytes."""
SIGNED = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)
"""The values of signed integers, by their bytes."""
E8M0_VALUES = decode_table("f8E8M0FNU")
"""2^(code - 127), NaN for 255."""


def check_weight(dtype: str, shape: tuple[int, int]) -> None:
    """Raise CheckpointError unless a weight of that dtype and shape can be quantized."""
    if dtype not in EPSILON:
        raise CheckpointError(f"a weight of dtype {dtype} cannot be quantized; expected BF16, F16 or F32")
    if 0 in shape:
        raise CheckpointError(f"a weight of shape {list(shape)} has no elements, so it has no scale")


def values(bits: Array, dtype: str) -> Array:
    """Return the f32 of BF16, F16 or F32 (`DTYPES[dtype].array`): all are exact."""
    return bits.view(np.float32) if dtype == "F32" else widen(bits, FLOATS[dtype.lower()])


def float_kernels(dtypes: Collection[str]) -> tuple[Kernel, ...]:
    """Return the kernels that `values`, `rounded` and `bits_of` call for these dtypes."""
    return (widen_f16, narrow_to_f16) if "F16" in dtypes else ()


def rounded(numbers: Array, dtype: str) -> Array:
    """Round f32 (RNE) to `dtype`, as f32. Overflow gives infinity; NaN stays NaN."""
    return numbers if dtype == "F32" else values(bits_of(numbers, dtype), dtype)


def bits_of(numbers: Array, dtype: str) -> Array:
    """Return the bits of the nearest `dtype` (RNE) as `DTYPES[dtype].array`. NaN is positive, quiet, without payload.

    The library's NaN has the sign and payload that its vector instructions leave.
    """
    numbers = np.where(np.isnan(numbers), np.float32(np.nan), numbers)
    return numbers if dtype == "F32" else narrowed(numbers, FLOATS[dtype.lower()]).view(np.uint16)
