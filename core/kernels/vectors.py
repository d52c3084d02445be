"""Sixteen elements at once, as one value: a numba type for LLVM's vectors, with Python's operators.

LLVM makes of a vector what the processor has: one register of 512 bits for sixteen f32, two of 256, or four of 128.
What an operator does for one element it does for all. A comparison gives a mask, a vector of booleans, and `select`
takes the place of `if`. Integers wrap.

Loops that LLVM vectorizes by itself would do for long runs. These are as fast there, do not depend on whether LLVM sees
through a loop, have no slow remainder, and are a tenth of the code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import lower_builtin, register_model, type_callable

from core.kernels._jit import Number, device, intrinsic

LANES = 16
"""Elements in a vector."""

Generated = tuple[Any, Callable[..., Any]]
_INDEX = ir.IntType(32)
_BIT = ir.IntType(1)


def _is_float(element: Any) -> bool:
    return isinstance(element, types.Float)


class Vector(types.Type):
    """Elements of a number type, LANES unless another number is given, or a mask of booleans."""

    def __init__(self, element: Any, lanes: int = LANES) -> None:
        self.element = element
        self.lanes = lanes
        super().__init__(name=f"Vector({element}, {lanes})")

    @property
    def is_float(self) -> bool:
        return _is_float(self.element)

    @property
    def is_signed(self) -> bool:
        return self.element in (types.int8, types.int16, types.int32, types.int64)


MASK = Vector(types.boolean)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, llvm_vector(kind.element, kind.lanes))  # type: ignore[no-untyped-call]


def _scalar_type(element: Any) -> Any:
    if element is types.boolean:
        return _BIT
    if element is types.float32:
        return ir.FloatType()
    if element is types.float64:
        return ir.DoubleType()
    return ir.IntType(element.bitwidth)


def llvm_vector(element: Any, lanes: int = LANES) -> Any:
    """LLVM's type of so many elements."""
    return ir.VectorType(_scalar_type(element), lanes)


def call_llvm(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Call an intrinsic of LLVM by its full name."""
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def llvm_suffix(vector: Vector) -> str:
    """How LLVM names the type in its intrinsics."""
    kind = "f" if vector.is_float else "i"
    return f"v{vector.lanes}{kind}{1 if vector.element is types.boolean else vector.element.bitwidth}"


# Operators.


def _define(python: Any, result: Callable[[Vector], Vector], generate: Callable[[Any, Vector, Any, Any], Any]) -> None:
    """Give an operator of two equal vectors its meaning."""

    def typer_of(context: Any) -> Callable[[Any, Any], Any]:
        def typer(a: Any, b: Any) -> Any:
            return result(a) if isinstance(a, Vector) and a == b else None

        return typer

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return generate(builder, signature.args[0], *arguments)

    type_callable(python)(typer_of)
    lower_builtin(python, Vector, Vector)(lower)  # type: ignore[no-untyped-call]


def _arithmetic(python: Any, floating: str | None, signed: str | None, unsigned: str | None = None) -> None:
    def generate(builder: Any, kind: Vector, a: Any, b: Any) -> Any:
        name = floating if kind.is_float else signed if kind.is_signed or unsigned is None else unsigned
        assert name is not None, f"{python} of {kind}"
        return getattr(builder, name)(a, b)

    _define(python, lambda kind: kind, generate)


def _comparison(python: Any, sign: str) -> None:
    def generate(builder: Any, kind: Vector, a: Any, b: Any) -> Any:
        if not kind.is_float:
            return builder.icmp_signed(sign, a, b) if kind.is_signed else builder.icmp_unsigned(sign, a, b)
        # As everywhere, a comparison with NaN is false, and `!=` is true.
        return builder.fcmp_unordered(sign, a, b) if sign == "!=" else builder.fcmp_ordered(sign, a, b)

    _define(python, lambda kind: Vector(types.boolean, kind.lanes), generate)


for _python, *_names in (
    (operator.add, "fadd", "add"),
    (operator.sub, "fsub", "sub"),
    (operator.mul, "fmul", "mul"),
    (operator.truediv, "fdiv", None),
    (operator.and_, None, "and_"),
    (operator.or_, None, "or_"),
    (operator.xor, None, "xor"),
    (operator.lshift, None, "shl"),
    (operator.rshift, None, "ashr", "lshr"),
):
    _arithmetic(_python, *_names)
for _python, _sign in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
    (operator.ne, "!="),
):
    _comparison(_python, _sign)


def _define_unary(python: Any, generate: Callable[[Any, Vector, Any], Any]) -> None:
    """Give an operator of one vector its meaning."""

    def typer_of(context: Any) -> Callable[[Any], Any]:
        return lambda vector: vector if isinstance(vector, Vector) else None

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return generate(builder, signature.args[0], arguments[0])

    type_callable(python)(typer_of)
    lower_builtin(python, Vector)(lower)  # type: ignore[no-untyped-call]


_define_unary(operator.invert, lambda builder, kind, a: builder.not_(a))
_define_unary(operator.neg, lambda builder, kind, a: builder.fneg(a) if kind.is_float else builder.neg(a))


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
    becomes an integer is cut to it, and must lie in its range."""
    source, target = vector.element, number_class.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, kind = arguments[0], llvm_vector(target)
        if source == target:
            return value
        if _is_float(source) and _is_float(target):
            return builder.fpext(value, kind) if target.bitwidth > source.bitwidth else builder.fptrunc(value, kind)
        if _is_float(source):
            return builder.fptosi(value, kind)
        if _is_float(target):
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
        return call_llvm(builder, f"llvm.fma.{llvm_suffix(a)}", arguments[0].type, list(arguments))

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
            return call_llvm(builder, full, _scalar_type(vector.element), list(arguments))

        return vector.element(vector), generate

    return function


total = _reduction("add")
"""The sum of the integers."""


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
def some(typing_context: Any, mask: Vector) -> Generated:
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
