"""Vectors from and to arrays. An array of bytes can hold elements of any type, which is then named; indices count
elements. For an array there may also be the address of its elements.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import intrinsic
from requant.kernels.simd.vector import (
    LANES,
    Generated,
    Vector,
    call_llvm,
    llvm_suffix,
    llvm_vector,
)
from requant.kernels.simd.vectors import (
    repeated,
)

_INDEX = ir.IntType(32)
_LEFT_OUT = types.Omitted(None)  # type: ignore[no-untyped-call]


def _data(context: Any, builder: Any, array: Any, value: Any) -> Any:
    if isinstance(array, types.CPointer):
        return value
    make: Any = context.make_array(array)
    return make(context, builder, value).data


def place_of(context: Any, builder: Any, array: Any, arguments: Any, vector: Any) -> Any:
    """The address of array[index], the first two of the arguments, as that of an LLVM vector."""
    pointer = builder.bitcast(_data(context, builder, array, arguments[0]), vector.element.as_pointer())
    return builder.bitcast(builder.gep(pointer, [arguments[1]]), vector.as_pointer())


def _load(element: Any, array: Any, arguments: tuple[Any, ...], mask: Any) -> Generated:
    result = Vector(element)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = llvm_vector(element)
        place = place_of(context, builder, array, values, kind)
        if not isinstance(mask, Vector):
            return builder.load(place, align=element.bitwidth // 8)
        name = f"llvm.masked.load.{llvm_suffix(result)}.p0"
        nothing = ir.Constant(kind, [0] * LANES)
        return call_llvm(builder, name, kind, [place, _INDEX(element.bitwidth // 8), values[-1], nothing])

    return result(array, *arguments, _LEFT_OUT if mask is None else mask), generate


def _store(element: Any, array: Any, arguments: tuple[Any, ...], mask: Any) -> Generated:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = llvm_vector(element)
        value = values[2] if values[2].type == kind else builder.trunc(values[2], kind)
        place = place_of(context, builder, array, values, kind)
        align = element.bitwidth // 8
        if isinstance(mask, Vector):
            name = f"llvm.masked.store.{llvm_suffix(Vector(element))}.p0"
            call_llvm(builder, name, ir.VoidType(), [value, place, _INDEX(align), values[-1]])
        else:
            builder.store(value, place, align=align)
        return context.get_dummy_value()

    return types.void(array, *arguments, _LEFT_OUT if mask is None else mask), generate


@intrinsic
def elements_of(typing_context: Any, array: types.Array) -> Generated:
    """The address of the array's elements, for functions: numba counts, atomically, who holds an array that is passed
    to one, which takes longer than some rows."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _data(context, builder, array, values[0])

    address: Any = types.CPointer(array.dtype)  # type: ignore[no-untyped-call]
    return address(array), generate


@intrinsic
def new_tally(typing_context: Any) -> Generated:
    """The address of three int64 in the kernel's own memory, all 0."""
    kind = ir.ArrayType(ir.IntType(64), 3)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = builder.alloca(kind)
        builder.store(ir.Constant(kind, None), place)
        return builder.bitcast(place, ir.IntType(64).as_pointer())

    address: Any = types.CPointer(types.int64)  # type: ignore[no-untyped-call]
    return address(), generate


@intrinsic
def load(typing_context: Any, array: types.Array, index: types.Integer, mask: Any = None) -> Generated:
    """array[index : index + LANES]. With a mask, zeros for the elements outside of it, whose memory is not touched."""
    return _load(array.dtype, array, (index,), mask)


@intrinsic
def load_as(
    typing_context: Any, array: types.Array, index: types.Integer, number_class: Any, mask: Any = None
) -> Generated:
    """load from an array of bytes."""
    return _load(number_class.dtype, array, (index, number_class), mask)


@intrinsic
def load_one(typing_context: Any, array: types.Array, index: types.Integer) -> Generated:
    """LANES times array[index]; the index, unlike one in brackets, is not looked at for its sign."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = builder.gep(_data(context, builder, array, values[0]), [values[1]])
        return repeated(builder, builder.load(place))

    return Vector(array.dtype)(array, index), generate


@intrinsic
def gather(typing_context: Any, array: Any, indices: Vector) -> Generated:
    """array[index] for each of the indices, all of which have to be in it."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        found = ir.Constant(llvm_vector(array.dtype), ir.Undefined)
        data = _data(context, builder, array, values[0])
        for lane in range(LANES):
            place = builder.gep(data, [builder.extract_element(values[1], _INDEX(lane))])
            found = builder.insert_element(found, builder.load(place), _INDEX(lane))
        return found

    return Vector(array.dtype)(array, indices), generate


@intrinsic
def store(typing_context: Any, array: types.Array, index: types.Integer, vector: Vector, mask: Any = None) -> Generated:
    """array[index : index + LANES] = vector, those in the mask. Integers wider than the array's lose upper bits."""
    return _store(array.dtype, array, (index, vector), mask)


@intrinsic
def store_as(
    typing_context: Any,
    array: types.Array,
    index: types.Integer,
    vector: Vector,
    number_class: Any,
    mask: Any = None,
) -> Generated:
    """store to an array of bytes."""
    return _store(number_class.dtype, array, (index, vector, number_class), mask)


@intrinsic
def prefetch(typing_context: Any, array: Any, index: types.Integer) -> Generated:
    """Have array[index] brought to the cache. It may lie beyond the end of the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        place = builder.bitcast(place, ir.IntType(8).as_pointer())
        # To read, to be kept in all caches, data and not code.
        call_llvm(builder, "llvm.prefetch.p0", ir.VoidType(), [place, _INDEX(0), _INDEX(3), _INDEX(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


_PAIRS = LANES // 2
_BYTE, _LONG = ir.IntType(8), ir.IntType(64)


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
