"""Kernels from the floats of a weight to integers whose zero point is added after rounding.

    code = clamp(rint(R(R(w) / s)) + z, 0, highest), 0 where w / s is NaN

R rounds to f16, or not at all. Scales belong to groups of columns of one row.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Array, Kernel, Number, device, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I32, I64, U8, In, Out
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.memory import elements_of, store_as
from requant.kernels.simd.rounding import nearest_integers, round_to_precision
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import clamp, first, select, splat, zero_like
from requant.kernels.simd.widen import FloatKind, load_f32

_F16 = int(Precision.F16)
_BF16, _HALF = int(FloatKind.BF16), int(FloatKind.F16)
# Beyond every code, and within the integers that a conversion gives.
_FAR = np.float32(2.0**20)


def _shifted_codes(in_f16: bool) -> Kernel:
    @device
    def code_of(value: Number, scale: Number, zero: Number, highest: Number, exact: bool) -> Number:
        """`exact`: whether the value is an f16."""
        if in_f16 and not exact:
            value = round_to_precision(value, _F16)
        quotient = value / splat(scale)
        if in_f16:
            quotient = round_to_precision(quotient, _F16)
        steps = nearest_integers(clamp(quotient, splat(-_FAR), splat(_FAR)))
        code = clamp(steps + splat(zero), splat(np.int32(0)), splat(highest))
        return select(quotient == quotient, code, zero_like(code))

    @device
    def segment(
        source: Array,
        target: Array,
        begin: Number,
        length: Number,
        kind: int,
        scale: Number,
        zero: Number,
        highest: Number,
    ) -> None:
        exact = kind == _HALF
        end = begin + length
        whole = end - length % LANES
        for i in range(begin, whole, LANES):
            store_as(target, i, code_of(load_f32(source, i, kind), scale, zero, highest, exact), np.int8)
        if whole < end:
            valid = first(end - whole)
            code = code_of(load_f32(source, whole, kind, valid), scale, zero, highest, exact)
            store_as(target, whole, code, np.int8, valid)

    @kernel()
    def shifted_codes(
        source: In[U8],  # as bytes: whole groups of floats
        kind: I64,  # their kind, by FloatKind: F32, F16 or BF16
        width: I64,  # elements of a group
        scales: In[F32],  # one for each group
        zero_points: In[F32],  # of the same number, integers from 0 to 255
        highest: I32,  # highest code
        codes: Out[U8],
    ) -> None:
        prefer_wide_vectors()
        floats, bytes_ = elements_of(source), elements_of(codes)
        for group in range(scales.size):
            scale, zero = scales[group], np.int32(zero_points[group])
            # With constants where it pays.
            if kind == _BF16:
                segment(floats, bytes_, group * width, width, _BF16, scale, zero, highest)
            elif kind == _HALF:
                segment(floats, bytes_, group * width, width, _HALF, scale, zero, highest)
            else:
                segment(floats, bytes_, group * width, width, kind, scale, zero, highest)

    return shifted_codes


SHIFTED_CODES = _shifted_codes(in_f16=False)
SHIFTED_CODES_IN_F16 = _shifted_codes(in_f16=True)
