"""A whole weight through a weight format, so many rows at a time, into its stored tensors and back."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights.blocks import Extremes, whole_extremes
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat


def matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the shape of a stored tensor as a matrix, as `Region` sees it."""
    if len(shape) < 2:
        return 1, shape[0] if shape else 1
    return prod(shape[:-1]), shape[-1]


def extremes(form: WeightFormat, weight: np.ndarray, dtype: str, rows: int) -> Extremes | None:
    """Return the extremes of the whole weight, measured by pieces."""
    if not form.needs_extremes:
        return None
    found = [whole_extremes(weight[begin : begin + rows], dtype) for begin in range(0, len(weight), rows)]
    together = found[0]
    for each in found[1:]:
        together = together.union(each)
    return together


def quantized(
    form: WeightFormat, weight: np.ndarray, dtype: str, rows: int, shared: Extremes | None = None
) -> dict[str, np.ndarray]:
    """Return the stored tensors, as matrices. Every element has to be written, and once."""
    shape = weight.shape
    assert len(shape) == 2
    tensors = form.stored(dtype, shape)
    found = {each.suffix: np.zeros(matrix(each.shape), DTYPES[each.dtype].array) for each in tensors}
    times = {suffix: np.zeros(array.shape, int) for suffix, array in found.items()}
    whole = shared or extremes(form, weight, dtype, rows)
    for begin in range(0, shape[0], rows):
        piece = np.ascontiguousarray(weight[begin : begin + rows])
        parts = form.quantize(piece, dtype, shape, begin, whole)
        assert tuple(region for region, _ in parts) == form.regions(dtype, shape, begin, begin + len(piece))
        for region, array in parts:
            target = found[region.suffix]
            at = (slice(region.row_begin, region.row_end), slice(region.column_begin, region.column_end))
            assert array.dtype == target.dtype, region
            assert array.shape == target[at].shape, region
            target[at] = array
            times[region.suffix][at] += 1
    for suffix, count in times.items():
        assert (count == 1).all(), suffix
    return found


def dequantized(
    form: WeightFormat,
    found: Mapping[str, np.ndarray],
    described: Mapping[str, tuple[str, tuple[int, ...]]],
    dtype: str,
    shape: tuple[int, int],
    rows: int,
) -> np.ndarray:
    """Return the whole weight again as bits of `dtype`. `described`: dtype and shape by suffix."""
    dtypes = {suffix: name for suffix, (name, _) in described.items()}
    pieces = []
    for begin in range(0, shape[0], rows):
        end = min(begin + rows, shape[0])
        regions = {each.suffix: each for each in form.regions(dtypes.get("weight_scale", dtype), shape, begin, end)}
        stored = {}
        for suffix, array in found.items():
            region = regions.get(suffix)
            if region is None:
                stored[suffix] = array
            else:
                stored[suffix] = array[region.row_begin : region.row_end, region.column_begin : region.column_end]
        pieces.append(form.dequantize(StoredRows(stored, dtypes, shape, begin, end), dtype))
    return np.concatenate(pieces)
