"""Kernels from integers to f32, for every layout and storage. Formulas: spec/numerics.md A.5, C.9, H.2; mlir.md 4.4.

f32(f32(q - z) * s)          q - z in int32, which wraps for 32-bit storage
f32(f64(q - z) * f64(s))     q - z exact; for 32-bit storage, where the two differ
"""

from __future__ import annotations

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, kernel, readable, writable
from core.kernels.layout import first_parameter, piece_length


def _dequantize(cycle: bool, double: bool) -> Kernel:
    storages = (types.int32,) if double else (types.int8, types.uint8, types.int16, types.uint16, types.int32)

    @kernel(
        *(
            (
                readable(storage),  # source
                writable(types.float32),  # target
                types.int64,  # start: index of source[0] in the whole tensor
                types.int64,  # run     \
                types.int64,  # channels | core.kernels.layout
                types.int64,  # group    |
                types.int64,  # groups  /
                readable(types.float32),  # scales, one for each parameter
                readable(types.int32),  # zero points, one for each parameter
            )
            for storage in storages
        )
    )
    def dequantize(
        source: Array,
        target: Array,
        start: Number,
        run: Number,
        channels: Number,
        group: Number,
        groups: Number,
        scales: Array,
        zero_points: Array,
    ) -> None:
        done = 0
        while done < source.size:
            element = start + done
            length = piece_length(source.size - done, element, run, channels, cycle)
            parameter = first_parameter(element, run, channels, group, groups, cycle)
            inputs = source[done : done + length]
            outputs = target[done : done + length]
            piece_scales = scales[parameter:]
            piece_zero_points = zero_points[parameter:]
            scale = scales[parameter]
            zero_point = zero_points[parameter]
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

    return dequantize


DEQUANTIZE: dict[tuple[bool, bool], Kernel] = {
    (cycle, double): _dequantize(cycle, double) for cycle in (False, True) for double in (False, True)
}
"""The kernel for (whether the layout is a cycle, whether the product is taken in f64)."""
