"""Sixteen codes of at most 4 bits as eight bytes, the first of each pair in the lower half."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import intrinsic
from requant.kernels.simd.memory import place_of
from requant.kernels.simd.vector import LANES, Generated, Vector, call_llvm

_PAIRS = LANES // 2
_BYTE, _INDEX, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)


@intrinsic
def store_half_bytes(
    typing_context: Any, array: Any, index: types.Integer, codes: Vector, count: Any = None
) -> Generated:
    """array[index : index + 8] = the pairs of the int32 codes, of which only the 4 low bits count; with `count` only
    the first so many bytes. The array has bytes for elements."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Of the two codes in 64 bits the first has the lower ones.
        pairs = builder.bitcast(arguments[2], ir.VectorType(_LONG, _PAIRS))
        shift = ir.Constant(pairs.type, [28] * _PAIRS)
        low, high = ir.Constant(pairs.type, [0x0F] * _PAIRS), ir.Constant(pairs.type, [0xF0] * _PAIRS)
        both = builder.or_(builder.and_(pairs, low), builder.and_(builder.lshr(pairs, shift), high))
        kind = ir.VectorType(_BYTE, _PAIRS)
        stored = builder.trunc(both, kind)
        place = place_of(context, builder, array, arguments, kind)
        if isinstance(count, types.Integer):
            numbers = ir.Constant(ir.VectorType(_LONG, _PAIRS), list(range(_PAIRS)))
            nothing = ir.Constant(numbers.type, ir.Undefined)
            wanted = builder.insert_element(nothing, arguments[3], _INDEX(0))
            wanted = builder.shuffle_vector(wanted, nothing, ir.Constant(ir.VectorType(_INDEX, _PAIRS), [0] * _PAIRS))
            mask = builder.icmp_signed("<", numbers, wanted)
            call_llvm(builder, f"llvm.masked.store.v{_PAIRS}i8.p0", ir.VoidType(), [stored, place, _INDEX(1), mask])
        else:
            builder.store(stored, place, align=1)
        return context.get_dummy_value()

    omitted = types.Omitted(None)  # type: ignore[no-untyped-call]
    return types.void(array, index, codes, count if isinstance(count, types.Integer) else omitted), generate
