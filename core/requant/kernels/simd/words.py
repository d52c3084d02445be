"""Words: thirty-two integers of 16 bits as one value, between the integers of 32 bits that a kernel computes and the
bytes that it stores.

In 16 bits an operation does twice as many elements as in 32, and what is beyond them saturates on the way in, which
tells it from all that a byte can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import intrinsic
from requant.kernels.jit.processor import HAS_AVX512BW
from requant.kernels.simd.memory import place_of
from requant.kernels.simd.vector import (
    LANES,
    Generated,
    Vector,
    call_llvm,
    llvm_suffix,
    llvm_vector,
)

WORDS = 2 * LANES
"""Elements in a value."""

KIND = Vector(types.int16, WORDS)

_INDEX = ir.IntType(32)
_BYTE = ir.IntType(8)


def _indices(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_INDEX, len(numbers)), numbers)


def _place_of_word(element: int) -> int:
    """Where an element is in its words. The processor's instruction takes four from the one and four from the other
    vector in turn; each order is as good as another until the bytes are stored."""
    if not HAS_AVX512BW:
        return element
    vector, number = divmod(element, LANES)
    return number // 4 * 8 + vector * 4 + number % 4


@intrinsic
def words_of(typing_context: Any, first: Vector, second: Vector) -> Generated:
    """Two vectors of int32 as words; what 16 bits do not hold becomes -32768 or 32767."""

    def saturated(builder: Any, value: Any) -> Any:
        for name, bound in (("smin", 32767), ("smax", -32768)):
            bounds = ir.Constant(value.type, [bound] * LANES)
            value = call_llvm(builder, f"llvm.{name}.v{LANES}i32", value.type, [value, bounds])
        return builder.trunc(value, llvm_vector(types.int16))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if HAS_AVX512BW:
            return call_llvm(builder, "llvm.x86.avx512.packssdw.512", llvm_vector(types.int16, WORDS), list(arguments))
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

smaller_words = _binary("smin")
"""The smaller of each pair."""

larger_words = _binary("smax")
"""The larger of each pair."""


def _store_low_bytes(array: types.Array, index: types.Integer, *words: Vector) -> Generated:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(_BYTE, 2 * WORDS)
        values = [builder.bitcast(each, kind) for each in arguments[2:]]
        # Of a word, the low byte is the first on every processor that numba compiles for.
        order = [
            number * 2 * WORDS + 2 * _place_of_word(element) for number in range(len(words)) for element in range(WORDS)
        ]
        stored = builder.shuffle_vector(values[0], values[-1], _indices(order))
        place = place_of(context, builder, array, arguments, stored.type)
        builder.store(stored, place, align=1)
        return context.get_dummy_value()

    return types.void(array, index, *words), generate


@intrinsic
def store_low_bytes(typing_context: Any, array: types.Array, index: types.Integer, words: Vector) -> Generated:
    """array[index : index + 32] = the low bytes of the words; the array has bytes for elements."""
    return _store_low_bytes(array, index, words)


@intrinsic
def store_low_bytes_of_two(
    typing_context: Any, array: types.Array, index: types.Integer, first: Vector, second: Vector
) -> Generated:
    """The same of 64 words."""
    return _store_low_bytes(array, index, first, second)
