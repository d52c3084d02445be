"""Kernels between f16 and f32.

numpy converts f16 by its own arithmetic or by the processor's instructions, as it was built, and these differ in what
becomes of a signalling NaN. Here it becomes a quiet one everywhere, as by the instructions (IEEE 754 section 6.2.3).
"""

from __future__ import annotations

from requant.kernels.jit.jit import kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I16, In, Out
from requant.kernels.simd.memory import elements_of, load, store
from requant.kernels.simd.narrow import f16_of_f32
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import first
from requant.kernels.simd.widen import f32_of_f16


@kernel()
def widen_f16(
    source: In[I16],  # f16, as bits
    target: Out[F32],
) -> None:
    """The f32 of each f16. A NaN is quiet, with the sign and the payload of the f16."""
    prefer_wide_vectors()
    size, halves, singles = source.size, elements_of(source), elements_of(target)
    whole = size - size % LANES
    for i in range(0, whole, LANES):
        store(singles, i, f32_of_f16(load(halves, i)))
    if whole < size:
        valid = first(size - whole)
        store(singles, whole, f32_of_f16(load(halves, whole, valid)), valid)


@kernel()
def narrow_to_f16(
    source: In[F32],
    target: Out[I16],  # f16, as bits
) -> None:
    """The f16 nearest to each f32 (RNE). Overflow gives infinity. A NaN is quiet, with its sign and the highest bits of
    its payload."""
    prefer_wide_vectors()
    size, singles, halves = source.size, elements_of(source), elements_of(target)
    whole = size - size % LANES
    for i in range(0, whole, LANES):
        store(halves, i, f16_of_f32(load(singles, i)))
    if whole < size:
        valid = first(size - whole)
        store(halves, whole, f16_of_f32(load(singles, whole, valid)), valid)
