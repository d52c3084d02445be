"""Kernels from integers to f32, for every layout and storage. Formulas: spec/numerics.md A.5, C.9, H.2; mlir.md 4.4.

f32(f32(q - z) * s)          q - z in int32, which wraps for 32-bit storage
f32(f64(q - z) * f64(s))     q - z exact; for 32-bit storage, where the two differ
"""

from __future__ import annotations

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, kernel, readable, writable
from core.kernels.layout import first_channel, next_channel, piece_length


def _dequantize(cycle: bool, double: bool) -> Kernel:
    storages = (types.int32,) if double else (types.int8, types.uint8, types.int16, types.uint16, types.int32)

    @kernel(
        *(
            (
                readable(storage),  # source
                writable(types.float32),  # target
                types.int64,  # start: index of source[0] in the whole tensor
                types.int64,  # run: consecutive elements of one channel
                readable(types.float32),  # scales, one per channel
                readable(types.int32),  # zero points, one per channel
            )
            for storage in storages
        )
    )
    def dequantize(
        source: Array,
        target: Array,
        start: Number,
        run: Number,
        scales: Array,
        zero_points: Array,
    ) -> None:
        channels = scales.size
        channel = first_channel(start, run, channels, cycle)
        done = 0
        while done < source.size:
            length = piece_length(source.size - done, start + done, run, channel, channels, cycle)
            inputs = source[done : done + length]
            outputs = target[done : done + length]
            piece_scales = scales[channel:]
            piece_zero_points = zero_points[channel:]
            scale = scales[channel]
            zero_point = zero_points[channel]
            for i in range(inputs.size):
                if cycle:
                    scale = piece_scales[i]
                    zero_point = piece_zero_points[i]
                if double:
                    difference = np.float64(np.int64(inputs[i]) - np.int64(zero_point))
                    outputs[i] = np.float32(difference * np.float64(scale))
                else:
                    outputs[i] = np.float32(np.int32(np.int32(inputs[i]) - zero_point)) * scale
            done += length
            channel = next_channel(channel, channels, cycle)

    return dequantize


DEQUANTIZE: dict[tuple[bool, bool], Kernel] = {
    (cycle, double): _dequantize(cycle, double) for cycle in (False, True) for double in (False, True)
}
"""The kernel for (whether the layout is a cycle, whether the product is taken in f64)."""
