"""The kernel from the codes of floats of at most 8 bits to f32, f16 and bf16.

    E(f32(value * s))
    value = (-1)^sign * 2^(E - bias) * (1 + M / 2^m): the code, shifted, is the bits of an f32
    value = (-1)^sign * M * 2^(1 - bias - m) where E = 0: a conversion of an integer

Codes that mean something else, NaN and infinities, are not looked for one by one: the largest code of a span, in an
order in which these come last, says whether there are any, and then the span is converted by a loop that asks.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from requant.kernels.jit.jit import Array, Number, device, inlined, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I64, U8, In, Out
from requant.kernels.loops import STOP, next_vector, span_loop
from requant.kernels.simd.memory import elements_of, load, load_one
from requant.kernels.simd.narrow import store_f32
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import (
    any_lane,
    bits_as,
    convert,
    count,
    first,
    first_of,
    larger,
    select,
    splat,
    zero_like,
)
from requant.kernels.simd.widen import FloatKind


class Field(IntEnum):
    """Where each number stands in the kernel's `rules`."""

    TARGET = 0
    """FloatKind of the target, not F64."""
    SIGN_BIT = 1
    MANTISSA_BITS = 2
    BIAS = 3
    LARGEST = 4
    """The largest finite magnitude code."""
    INFINITY = 5
    """The magnitude code of infinity, or -1."""
    NAN = 6
    """The one code of NaN where there is no negative zero, or -1: then every other code above LARGEST is a NaN."""
    WIDTH = 7
    """4, 6 or 8: the bits of a code."""


_TARGET, _SIGN_BIT = int(Field.TARGET), int(Field.SIGN_BIT)
_MANTISSA_BITS, _BIAS, _WIDTH = int(Field.MANTISSA_BITS), int(Field.BIAS), int(Field.WIDTH)
_LARGEST, _INFINITY, _NAN = int(Field.LARGEST), int(Field.INFINITY), int(Field.NAN)
_F32 = int(FloatKind.F32)
_QUIET_NAN = np.int32(0x7FC00000)
_F32_INFINITY = np.int32(0x7F800000)


@device
def _finite(codes: Number, format_: tuple[int, int, int, int]) -> Number:
    """The values of finite codes, which are int32."""
    sign_bit, mantissa_bits, bias, width = format_
    magnitude = codes & splat(np.int32(sign_bit - 1))
    normal = (magnitude << splat(np.int32(23 - mantissa_bits))) + splat(np.int32((127 - bias) << 23))
    last_place = bits_as(splat(np.int32((128 - bias - mantissa_bits) << 23)), np.float32)
    subnormal = bits_as(convert(magnitude, np.float32) * last_place, np.int32)
    value = select(magnitude < splat(np.int32(1 << mantissa_bits)), subnormal, normal)
    sign = (codes << splat(np.int32(32 - width))) & splat(np.int32(-0x80000000))
    return bits_as(value | sign, np.float32)


@device
def _rank(codes: Number, order: tuple[int, int]) -> Number:
    """The codes in an order in which those that are no finite numbers, and no codes at all, come last."""
    added, mask = order
    return (codes + splat(np.int32(added))) & splat(np.int32(mask))


@device
def _asked(
    codes: Number, scale: Number, format_: tuple[int, int, int, int], specials: tuple[Number, Number, Number, bool]
) -> tuple[Number, Number]:
    """The scaled values of any codes, and which are NaN. `specials`: LARGEST, INFINITY, NAN, and whether there is one
    NaN only."""
    largest, infinity, nan, one_nan = specials
    magnitude = codes & splat(np.int32(format_[0] - 1))
    is_nan = codes == nan
    if not one_nan:
        is_nan = (magnitude > largest) & (magnitude != infinity)
    value = _finite(codes, format_)
    sign = bits_as(value, np.int32) & splat(np.int32(-0x80000000))
    value = select(magnitude == infinity, bits_as(splat(_F32_INFINITY) | sign, np.float32), value)
    return select(is_nan, bits_as(splat(_QUIET_NAN) | sign, np.float32), value * scale), is_nan


@device
def _whole_vectors(
    source: Array,
    target: Array,
    begin: Number,
    rows: Number,
    length: Number,
    scales: Array,
    parameter: Number,
    cycle: bool,
    kind: int,
    format_: tuple[int, int, int, int],
    order: tuple[int, int],
    asking: bool,
    specials: tuple[Number, Number, Number, bool],
    seen: tuple[Number, Number],
) -> tuple[Number, Number]:
    """Convert the whole vectors of rows, which without `asking` have nothing but finite numbers."""
    most, missing = seen
    scale = load_one(scales, parameter)
    left = length
    for i in range(begin, begin + rows * length - length % LANES, LANES):
        if cycle:
            scale = load(scales, parameter + (i - begin))
        elif rows > 1:
            # Before the vector and not after it: behind the last row there may be no parameter.
            scale = load_one(scales, parameter)
            parameter, left = next_vector(parameter, left, length)
        codes = convert(load(source, i), np.int32)
        most = larger(most, _rank(codes, order))
        if asking:
            value, is_nan = _asked(codes, scale, format_, specials)
            missing += count(is_nan)
        else:
            value = _finite(codes, format_) * scale
        store_f32(target, i, value, kind)
    return most, missing


@inlined
def _convert_rows(
    work: tuple[Number, ...],
    begin: Number,
    rows: Number,
    length: Number,
    parameter: Number,
    cycle: Number,
    check: Number,
    seen: tuple[Number, Number],
) -> tuple[Number, Number]:
    """`seen`: the last code in the order of `_rank`, and how many are NaN."""
    source, target, scales, kind, format_, order, specials, _ = work
    # With constants where it pays.
    if kind != _F32 or cycle or check > 0:
        seen = _whole_vectors(
            source, target, begin, rows, length, scales, parameter, cycle, kind, format_, order, check > 0, specials,
            seen,
        )  # fmt: skip
    else:
        seen = _whole_vectors(
            source, target, begin, rows, length, scales, parameter, False, _F32, format_, order, False, specials, seen
        )
    rest = length % LANES
    if rest > 0:
        i = begin + rows * length - rest
        # A lane that is not there holds a zero, which is no NaN.
        valid = first(rest)
        scale = load(scales, parameter + length - rest, valid) if cycle else load_one(scales, parameter)
        codes = convert(load(source, i, valid), np.int32)
        value, is_nan = _asked(codes, scale, format_, specials)
        seen = (larger(seen[0], _rank(codes, order)), seen[1] + count(is_nan))
        store_f32(target, i, value, kind, valid)
    return seen


@inlined
def _finish(work: tuple[Number, ...], check: Number, seen: tuple[Number, Number], counts: Array) -> Number:
    most, missing = seen
    finite, only_finite = work[7]
    needed = np.int64(any_lane(most > finite))
    if needed > 0 and only_finite:
        return STOP
    if needed <= check:
        counts[2] += missing
    return needed


_convert = span_loop(_convert_rows, _finish)


@kernel()
def decode(
    codes_of_source: In[U8],  # codes
    target_bytes: Out[U8],  # target, as bytes
    start: I64,  # index of source[0] in the whole tensor
    numbers: In[I64],  # requant.kernels.loops.unpacked
    all_scales: In[F32],  # scales, one for each parameter
    rules: In[I64],  # by Field
    counts: Out[I64],  # of which the third is that of NaN
) -> I64:
    """Return the index of the first number that is no code of the format, or -1."""
    prefer_wide_vectors()
    source, size = elements_of(codes_of_source), codes_of_source.size
    format_ = (rules[_SIGN_BIT], rules[_MANTISSA_BITS], rules[_BIAS], rules[_WIDTH])
    largest, infinity = splat(np.int32(rules[_LARGEST])), splat(np.int32(rules[_INFINITY]))
    one_nan = rules[_NAN] >= 0
    specials = (largest, infinity, splat(np.int32(rules[_NAN])), one_nan)
    # With one NaN, it is what comes before all others, modulo 256.
    order = (255 - rules[_NAN], 255) if one_nan else (0, 255 - rules[_SIGN_BIT])
    finite = splat(np.int32(254)) if one_nan else largest
    # Formats of less than 8 bits have nothing but finite numbers: what is special is no code.
    only_finite = rules[_WIDTH] < 8
    work = (
        source, elements_of(target_bytes), elements_of(all_scales), rules[_TARGET], format_, order, specials,
        (finite, only_finite),
    )  # fmt: skip
    done = _convert(work, start, size, numbers, (zero_like(largest), np.int64(0)), counts)
    last_code = splat(np.int32((1 << rules[_WIDTH]) - 1))
    for i in range(done, size, LANES):
        wrong = convert(load(source, i, first(size - i)), np.int32) > last_code
        if any_lane(wrong):
            return int(i + first_of(wrong))
    return -1
