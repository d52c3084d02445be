"""Multiplication and division of f32 by parameters, for the conversions to and from small floats.

y = f32(x / s)   or   y = f32(x * s)
"""

from __future__ import annotations

from numba import types

from core.kernels._jit import Array, Kernel, Number, kernel, readable, writable
from core.kernels.layout import first_parameter, piece_length


def _scale(divide: bool) -> Kernel:
    @kernel(
        (
            readable(types.float32),  # source
            writable(types.float32),  # target
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # run     \
            types.int64,  # channels | core.kernels.layout
            types.int64,  # group    |
            types.int64,  # groups  /
            readable(types.float32),  # scales
        )
    )
    def scale(
        source: Array,
        target: Array,
        start: Number,
        run: Number,
        channels: Number,
        group: Number,
        groups: Number,
        scales: Array,
    ) -> None:
        done = 0
        while done < source.size:
            element = start + done
            length = piece_length(source.size - done, element, run, channels, False)
            factor = scales[first_parameter(element, run, channels, group, groups, False)]
            inputs = source[done : done + length]
            outputs = target[done : done + length]
            for i in range(inputs.size):
                outputs[i] = inputs[i] / factor if divide else inputs[i] * factor
            done += length

    return scale


DIVIDE = _scale(True)
MULTIPLY = _scale(False)
