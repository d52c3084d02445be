"""Words: thirty-two integers of 16 bits as one value, between the integers of 32 bits that a kernel computes and the
bytes that it stores.

In 16 bits an operation does twice as many elements as in 32, and what is beyond them saturates on the way in, which
tells it from all that a byte can hold.

A kernel first stores sums as if none saturated, and keeps the lowest and the highest. Only where these are outside of
the bounds it goes through the elements once more, clamps and counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import Array, Number, device, intrinsic
from requant.kernels.jit.processor import HAS_AVX2, HAS_AVX512BW, IS_X86
from requant.kernels.simd.integer_lanes import store_block
from requant.kernels.simd.memory import place_of
from requant.kernels.simd.vector import (
    LANES,
    Generated,
    Vector,
    call_llvm,
    llvm_suffix,
    llvm_vector,
)
from requant.kernels.simd.vectors import clamp, convert, count

WORDS = 2 * LANES
"""Elements in a value."""

KIND = Vector(types.int16, WORDS)

_INDEX = ir.IntType(32)
_BYTE = ir.IntType(8)


def _indices(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_INDEX, len(numbers)), numbers)


# x86's instructions that pack two registers into one of numbers half as wide, by the bits of a register: of int32, and
# of int16 without a sign.
_PACKS = {
    512: ("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packuswb.512"),
    256: ("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packuswb"),
    128: ("llvm.x86.sse2.packssdw.128", "llvm.x86.sse2.packuswb.128"),
}
_REGISTER = 512 if HAS_AVX512BW else 256 if HAS_AVX2 else 128
_PACK_WORDS, _PACK_BYTES = _PACKS[_REGISTER]


def _packed_order(elements: list[int], bits: int) -> list[int]:
    """Which element is where after registers of `bits` wide numbers, two by two, are packed: the instruction takes from
    the one and the other in turn, 128 bits of each."""
    size, part = _REGISTER // bits, 128 // bits
    return [
        elements[pair + side * size + begin + number]
        for pair in range(0, len(elements), 2 * size)
        for begin in range(0, size, part)
        for side in range(2)
        for number in range(part)
    ]


_ORDER = _packed_order(list(range(WORDS)), 32) if IS_X86 else list(range(WORDS))
"""Which element each of the words is. Each order is as good as another until the bytes are stored."""


def _pack(builder: Any, name: str, values: list[Any], bits: int) -> Any:
    """The values, of `bits` wide numbers, packed by the instruction of that name."""
    size = _REGISTER // bits
    registers = [
        builder.shuffle_vector(value, value, _indices(list(range(begin, begin + size))))
        for value in values
        for begin in range(0, value.type.count, size)
    ]
    kind = ir.VectorType(ir.IntType(bits // 2), 2 * size)
    packed = [call_llvm(builder, name, kind, [a, b]) for a, b in zip(registers[::2], registers[1::2], strict=True)]
    while len(packed) > 1:
        together = _indices(list(range(2 * packed[0].type.count)))
        packed = [builder.shuffle_vector(a, b, together) for a, b in zip(packed[::2], packed[1::2], strict=True)]
    return packed[0]


@intrinsic
def words_of(typing_context: Any, first: Vector, second: Vector) -> Generated:
    """Two vectors of int32 as words; what 16 bits do not hold becomes -32768 or 32767."""

    def saturated(builder: Any, value: Any) -> Any:
        for name, bound in (("smin", 32767), ("smax", -32768)):
            bounds = ir.Constant(value.type, [bound] * LANES)
            value = call_llvm(builder, f"llvm.{name}.v{LANES}i32", value.type, [value, bounds])
        return builder.trunc(value, llvm_vector(types.int16))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_X86:
            return _pack(builder, _PACK_WORDS, list(arguments), 32)
        halves = [saturated(builder, each) for each in arguments]
        return builder.shuffle_vector(*halves, _indices(list(range(WORDS))))

    return KIND(first, second), generate


@intrinsic
def splat_words(typing_context: Any, value: types.Integer) -> Generated:
    """The same number, which fits 16 bits, in all words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = llvm_vector(types.int16, WORDS)
        nothing = ir.Constant(kind, ir.Undefined)
        one = builder.insert_element(nothing, builder.trunc(arguments[0], kind.element), _INDEX(0))
        return builder.shuffle_vector(one, nothing, _indices([0] * WORDS))

    return KIND(value), generate


def _binary(name: str) -> Callable[[Any, Any], Any]:
    @intrinsic
    def function(typing_context: Any, a: Vector, b: Vector) -> Generated:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return call_llvm(builder, f"llvm.{name}.{llvm_suffix(a)}", arguments[0].type, list(arguments))

        return a(a, b), generate

    return function


add_saturating = _binary("sadd.sat")
"""a + b; what 16 bits do not hold becomes -32768 or 32767."""

larger_unsigned = _binary("umax")
"""The larger of each pair, as numbers without a sign."""

smaller_words = _binary("smin")
"""The smaller of each pair."""

larger_words = _binary("smax")
"""The larger of each pair."""


def _store(array: types.Array, index: types.Integer, words: tuple[Vector, ...], lowest: Vector | None) -> Generated:
    def in_order(builder: Any, values: list[Any]) -> Any:
        elements = [number * WORDS + element for number in range(len(words)) for element in _ORDER]
        if IS_X86 and len(elements) * 16 >= 2 * _REGISTER:
            if lowest is None:
                low = ir.Constant(values[0].type, [255] * WORDS)
                values = [builder.and_(each, low) for each in values]
            packed = _pack(builder, _PACK_BYTES, values, 16)
            order = _packed_order(elements, 16)
            return builder.shuffle_vector(packed, packed, _indices([order.index(each) for each in range(len(order))]))
        # Of a word, the low byte is the first on every processor that numba compiles for.
        kind = ir.VectorType(_BYTE, 2 * WORDS)
        values = [builder.bitcast(each, kind) for each in values]
        places = [2 * elements.index(each) for each in range(len(elements))]
        return builder.shuffle_vector(values[0], values[-1], _indices(places))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = in_order(builder, list(arguments[2 : 2 + len(words)]))
        if lowest is not None:
            every = _indices([0] * stored.type.count)
            stored = builder.add(stored, builder.shuffle_vector(arguments[-1], arguments[-1], every))
        place = place_of(context, builder, array, arguments, stored.type)
        builder.store(stored, place, align=1)
        return context.get_dummy_value()

    return types.void(array, index, *words, *(() if lowest is None else (lowest,))), generate


@intrinsic
def store_bytes(
    typing_context: Any, array: types.Array, index: types.Integer, words: Vector, lowest: Vector
) -> Generated:
    """array[index : index + 32] = the words, which are 0 to 255, + lowest; the array has bytes for elements.

    Other words give anything. `lowest` has the same byte in all elements.
    """
    return _store(array, index, (words,), lowest)


@intrinsic
def store_bytes_of_two(
    typing_context: Any, array: types.Array, index: types.Integer, first: Vector, second: Vector, lowest: Vector
) -> Generated:
    """The same of 64 words."""
    return _store(array, index, (first, second), lowest)


@intrinsic
def store_low_bytes_of_two(
    typing_context: Any, array: types.Array, index: types.Integer, first: Vector, second: Vector
) -> Generated:
    """array[index : index + 64] = the low bytes of the words; the array has bytes for elements."""
    return _store(array, index, (first, second), None)


@intrinsic
def count_words(typing_context: Any, tally: Vector, mask: Vector) -> Generated:
    """One more where the mask is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sub(arguments[0], builder.sext(arguments[1], arguments[0].type))

    return tally(tally, mask), generate


@device
def store_sums(
    target: Array,
    index: Number,
    block: tuple[Number, Number, Number, Number],
    zero: Number,
    bounds: tuple[Number, Number],
    extremes: tuple[Number, Number],
    counts: tuple[Number, Number],
    counting: bool,
) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    """target[index : index + 64] = the block + zero, in bytes. Return the extremes, and how many saturate low and high.

    `block` has four vectors of int32; `zero`, `bounds` and `extremes` are words, the first of less than 15 bits. In
    words what is too large saturates on the far side of the bounds. Only with `counting` it is clamped and counted.
    """
    p = add_saturating(words_of(block[0], block[1]), zero)
    q = add_saturating(words_of(block[2], block[3]), zero)
    low, high = counts
    if counting:
        low += count(p < bounds[0]) + count(q < bounds[0])
        high += count(p > bounds[1]) + count(q > bounds[1])
    least = smaller_words(extremes[0], smaller_words(p, q))
    most = larger_words(extremes[1], larger_words(p, q))
    if counting:
        p = smaller_words(larger_words(p, bounds[0]), bounds[1])
        q = smaller_words(larger_words(q, bounds[0]), bounds[1])
    store_low_bytes_of_two(target, index, p, q)
    return (least, most), (low, high)


@device
def store_wide_sums(
    target: Array,
    index: Number,
    block: tuple[Number, Number, Number, Number],
    bounds: tuple[Number, Number],
    tally: tuple[Number, Number, Number],
    size: int,
    counting: bool,
) -> tuple[Number, Number, Number]:
    """The block within the bounds, in numbers of `size` bytes, to the target. Return the tally, in vectors of int32.

    The tally has bits that clamping changed, in any lane, and only with `counting` how many saturate low and high.
    """
    a, b, c, d = block
    e, f = clamp(a, bounds[0], bounds[1]), clamp(b, bounds[0], bounds[1])
    g, h = clamp(c, bounds[0], bounds[1]), clamp(d, bounds[0], bounds[1])
    changed, low, high = tally
    changed = changed | (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h)
    if counting:
        low = low - convert(a < bounds[0], np.int32) - convert(b < bounds[0], np.int32)
        low = low - convert(c < bounds[0], np.int32) - convert(d < bounds[0], np.int32)
        high = high - convert(a > bounds[1], np.int32) - convert(b > bounds[1], np.int32)
        high = high - convert(c > bounds[1], np.int32) - convert(d > bounds[1], np.int32)
    store_block(target, index, e, f, g, h, size)
    return changed, low, high


@device
def tallied(
    tally: tuple[Number, Number, Number], summed: Number, stored: Number, bounds: tuple[Number, Number]
) -> tuple[Number, Number, Number]:
    """The tally of `store_wide_sums` with sixteen sums more, and what is stored of them; these are always counted."""
    changed, low, high = tally
    low = low - convert(summed < bounds[0], np.int32)
    high = high - convert(summed > bounds[1], np.int32)
    return changed | (stored ^ summed), low, high
