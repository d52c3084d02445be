"""From f32 to small floats outside of tensors of them: one element of a block, and scales of blocks (E8M0).

Tensors of small floats are the matter of `requant.kernels.convert.floats.encoding`.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Number, device, kernel
from requant.kernels.jit.signature import F32, I32, I64, U8, Bool, In, Out
from requant.kernels.scalar.rounding import bits_of_f32, f32_of_bits

_F32_MAGNITUDE = 0x7FFFFFFF
_F32_INFINITY = 0x7F800000
_E8M0_SMALLEST = 0x00400000  # 2^-127 as an f32


@device
def nearest_code_of_f32(magnitude: Number, mantissa_bits: Number, bias: Number) -> Number:
    """The code (RNE) nearest to the f32 with the bits `magnitude` (sign clear, not NaN), as if exponents never ended.

    normal:    RNE(bits / 2^(23 - m)) - ((127 - bias) << m), in integers, where a carry moves to the next exponent
    subnormal: bits(|x| + M) - bits(M), M the power of two whose last place is the format's smallest value

    The caller compares it with the format's largest code: beyond that it is an overflow, and not a code.
    """
    dropped = np.int32(23 - mantissa_bits)
    below_half = np.int32(np.int32(1 << np.int32(dropped - 1)) - 1)
    odd = np.int32(np.int32(magnitude >> dropped) & 1)
    rounded = np.int32(np.int32(magnitude + np.int32(below_half + odd)) >> dropped)
    normal = np.int32(rounded - np.int32(np.int32(127 - bias) << mantissa_bits))
    shifter = np.int32(np.int32(151 - bias - mantissa_bits) << 23)
    subnormal = np.int32(bits_of_f32(f32_of_bits(magnitude) + f32_of_bits(shifter)) - shifter)
    return normal if magnitude >= np.int32(np.int32(128 - bias) << 23) else subnormal


@kernel()
def encode_e8m0(
    source: In[F32],
    target: Out[U8],
    added: I32,  # what is added to the mantissa: 0 (down), 2^22 (nearest, ties up), 2^23 - 1 (up)
    less: I32,  # what is taken off that where the exponent field is 0
    scaled: Bool,  # whether the mantissa of a subnormal is first scaled, so that 2^-127 has the mantissa 0
    signed: Bool,  # whether the sign counts; otherwise it is ignored
    highest: I32,  # the highest pattern that is not beyond the range
    above: I32,  # code of finite values beyond the range
    infinite: I32,  # code of infinity
    lowest: I32,  # patterns below this
    below: I32,  # give this code
    counts: Out[I64],  # saturated low, saturated high, NaN
) -> None:
    """f32 to E8M0: the exponent field, plus one where the mantissa says so (G.3).

    Counted as low is what is less than 2^-127, and as high what is beyond the range.
    """
    for i in range(source.size):
        bits = bits_of_f32(source[i])
        magnitude = np.int32(bits & _F32_MAGNITUDE)
        pattern = bits if signed else magnitude
        exponent = np.int32(magnitude >> 23)
        mantissa = np.int32(magnitude & 0x7FFFFF)
        addend = np.int32(added - less) if exponent == 0 else added
        mantissa = np.int32(np.int32(mantissa << 1) & 0x7FFFFF) if scaled & (exponent == 0) else mantissa
        code: Number = np.int32(exponent + np.int32(np.int32(mantissa + addend) >> 23))
        code = above if pattern > highest else code
        code = infinite if pattern == _F32_INFINITY else code
        code = below if pattern < lowest else code
        is_nan = magnitude > _F32_INFINITY
        counts[0] += (not is_nan) & (pattern < _E8M0_SMALLEST)
        counts[1] += (not is_nan) & (pattern > highest)
        counts[2] += is_nan
        target[i] = np.int32(255) if is_nan else code
