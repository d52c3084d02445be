"""StableHLO's quantized operations, each lowered by its passes, or written as its specification's formula, and run.

The interpreter takes no quantized operands: `stablehlo-legalize-quant-to-math` makes plain arithmetic of them first.
What runs a lowered module is the interpreter, unless another is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.interop.integer.quantized_tensors import DTYPES, Quantized
from tests.interop.quantized_case import NUMPY, Case, bounds
from tests.interop.stablehlo_programs import carried, function
from tests.interop.stablehlo_upstream import MATH, REST, after, interpreted

Array = NDArray[Any]
Runner = Callable[[str, Sequence[tuple[str, Array]], np.dtype[Any]], Array]
"""Runs the one function of a module on arrays of these element types, and gives its result in a dtype."""

LOWERING = (
    "builtin.module(func.func(stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo),"
    "func.func(shape-legalize-to-stablehlo,stablehlo-canonicalize-dynamism))"
)


def spelled(storage: str) -> str:
    """The storage as StableHLO's operators read it: `u8` they take for signed, `ui8` not."""
    return storage.replace("u", "ui")


def carrier(storage: str) -> str:
    """How stored numbers go in and out: integers that numpy does not have in the next wider one."""
    return spelled(storage[0] + str(max(8, int(storage[1:]))))


def raw(array: Array) -> Array:
    """bf16 as its bits."""
    return array.view(np.uint16) if array.dtype == NUMPY["bf16"] else array


def evaluate(
    text: str, source: Array, element: str, result: np.dtype[Any], run: Runner, lowering: str | None = None
) -> Array:
    """Run the one function of a module."""
    lowered = text if lowering is None else after(text, lowering)
    assert lowered is not None
    return run(lowered, [(element, raw(source))], result).reshape(source.shape)


def shaped(case: Case, element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in case.shape)}{element}>"


def quantized_by_pass(case: Case, source: Array, run: Runner = interpreted) -> Array:
    carried, stored = shaped(case, carrier(case.storage)), shaped(case, spelled(case.storage))
    quantized = shaped(case, case.element.replace("<u", "<ui"))
    text = f"""func.func @main(%x: {shaped(case, "f32")}) -> {carried} {{
      %q = stablehlo.uniform_quantize %x : ({shaped(case, "f32")}) -> {quantized}
      %b = stablehlo.bitcast_convert %q : ({quantized}) -> {stored}
      %c = stablehlo.convert %b : ({stored}) -> {carried}
      return %c : {carried}
    }}"""
    return evaluate(text, source, "f32", case.dtype, run, LOWERING)


def dequantized_by_pass(case: Case, source: Array, run: Runner = interpreted) -> Array:
    carried, stored = shaped(case, carrier(case.storage)), shaped(case, spelled(case.storage))
    quantized = shaped(case, case.element.replace("<u", "<ui"))
    text = f"""func.func @main(%x: {carried}) -> {shaped(case, "f32")} {{
      %c = stablehlo.convert %x : ({carried}) -> {stored}
      %b = stablehlo.bitcast_convert %c : ({stored}) -> {quantized}
      %r = stablehlo.uniform_dequantize %b : ({quantized}) -> {shaped(case, "f32")}
      return %r : {shaped(case, "f32")}
    }}"""
    return evaluate(text, source, carrier(case.storage), NUMPY["f32"], run, LOWERING)


def quantized_by_formula(case: Case, source: Array, run: Runner = interpreted) -> Array:
    """convert(round_nearest_even(clamp(lo, x / s + z, hi))), per tensor, all of it in the expressed type.

    The scale is an operand: by a constant XLA does not divide, it multiplies by the reciprocal.
    """
    real, carried = shaped(case, case.expressed), shaped(case, carrier(case.storage))
    text = f"""func.func @main(%x: {real}, %s: {real}) -> {carried} {{
      %z = stablehlo.constant dense<{int(case.zero_points)}.0> : {real}
      %lo = stablehlo.constant dense<{bounds(case.storage)[0]}.0> : tensor<{case.expressed}>
      %hi = stablehlo.constant dense<{bounds(case.storage)[1]}.0> : tensor<{case.expressed}>
      %0 = stablehlo.divide %x, %s : {real}
      %1 = stablehlo.add %0, %z : {real}
      %2 = stablehlo.clamp %lo, %1, %hi : (tensor<{case.expressed}>, {real}, tensor<{case.expressed}>) -> {real}
      %3 = stablehlo.round_nearest_even %2 : {real}
      %4 = stablehlo.convert %3 : ({real}) -> {shaped(case, spelled(case.storage))}
      %5 = stablehlo.convert %4 : ({shaped(case, spelled(case.storage))}) -> {carried}
      return %5 : {carried}
    }}"""
    scales = np.full(source.shape, case.scales).astype(source.dtype)
    inputs = [(case.expressed, raw(each)) for each in (source, scales)]
    return run(text, inputs, case.dtype).reshape(source.shape)


def dequantized_by_formula(case: Case, source: Array, run: Runner = interpreted) -> Array:
    """convert(i32(q) - i32(z)) * s, per tensor; unsigned 32 bits wrap into i32. The result comes out as its bits."""
    real, carried, whole = shaped(case, case.expressed), shaped(case, carrier(case.storage)), shaped(case, "i32")
    bits = shaped(case, f"ui{NUMPY[case.expressed].itemsize * 8}")
    zero_point = (int(case.zero_points) + 2**31) % 2**32 - 2**31
    text = f"""func.func @main(%x: {carried}) -> {bits} {{
      %s = stablehlo.constant dense<{float(case.scales):.17e}> : {real}
      %z = stablehlo.constant dense<{zero_point}> : {whole}
      %0 = stablehlo.convert %x : ({carried}) -> {whole}
      %1 = stablehlo.subtract %0, %z : {whole}
      %2 = stablehlo.convert %1 : ({whole}) -> {real}
      %3 = stablehlo.multiply %2, %s : {real}
      %4 = stablehlo.bitcast_convert %3 : ({real}) -> {bits}
      return %4 : {bits}
    }}"""
    return evaluate(text, source, carrier(case.storage), NUMPY[case.expressed], run)


def typed(side: Quantized, size: int) -> str:
    return f"tensor<{size}x!quant.uniform<{side.storage}:f32, {side.scales[0]:.17e}:{side.zero_points[0]}>>"


def run(text: str, given: list[Array], result: np.dtype[np.signedinteger]) -> Array:
    plain, arguments, _ = carried(text)
    lowered = after(plain, MATH, REST)
    assert lowered is not None
    pairs = [(argument.element, array) for argument, array in zip(arguments, given, strict=True)]
    return interpreted(lowered, pairs, result)


def requantized(sides: Sequence[Quantized], numbers: Array, run: Runner = interpreted) -> Array:
    """uniform_quantize of stored numbers."""
    types = [typed(side, numbers.size) for side in sides]
    line = f"%r = stablehlo.uniform_quantize %a0 : ({types[0]}) -> {types[1]}"
    return _ran(function("main", types[:1], [line], types[1]), [numbers], sides[-1], run)


def added(sides: Sequence[Quantized], a: Array, b: Array, run: Runner = interpreted) -> Array:
    """add of quantized tensors."""
    types = [typed(side, a.size) for side in sides]
    line = f"%r = stablehlo.add %a0, %a1 : ({types[0]}, {types[1]}) -> {types[2]}"
    return _ran(function("main", types[:2], [line], types[2]), [a, b], sides[-1], run)


def _ran(text: str, given: list[Array], output: Quantized, run: Runner) -> Array:
    plain, arguments, _ = carried(text)
    lowered = after(plain, MATH, REST)
    assert lowered is not None
    pairs = [(argument.element, array) for argument, array in zip(arguments, given, strict=True)]
    return run(lowered, pairs, DTYPES[output.storage])
