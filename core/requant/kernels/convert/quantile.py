"""Kernels between floats and the codes of a table of values.

    quantize:    y = E(E(x / s) + z);  the code of the interval between thresholds that y lies in
    dequantize:  E(E(T(q) - z) * s)

The caller sorts the values and computes the thresholds; each is the largest float that still belongs to the value below
it. Steps are in f32, with E rounded to after each, or in f64.
"""

from __future__ import annotations

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, device, kernel
from requant.kernels.jit.signature import I64, Bool, In, Out, Real
from requant.kernels.loops import locate, next_run
from requant.kernels.scalar.rounding import round_to_precision


@device
def interval_of(value: Number, thresholds: Array) -> Number:
    """How many of the ascending `thresholds` are less than `value`: 0 to all of them, of NaN none."""
    first = 0
    left = thresholds.size
    while left > 0:
        half = left // 2
        if thresholds[first + half] < value:
            first += half + 1
            left -= half + 1
        else:
            left = half
    return first


def _quantize(real: types.Type) -> Kernel:
    in_f32 = real is types.float32

    @kernel({Real: real})
    def quantize(
        source: In[Real],
        target: Out[I64],
        start: I64,  # index of source[0] in the whole tensor
        run: I64,  # run, channels, group and groups: as in requant.kernels.loops
        channels: I64,
        group: I64,
        groups: I64,
        scales: In[Real],
        zero_points: In[Real],
        precision: I64,  # of the steps
        thresholds: In[Real],
        codes: In[I64],  # one more than thresholds
        smallest: Real,  # smallest value
        largest: Real,  # largest value
        missing: I64,  # code of NaN
        missing_is_zero_point: Bool,  # whether NaN gives the code of the zero point instead
        counts: Out[I64],  # saturated low, saturated high, NaN
    ) -> None:
        layout = (run, channels, group, groups, False)
        place = locate(start, layout)
        done = 0
        while done < source.size:
            parameter, length, place = next_run(place, source.size - done, layout)
            scale, zero_point = scales[parameter], zero_points[parameter]
            zero_code = codes[interval_of(zero_point, thresholds)]
            for i in range(done, done + length):
                value = source[i] / scale
                if in_f32:
                    value = round_to_precision(value, precision)
                value = value + zero_point
                if in_f32:
                    value = round_to_precision(value, precision)
                if value != value:
                    counts[2] += 1
                    target[i] = zero_code if missing_is_zero_point else missing
                else:
                    counts[0] += value < smallest
                    counts[1] += value > largest
                    target[i] = codes[interval_of(value, thresholds)]
            done += length

    return quantize


def _dequantize(real: types.Type) -> Kernel:
    in_f32 = real is types.float32

    @kernel({Real: real})
    def dequantize(
        source: In[I64],
        target: Out[Real],
        start: I64,  # index of source[0] in the whole tensor
        run: I64,  # run, channels, group and groups: as in requant.kernels.loops
        channels: I64,
        group: I64,
        groups: I64,
        scales: In[Real],
        zero_points: In[Real],
        precision: I64,  # of the steps
        values: In[Real],  # from the lowest code
        lowest: I64,  # lowest code
    ) -> None:
        layout = (run, channels, group, groups, False)
        place = locate(start, layout)
        done = 0
        while done < source.size:
            parameter, length, place = next_run(place, source.size - done, layout)
            scale, zero_point = scales[parameter], zero_points[parameter]
            for i in range(done, done + length):
                # The caller refuses codes beyond the table. The clamp holds even if the elements change after that.
                code = min(max(source[i] - lowest, 0), values.size - 1)
                value = values[code] - zero_point
                if in_f32:
                    value = round_to_precision(np.float32(value), precision)
                value = value * scale
                if in_f32:
                    value = round_to_precision(np.float32(value), precision)
                target[i] = value
            done += length

    return dequantize


QUANTIZE_QUANTILE: dict[str, Kernel] = {"<f4": _quantize(types.float32), "<f8": _quantize(types.float64)}
DEQUANTIZE_QUANTILE: dict[str, Kernel] = {"<f4": _dequantize(types.float32), "<f8": _dequantize(types.float64)}
"""The kernels by the dtype that they compute in."""
