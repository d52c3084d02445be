"""NVFP4: f4E2M1FN in blocks of 16 along the last axis, an f8E4M3FN scale for each, and one f32 for the whole tensor.

    sg = f32(amax of the tensor / 2688)                      2688 = 448 * 6, the largest scale times the largest element
    sb = f8E4M3FN RNE( clamp( f32(f32(amax of the block / 6) / sg), 2^-6, 448 ) )
    element = f4E2M1FN RNE( clamp( f32(x / f32(sg * sb)), -6, 6 ) )
    value   = f32(element * f32(sg * sb))

That is torchao's arithmetic, with divisions and not reciprocals. Without a global scale, sg = 1.
A block of zeros has the smallest scale, 2^-6, and keeps the signs of its zeros. A block with a NaN has the scale NaN
(0x7F), and its elements are all written as code 0; an infinity counts as larger than any number, so its block has the
scale 448 and the infinity becomes 6. Where torchao divides 0 by 0, this is a PreconditionError.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.blocks.blocking import block_count, check_length, flat_f32
from requant.convert.small_floats import check_codes, decode_table
from requant.errors import ParameterError, PreconditionError
from requant.kernels.convert import blocks as kernels

Array = NDArray[Any]

BLOCK = 16
_NAME = "nvfp4"
_SCALE = "f8E4M3FN"
_ELEMENT = "f4E2M1FN"
_SMALLEST_SCALE, _LARGEST_SCALE, _LARGEST_ELEMENT = np.float32(2.0**-6), np.float32(448.0), np.float32(6.0)


class GlobalScale(StrEnum):
    """Where the scale of the whole tensor comes from, if the caller states none."""

    DERIVED = "derived"
    """From the tensor's largest magnitude."""

    ABSENT = "absent"
    """There is none: one level of scales."""


@dataclass(frozen=True, slots=True)
class Nvfp4Tensor:
    """`shape` elements, flat in row-major order, one to a byte, one scale for each 16 of them, and the global scale.

    `scales`: uint8, f8E4M3FN codes. `elements`: uint8, f4E2M1FN codes, 0 to 15. `global_scale`: an f32, None if absent.
    """

    shape: tuple[int, ...]
    global_scale: float | None
    scales: Array
    elements: Array


def _usable(global_scale: np.float32) -> bool:
    with np.errstate(over="ignore", under="ignore"):
        return bool(global_scale * _SMALLEST_SCALE > 0 and np.isfinite(global_scale * _LARGEST_SCALE))


def _derived(source: Array) -> np.float32:
    largest = np.uint32((source.view("<u4") & 0x7FFFFFFF).max(initial=0)).view("<f4")
    if not np.isfinite(largest):
        index = int(np.argmin(np.isfinite(source)))
        raise PreconditionError(
            f"the value at index {index} is not finite, so no global scale follows from the values; give one",
            index=index,
        )
    scale = np.float32(largest / np.float32(_LARGEST_SCALE * _LARGEST_ELEMENT))
    if not _usable(scale):
        raise PreconditionError(f"the largest magnitude, {largest}, is too small to derive a global scale; give one")
    return scale


def quantize_nvfp4(values: Array, global_scale: float | GlobalScale = GlobalScale.DERIVED) -> Nvfp4Tensor:
    """Derive the scales of an f32 tensor of any rank from 1 and quantize it. A given `global_scale` is rounded to f32.

    Raises UnsupportedError for values that are not f32; TypeFitError if the last axis is not a multiple of 16;
    ParameterError for a given global scale that is not positive, or whose product with a block's scale (2^-6 to 448)
    f32 does not hold; PreconditionError where no global scale can be derived: a value is not finite, or all are zero or
    too close to it.
    """
    shape = values.shape
    count = block_count(shape, BLOCK, _NAME)
    source = flat_f32(values, _NAME)
    if global_scale is GlobalScale.ABSENT:
        scale = None
    elif global_scale is GlobalScale.DERIVED:
        scale = _derived(source)
    else:
        with np.errstate(over="ignore", under="ignore"):
            scale = np.float32(global_scale)
        if not _usable(scale):
            raise ParameterError(f"the global scale {global_scale} cannot be used; expected about 2^-143 to 2^119")
    scales, elements = np.empty(count, "|u1"), np.empty(source.size, "|u1")
    factor = np.float32(1) if scale is None else scale
    kernels.quantize_nvfp4(source, scales, elements, BLOCK, factor, decode_table(_SCALE))
    return Nvfp4Tensor(shape, None if scale is None else float(scale), scales, elements)


def dequantize_nvfp4(tensor: Nvfp4Tensor) -> Array:
    """Return f32(element * f32(sg * sb)) in the tensor's shape.

    Raises TypeFitError if the last axis is not a multiple of 16, TensorDataError for arrays of another length and for
    elements beyond 15.
    """
    count = block_count(tensor.shape, BLOCK, _NAME)
    check_length(tensor.scales, count, "scales")
    check_length(tensor.elements, count * BLOCK, "elements")
    check_codes(tensor.elements, _ELEMENT)
    factor = np.float32(1 if tensor.global_scale is None else tensor.global_scale)
    target = np.empty(tensor.elements.size, "<f4")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scales = decode_table(_SCALE)[tensor.scales] * factor
    kernels.scale_blocks(tensor.elements, decode_table(_ELEMENT), scales, BLOCK, target)
    return target.reshape(tensor.shape)
