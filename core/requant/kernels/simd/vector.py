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

LANES = 16
"""Elements in a vector."""

Generated = tuple[Any, Callable[..., Any]]
_INDEX = ir.IntType(32)
_BIT = ir.IntType(1)


def is_float(element: Any) -> bool:
    """Whether a number type is one of floats."""
    return isinstance(element, types.Float)


class Vector(types.Type):
    """Elements of a number type, LANES unless another number is given, or a mask of booleans."""

    def __init__(self, element: Any, lanes: int = LANES) -> None:
        self.element = element
        self.lanes = lanes
        super().__init__(name=f"Vector({element}, {lanes})")

    @property
    def is_float(self) -> bool:
        return is_float(self.element)

    @property
    def is_signed(self) -> bool:
        return self.element in (types.int8, types.int16, types.int32, types.int64)


MASK = Vector(types.boolean)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, llvm_vector(kind.element, kind.lanes))  # type: ignore[no-untyped-call]


def scalar_type(element: Any) -> Any:
    """LLVM's type of one element."""
    if element is types.boolean:
        return _BIT
    if element is types.float32:
        return ir.FloatType()
    if element is types.float64:
        return ir.DoubleType()
    return ir.IntType(element.bitwidth)


def llvm_vector(element: Any, lanes: int = LANES) -> Any:
    """LLVM's type of so many elements."""
    return ir.VectorType(scalar_type(element), lanes)


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
