"""Which parameter belongs to which element: every layout, from every element on, in rows of every length."""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from core.channels import channels_of
from core.kernels.dequantize import DEQUANTIZE, Storage
from core.kernels.widen import FloatKind

Array = NDArray[Any]
# A shape, and the size of a block along each dimension.
LAYOUTS = [
    ((200,), (200,)),
    ((3, 160), (1, 32)),
    ((4, 96), (4, 32)),
    ((6, 64), (2, 16)),
    ((6, 64), (3, 1)),
    ((2, 5, 64), (1, 1, 16)),
    ((2, 5, 48), (2, 1, 48)),
    ((2, 5, 49), (2, 1, 49)),
    ((2, 5, 17), (1, 1, 17)),
    ((3, 512), (1, 256)),
    ((3, 544), (1, 272)),
    ((5, 40), (5, 1)),
    ((5, 40), (1, 1)),
    ((5, 40), (1, 8)),
    ((2, 3, 70), (2, 3, 1)),
    ((7, 33), (2, 32)),
    ((2, 7, 32), (1, 2, 32)),
]


def parameters_of(shape: tuple[int, ...], blocks: tuple[int, ...]) -> Array:
    """The index of each element's parameter: row-major over the blocks."""
    counts = [-(-size // block) for size, block in zip(shape, blocks, strict=True)]
    places = np.indices(shape).reshape(len(shape), -1)
    within = [place // block for place, block in zip(places, blocks, strict=True)]
    return np.ravel_multi_index(within, counts)


@pytest.mark.parametrize("kind", [FloatKind.F32, FloatKind.F16, FloatKind.BF16])
@pytest.mark.parametrize("storage", Storage)
@pytest.mark.parametrize("double", [False, True])
def test_dequantize_from_any_element(storage: Storage, kind: FloatKind, double: bool) -> None:
    dtype = np.dtype(f"{'u' if storage.name[0] == 'U' else 'i'}{int(storage.name[1:]) // 8}")
    target_dtype = np.dtype("<f4" if kind is FloatKind.F32 else "<u2")
    narrow: Any = {FloatKind.F32: np.float32, FloatKind.F16: np.float16, FloatKind.BF16: ml_dtypes.bfloat16}[kind]
    rng = np.random.default_rng(5)
    for shape, blocks in LAYOUTS:
        index, channels = parameters_of(shape, blocks), channels_of(shape, blocks)
        count, size = index.max() + 1, prod(shape)
        scales = (rng.random(count) + 0.5).astype("<f4")
        zero_points = rng.integers(-9, 9, count)
        limits = np.iinfo(dtype)
        source = rng.integers(limits.min, limits.max, size, dtype=dtype, endpoint=True)
        difference = source.astype(np.int64) - zero_points[index]
        if double:
            value = (difference * scales[index].astype(np.float64)).astype(np.float32)
        else:
            value = difference.astype(np.int32).astype(np.float32) * scales[index]
        with np.errstate(over="ignore"):
            expected = value.astype(narrow).view(target_dtype)
        for start, stop in ((0, size), (0, 1), (1, size), (15, 47), (16, size - 1), (33, size), (31, 132), (64, 160)):
            stop = min(stop, size)
            # What comes after the target stays as it is.
            target = np.full(stop - start + 64, 77, target_dtype)
            DEQUANTIZE[double](
                source[start:stop].view(np.uint8),
                target.view(np.uint8),
                start,
                stop - start,
                channels.layout,
                channels.lay_out(scales, "<f4"),
                channels.lay_out(zero_points, "<i4"),
                storage,
                kind,
            )
            assert target[: stop - start].tolist() == expected[start:stop].tolist()
            assert (target[stop - start :] == 77).all()
