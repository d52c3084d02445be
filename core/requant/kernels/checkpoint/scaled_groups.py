"""The kernel from integer codes to values, with a scale and a minimum for each group of them: GGUF's blocks.

    value = f32(scale * code), then f32(that - minimum) where there are minimums

Processors differ in the sign of a NaN that they make, and in which of two they keep. So the NaNs of each block, some
groups, are given: one for products, one for what else is not a number.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I8, I64, In, Out
from requant.kernels.simd.memory import elements_of, load, store
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import convert, select, splat


@kernel()
def scaled_groups(
    codes: In[I8],
    width: I64,  # codes of a group, a multiple of 16
    scales: In[F32],  # one for each group
    minimums: In[F32],  # of the same number, or none
    groups: I64,  # of a block
    product_nans: In[F32],  # one for each block
    other_nans: In[F32],  # one for each block
    target: Out[F32],
) -> None:
    prefer_wide_vectors()
    numbers, values = elements_of(codes), elements_of(target)
    for group in range(scales.size):
        block = group // groups
        scale, product_nan, other_nan = splat(scales[group]), splat(product_nans[block]), splat(other_nans[block])
        has_minimum = minimums.size > 0
        minimum = splat(minimums[group]) if has_minimum else splat(np.float32(0))
        for i in range(group * width, (group + 1) * width, LANES):
            product = scale * convert(load(numbers, i), np.float32)
            value = product - minimum if has_minimum else product
            nan = select(product == product, other_nan, product_nan)
            store(values, i, select(value == value, value, nan))
