"""Products of vectors that are wider than their elements."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import intrinsic
from requant.kernels.simd.vector import LANES, Generated, Vector


@intrinsic
def upper_product(typing_context: Any, value: Vector, multiplier: Vector, addend: Vector) -> Generated:
    """The upper 32 bits of value * multiplier + addend: two numbers of 32 bits without a sign, and one of 64.

    Every second element is multiplied at once, for that is what processors have: numbers of 32 bits in the lower halves
    of elements of 64.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count = LANES // 2
        words, halves = ir.VectorType(ir.IntType(64), count), ir.VectorType(ir.IntType(32), LANES)
        lower = ir.Constant(words, [0xFFFFFFFF] * count)
        upper = ir.Constant(words, [32] * count)
        pairs = [builder.bitcast(each, words) for each in arguments[:2]]
        products = []
        for odd in (0, 1):
            a, b = (builder.lshr(pair, upper) if odd else builder.and_(pair, lower) for pair in pairs)
            places = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(odd, LANES, 2)))
            added = builder.shuffle_vector(arguments[2], arguments[2], places)
            products.append(builder.bitcast(builder.add(builder.mul(a, b, flags=("nuw",)), added), halves))
        # The upper half of an element is the second one, on every processor that numba compiles for.
        order = [place + 1 + odd * LANES for place in range(0, LANES, 2) for odd in (0, 1)]
        return builder.shuffle_vector(*products, ir.Constant(halves, order))

    return Vector(types.int32)(value, multiplier, addend), generate
