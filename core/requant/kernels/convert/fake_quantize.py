"""Kernels of fake quantization: f32 to the nearest step of a nudged range.

c = clamp(x, low, high), q0 = floor(f32(f32(-low * inverse) + 0.5)); each step in f32:

    reciprocal    floor(f32(f32(f32((c - low) * inverse) - q0) + 0.5)) * s       NaN stays NaN
    division      floor(f32(f32(f32((c - low) / s) - q0) + 0.5)) * s             NaN stays NaN
    away          f32(RNA(f32((c - low) * inverse)) * s) + low                   NaN becomes low

With s = 0 the first two give 0 for everything.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.signature import F32, I64, In, Out
from requant.kernels.loops import locate, next_run
from requant.kernels.scalar.rounding import round_down, round_half_away


class Step(Enum):
    """How a clamped value becomes a step."""

    RECIPROCAL = "reciprocal"
    DIVISION = "division"
    AWAY = "away"


def _fake_quantize(step: Step, cycle: bool) -> Kernel:
    divides = step is Step.DIVISION
    away = step is Step.AWAY

    @kernel()
    def fake_quantize(
        source: In[F32],
        target: Out[F32],
        start: I64,  # index of source[0] in the whole tensor
        run: I64,  # run, channels, group and groups: as in requant.kernels.loops
        channels: I64,
        group: I64,
        groups: I64,
        lows: In[F32],  # low ends of the nudged ranges, one for each parameter
        highs: In[F32],  # high ends
        scales: In[F32],
        inverses: In[F32],
        zeros: In[F32],  # q0, the step of zero
    ) -> None:
        half = np.float32(0.5)
        layout = (run, channels, group, groups, cycle)
        place = locate(start, layout)
        done = 0
        while done < source.size:
            parameter, length, place = next_run(place, source.size - done, layout)
            inputs = source[done : done + length]
            outputs = target[done : done + length]
            piece_lows = lows[parameter:]
            piece_highs = highs[parameter:]
            piece_scales = scales[parameter:]
            piece_inverses = inverses[parameter:]
            piece_zeros = zeros[parameter:]
            low, high = lows[parameter], highs[parameter]
            scale, inverse, zero = scales[parameter], inverses[parameter], zeros[parameter]
            for i in range(inputs.size):
                if cycle:
                    low, high = piece_lows[i], piece_highs[i]
                    scale, inverse, zero = piece_scales[i], piece_inverses[i], piece_zeros[i]
                value = inputs[i]
                if away:
                    value = value if low < value else low
                    value = value if value < high else high
                    outputs[i] = round_half_away((value - low) * inverse) * scale + low
                else:
                    value = high if value > high else value
                    value = low if value < low else value
                    shifted = value - low
                    steps = shifted / scale if divides else shifted * inverse
                    result = round_down((steps - zero) + half) * scale
                    outputs[i] = result if scale != 0 else np.float32(0)
            done += length

    return fake_quantize


FAKE_QUANTIZE: dict[tuple[Step, bool], Kernel] = {
    (step, cycle): _fake_quantize(step, cycle)
    for step, cycle in ((Step.RECIPROCAL, False), (Step.RECIPROCAL, True), (Step.DIVISION, False), (Step.AWAY, False))
}
"""The kernel for (step, whether the layout is a cycle). Only the reciprocal step has several channels."""
