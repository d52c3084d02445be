"""torch.histc, for the methods that count with it."""

from __future__ import annotations

import numpy as np

from requant.calibration.methods.method import Array
from requant.errors import PreconditionError
from requant.kernels.statistics.torch_histogram import torch_histc


def histc(values: Array, first: np.float32, last: np.float32, bins: int, pointer: str) -> Array:
    """Return f32 counts of f32 values, all within `first` and `last`, in bins of equal width.

        bin(x) = trunc(f32(f32(f32(x - first) * bins) / f32(last - first)))

    torch converts the quotient to an integer unchecked: where the product overflows, the bin is undefined in C++ (on
    x86 it happens to be the first). Raise PreconditionError there, and for a range that overflows f32, of which torch
    counts nothing. Source: torch 2.13, ATen HistogramKernel.cpp.
    """
    with np.errstate(over="ignore"):
        if np.isinf(last - first):
            raise PreconditionError("the range overflows f32, which torch computes in", pointer=pointer)
        if np.isinf((values.max() - first) * np.float32(bins)):
            raise PreconditionError(
                f"(x - minimum) * {bins} bins overflows f32, which torch computes in; use fewer bins or scale the data",
                pointer=pointer,
            )
    counts = np.zeros(bins, np.float32)
    torch_histc(values, first, last, counts)
    return counts
