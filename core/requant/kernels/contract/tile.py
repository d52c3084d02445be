"""The innermost block of a matrix product: a tile of sums that stays in the vector registers while k goes by.

    c[m, n] += sum over k of a[m, k] * b[k, n], modulo 2^32

Both operands are packed (`requant.kernels.contract.accumulate`): for each group of k, of 4 bytes or of 2 numbers of 16
bits, one 32-bit word for each row or column of the tile. One instruction multiplies the words of a vector number by
number and adds the products of each word to its 32-bit sum: of bytes, the ones of a unsigned and those of b signed,
with the dot product instructions of AVX-512 VNNI (`vpdpbusd`), or all of them signed with those of ARM (`sdot`); of
16-bit numbers with `vpmaddwd`, which LLVM fuses with the addition where the processor can. None saturates, so that sums
are exact modulo 2^32. Where there is no such instruction LLVM gets the same as plain vector code. LLVM does not find
these by itself: a loop in Python becomes 32-bit multiplications, four times slower and more (measured with LLVM 22).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from requant.kernels.jit.processor import (
    HAS_AVX2,
    HAS_AVX512BW,
    HAS_AVX512F,
    HAS_DOT_PRODUCT,
    HAS_VNNI,
    IS_AARCH64,
)

_WIDE = HAS_AVX512F and HAS_AVX512BW

HAS_BYTE_PRODUCTS = (_WIDE and HAS_VNNI) or HAS_DOT_PRODUCT
"""Whether there is an instruction for products of bytes. Without it bytes are packed as 16-bit numbers."""

ROWS_ARE_UNSIGNED = not HAS_DOT_PRODUCT
"""Whether its bytes of a are unsigned."""

_LANES = 16 if _WIDE else 4 if IS_AARCH64 else 8
_VECTORS = 4 if _WIDE or IS_AARCH64 else 2
TILE_ROWS = 6
TILE_COLUMNS = _LANES * _VECTORS
"""6 by 4 vectors of sums, one row of b and one number of a fill 29 of the 32 registers; 6 by 2, 15 of 16."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_WORDS = ir.VectorType(_I32, _LANES)
_PAIRS = ir.VectorType(_I16, 2 * _LANES)
_BYTES = ir.VectorType(_I8, 4 * _LANES)

Value = Any


def _byte_products(builder: Value, sums: Value, a: Value, b: Value) -> Value:
    kind = ir.FunctionType(_WORDS, [_WORDS, _BYTES, _BYTES])
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8" if HAS_DOT_PRODUCT else "llvm.x86.avx512.vpdpbusd.512"
    multiply = builder.module.declare_intrinsic(name, (), kind)
    return builder.call(multiply, [sums, builder.bitcast(a, _BYTES), builder.bitcast(b, _BYTES)])


def _pair_products(builder: Value, sums: Value, a: Value, b: Value) -> Value:
    a, b = builder.bitcast(a, _PAIRS), builder.bitcast(b, _PAIRS)
    if HAS_AVX2:
        name = "llvm.x86.avx512.pmaddw.d.512" if _WIDE else "llvm.x86.avx2.pmadd.wd"
        multiply = builder.module.declare_intrinsic(name, (), ir.FunctionType(_WORDS, [_PAIRS, _PAIRS]))
        return builder.add(sums, builder.call(multiply, [a, b]))
    for first in (0, 1):
        mask = ir.Constant(_WORDS, list(range(first, 2 * _LANES, 2)))
        one, other = (
            builder.sext(builder.shuffle_vector(each, ir.Constant(_PAIRS, ir.Undefined), mask), _WORDS)
            for each in (a, b)
        )
        sums = builder.add(sums, builder.mul(one, other))
    return sums


def _tile(products: Callable[[Value, Value, Value, Value], Value]) -> Callable[..., None]:
    def index(builder: Value, base: Value, offset: int) -> Value:
        return builder.add(base, ir.Constant(_I64, offset))

    def aligned(access: Value) -> Value:
        access.align = 4
        return access

    def generate(context: Any, builder: Value, signature: Value, arguments: Value) -> Value:
        a, b, groups, c, stride = arguments
        a, b, c = (builder.inttoptr(each, _I32.as_pointer()) for each in (a, b, c))
        places = [(row, vector) for row in range(TILE_ROWS) for vector in range(_VECTORS)]
        undefined = ir.Constant(_WORDS, ir.Undefined)
        before = builder.block
        body, after = (builder.append_basic_block(name) for name in ("groups", "sums"))
        builder.branch(body)

        builder.position_at_end(body)
        group = builder.phi(_I64)
        group.add_incoming(ir.Constant(_I64, 0), before)
        sums = {place: builder.phi(_WORDS) for place in places}
        for each in sums.values():
            each.add_incoming(ir.Constant(_WORDS, [0] * _LANES), before)
        of_a = builder.mul(group, ir.Constant(_I64, TILE_ROWS))
        of_b = builder.mul(group, ir.Constant(_I64, TILE_COLUMNS))
        columns = [
            aligned(
                builder.load(
                    builder.bitcast(builder.gep(b, [index(builder, of_b, vector * _LANES)]), _WORDS.as_pointer())
                )
            )
            for vector in range(_VECTORS)
        ]
        added = {}
        for row in range(TILE_ROWS):
            word = aligned(builder.load(builder.gep(a, [index(builder, of_a, row)])))
            first = builder.insert_element(undefined, word, ir.Constant(_I32, 0))
            repeated = builder.shuffle_vector(first, undefined, ir.Constant(_WORDS, [0] * _LANES))
            for vector in range(_VECTORS):
                added[row, vector] = products(builder, sums[row, vector], repeated, columns[vector])
        following = builder.add(group, ir.Constant(_I64, 1))
        group.add_incoming(following, body)
        for place in places:
            sums[place].add_incoming(added[place], body)
        builder.cbranch(builder.icmp_signed("<", following, groups), body, after)

        builder.position_at_end(after)
        for row, vector in places:
            start = builder.mul(stride, ir.Constant(_I64, row))
            pointer = builder.gep(c, [index(builder, start, vector * _LANES)])
            pointer = builder.bitcast(pointer, _WORDS.as_pointer())
            aligned(builder.store(builder.add(aligned(builder.load(pointer)), added[row, vector]), pointer))
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing_context: Any, a: types.Type, b: types.Type, groups: types.Type, c: types.Type, stride: types.Type
    ) -> tuple[Any, Callable[..., Any]]:
        return types.void(*[types.int64] * 5), generate

    return cast(Callable[..., None], tile)


multiply_tile_of_bytes = _tile(_byte_products)
"""Add the product of a panel of a and one of b to a tile: (address of a, of b, groups of k, address of c, its columns).

At least one group. a: TILE_ROWS words for each group; b: TILE_COLUMNS words; c: int32, TILE_ROWS rows.
"""

multiply_tile_of_pairs = _tile(_pair_products)
"""The same of groups of two signed 16-bit numbers."""
