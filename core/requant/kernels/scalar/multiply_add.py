"""a * b + c, rounded once, as LLVM code: of numbers, and of vectors of them.

Where f32 have no instruction for it, LLVM would call a function for each number. In f64 their product p is exact, and

    s = RN(p + c),  t = s - p,  e = (p - (s - t)) + (c - t)       so that s + e = p + c  (Knuth)
    o = s,  or its neighbour in the direction of e, where e is not 0 and the last bit of s is 0
    a * b + c = RN of o to f32

o is p + c rounded to odd. Rounded again to a precision that is smaller by two bits or more, it gives what p + c gives
rounded at once, also to subnormals (S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded sums, 2008). No f64
on the way is subnormal or overflows. For infinities and NaN e is NaN, and s is taken as it is.

f64 are left to LLVM, which calls the C library's `fma` where there is no instruction.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from requant.kernels.jit.processor import HAS_FMA

Value = Any


def generate_multiply_add(builder: Value, a: Value, b: Value, c: Value) -> Value:
    """Return the value. All are of one float type, or vectors of one."""
    element = a.type.element if isinstance(a.type, ir.VectorType) else a.type
    if HAS_FMA or not isinstance(element, ir.FloatType):
        return builder.fma(a, b, c) if element is a.type else _of_vectors(builder, a, b, c)
    return _by_rounding_to_odd(builder, a, b, c)


def _of_vectors(builder: Value, a: Value, b: Value, c: Value) -> Value:
    suffix = "f32" if isinstance(a.type.element, ir.FloatType) else "f64"
    kind = ir.FunctionType(a.type, [a.type] * 3)
    function = builder.module.declare_intrinsic(f"llvm.fma.v{a.type.count}{suffix}", (), kind)
    return builder.call(function, [a, b, c])


def _by_rounding_to_odd(builder: Value, a: Value, b: Value, c: Value) -> Value:
    def like(scalar: Value) -> Value:
        return ir.VectorType(scalar, a.type.count) if isinstance(a.type, ir.VectorType) else scalar

    def number(kind: Value, value: int) -> Value:
        return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)

    real, integer = like(ir.DoubleType()), like(ir.IntType(64))
    a, b, wide_c = (builder.fpext(each, real) for each in (a, b, c))
    product = builder.fmul(a, b)
    total = builder.fadd(product, wide_c)
    added = builder.fsub(total, product)
    error = builder.fadd(
        builder.fsub(product, builder.fsub(total, added)),
        builder.fsub(wide_c, added),
    )
    bits, sign = (builder.bitcast(each, integer) for each in (total, error))
    # One up in magnitude where the error has the sum's sign, else one down.
    step = builder.or_(builder.ashr(builder.xor(bits, sign), number(integer, 63)), number(integer, 1))
    even = builder.icmp_signed("==", builder.and_(bits, number(integer, 1)), number(integer, 0))
    inexact = builder.fcmp_ordered("!=", error, number(real, 0))
    odd = builder.select(builder.and_(even, inexact), builder.add(bits, step), bits)
    return builder.fptrunc(builder.bitcast(odd, real), c.type)
