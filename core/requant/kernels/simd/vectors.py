"""What is done with vectors (`requant.kernels.simd.vector`) beside Python's operators: making them, changing them,
looking at all of their elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import Number, device, intrinsic
from requant.kernels.scalar.multiply_add import generate_multiply_add
from requant.kernels.simd.vector import (
    LANES,
    MASK,
    Generated,
    Vector,
    call_llvm,
    is_float,
    llvm_suffix,
    llvm_vector,
    scalar_type,
)

_INDEX = ir.IntType(32)
_BIT = ir.IntType(1)


# Making vectors, and changing them.


def repeated(builder: Any, value: Any, lanes: int = LANES) -> Any:
    """The vector of so many times the LLVM value."""
    nothing = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(nothing, value, _INDEX(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_INDEX, lanes), [0] * lanes))


@intrinsic
def splat(typing_context: Any, value: Any) -> Generated:
    """LANES times the same number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value_or_bit = arguments[0]
        if value is types.boolean:
            value_or_bit = builder.trunc(value_or_bit, _BIT) if value_or_bit.type != _BIT else value_or_bit
        return repeated(builder, value_or_bit)

    return Vector(value)(value), generate


@intrinsic
def zero_like(typing_context: Any, vector: Vector) -> Generated:
    """LANES zeros of the same type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(llvm_vector(vector.element), [0] * LANES)

    return vector(vector), generate


@intrinsic
def one_like(typing_context: Any, vector: Vector) -> Generated:
    """LANES ones of the same type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(llvm_vector(vector.element), [1.0 if vector.is_float else 1] * LANES)

    return vector(vector), generate


@intrinsic
def ramp(typing_context: Any, start: types.Integer) -> Generated:
    """start, start + 1, and so on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        steps = ir.Constant(llvm_vector(start), list(range(LANES)))
        return builder.add(repeated(builder, arguments[0]), steps)

    return Vector(start)(start), generate


@intrinsic
def first(typing_context: Any, count: types.Integer) -> Generated:
    """The mask of the first `count` elements; of all, if there are not as many."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(arguments[0].type, LANES)
        return builder.icmp_signed("<", ir.Constant(kind, list(range(LANES))), repeated(builder, arguments[0]))

    return MASK(count), generate


@intrinsic
def select(typing_context: Any, mask: Vector, a: Vector, b: Vector) -> Generated:
    """Where the mask is set a, elsewhere b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return a(mask, a, b), generate


@intrinsic
def convert(typing_context: Any, vector: Vector, number_class: Any) -> Generated:
    """The elements as another type: integers cut or extended, floats rounded (RNE), masks as 0 and -1. A float that
    becomes an integer is cut to it, and must lie in its range: LLVM leaves all else undefined, and processors differ.
    Callers clamp it first, by `smaller` and `larger`, which make a bound of NaN."""
    source, target = vector.element, number_class.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, kind = arguments[0], llvm_vector(target)
        if source == target:
            return value
        if is_float(source) and is_float(target):
            return builder.fpext(value, kind) if target.bitwidth > source.bitwidth else builder.fptrunc(value, kind)
        if is_float(source):
            return builder.fptosi(value, kind)
        if is_float(target):
            return builder.sitofp(value, kind) if vector.is_signed else builder.uitofp(value, kind)
        width = value.type.element.width
        if width == target.bitwidth:
            return value
        if width > target.bitwidth:
            return builder.trunc(value, kind)
        # A mask, like a signed integer, extends its highest bit: -1 where it is set.
        return builder.sext(value, kind) if vector.is_signed or vector == MASK else builder.zext(value, kind)

    return Vector(target)(vector, number_class), generate


@intrinsic
def bits_as(typing_context: Any, vector: Vector, number_class: Any) -> Generated:
    """The same bits as elements of another type of their width."""
    target = number_class.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], llvm_vector(target))

    return Vector(target)(vector, number_class), generate


@intrinsic
def multiply_add(typing_context: Any, a: Vector, b: Vector, c: Vector) -> Generated:
    """a * b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return generate_multiply_add(builder, *arguments)

    return a(a, b, c), generate


def _unary(name: str) -> Callable[[Any], Any]:
    @intrinsic
    def function(typing_context: Any, vector: Vector) -> Generated:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return call_llvm(builder, f"llvm.{name}.{llvm_suffix(vector)}", arguments[0].type, list(arguments))

        return vector(vector), generate

    return function


half_even = _unary("roundeven")
"""RNE."""

half_away = _unary("round")
"""RNA."""

toward_zero = _unary("trunc")
"""RTZ."""

down = _unary("floor")
"""RD."""

up = _unary("ceil")
"""The smallest integer not below."""

magnitude = _unary("fabs")
"""|x|."""


# Of a whole vector.


def _reduction(name: str) -> Callable[[Any], Any]:
    @intrinsic
    def function(typing_context: Any, vector: Vector) -> Generated:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            full = f"llvm.vector.reduce.{name}.{llvm_suffix(vector)}"
            return call_llvm(builder, full, scalar_type(vector.element), list(arguments))

        return vector.element(vector), generate

    return function


total = _reduction("add")
"""The sum of the integers."""

largest = _reduction("smax")
"""The largest of the signed integers."""


@intrinsic
def count(typing_context: Any, mask: Vector) -> Generated:
    """How many elements the mask has."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(mask.lanes)
        counted = call_llvm(builder, f"llvm.ctpop.i{mask.lanes}", word, [builder.bitcast(arguments[0], word)])
        return builder.zext(counted, ir.IntType(64))

    return types.int64(mask), generate


@intrinsic
def first_of(typing_context: Any, mask: Vector) -> Generated:
    """The index of the first element of the mask, which has one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(LANES)
        found = builder.cttz(builder.bitcast(arguments[0], word), _BIT(1))
        return builder.zext(found, ir.IntType(64))

    return types.int64(mask), generate


@intrinsic
def any_lane(typing_context: Any, mask: Vector) -> Generated:
    """Whether the mask has any element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(mask.lanes)
        return builder.icmp_unsigned("!=", builder.bitcast(arguments[0], word), word(0))

    return types.boolean(mask), generate


@device
def smaller(a: Number, b: Number) -> Number:
    """The smaller of each pair; b where one is NaN."""
    return select(a < b, a, b)


@device
def larger(a: Number, b: Number) -> Number:
    """The larger of each pair; b where one is NaN."""
    return select(a > b, a, b)


@device
def clamp(value: Number, lowest: Number, highest: Number) -> Number:
    """The nearest between the bounds."""
    return smaller(larger(value, lowest), highest)
