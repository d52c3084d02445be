"""The general kernel from integers to floats: every storage as int64, every expressed type, one element at a time.

The result is f32 (holding f16 and bf16 values exactly, to be narrowed by the caller) or f64. The formulas are those of
`requant.formats.rules.Difference`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from requant.formats.rules import Difference
from requant.kernels.jit.jit import Kernel, Number, device, kernel
from requant.kernels.jit.signature import I64, In, Out, Real
from requant.kernels.loops import locate, next_run
from requant.kernels.scalar.rounding import (
    Precision,
    round_f32_to_f16,
    round_f64_to_f16,
    round_integer_to_precision,
    round_to_precision,
)

_INTEGER, _FLOATS, _DOUBLE = Difference.INTEGER.code, Difference.FLOATS.code, Difference.DOUBLE.code
_FLOATS_OF_F32 = Difference.FLOATS_OF_F32.code
_NAN = np.float32(np.nan)
_F16, _BF16 = int(Precision.F16), int(Precision.BF16)


@device
def _float_of(value: Number, precision: Number) -> Number:
    """An integer in the expressed type, rounded once. The f64 holds it exactly."""
    if precision == _F16:
        return np.float64(round_f32_to_f16(np.float32(round_integer_to_precision(value, 11))))
    if precision == _BF16:
        return round_integer_to_precision(value, 8)
    return np.float64(value)


def _dequantize_any(real: types.Type) -> Kernel:
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
        zero_points: In[I64],
        difference: I64,  # by its code
        steps: I64,  # Precision of the steps
        result: I64,  # Precision of the result
    ) -> None:
        layout = (run, channels, group, groups, False)
        place = locate(start, layout)
        done = 0
        while done < source.size:
            parameter, length, place = next_run(place, source.size - done, layout)
            scale = scales[parameter]
            zero_point = zero_points[parameter]
            for i in range(done, done + length):
                q = source[i]
                if not in_f32:
                    if difference in (_FLOATS, _DOUBLE):
                        target[i] = (np.float64(q) - np.float64(zero_point)) * scale
                    else:
                        target[i] = np.float64(np.int32(q - zero_point)) * scale
                else:
                    if difference == _INTEGER:
                        whole = np.float32(_float_of(np.int64(np.int32(q - zero_point)), steps))
                        real_value = round_to_precision(np.float32(whole * scale), steps)
                    elif difference in (_FLOATS, _FLOATS_OF_F32):
                        if difference == _FLOATS:
                            left = np.float32(_float_of(q, steps))
                            right = np.float32(_float_of(zero_point, steps))
                        else:
                            left = round_to_precision(np.float32(q), steps)
                            right = round_to_precision(np.float32(zero_point), steps)
                        whole = round_to_precision(np.float32(left - right), steps)
                        real_value = round_to_precision(np.float32(whole * scale), steps)
                    elif difference == _DOUBLE:
                        real_value = np.float32(np.float64(q - zero_point) * np.float64(scale))
                    else:
                        exact = (np.float64(np.float32(q)) - np.float64(zero_point)) * np.float64(scale)
                        real_value = np.float32(round_f64_to_f16(exact) if result == _F16 else exact)
                    # Infinity minus infinity: hardware gives it a sign, constant folders do not.
                    target[i] = round_to_precision(real_value, result) if real_value == real_value else _NAN
            done += length

    return dequantize


DEQUANTIZE_ANY: dict[str, Kernel] = {"<f4": _dequantize_any(types.float32), "<f8": _dequantize_any(types.float64)}
"""The kernel for results of f32 and of f64."""
