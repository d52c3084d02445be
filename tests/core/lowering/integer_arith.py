"""Modules for `requant-to-integer-arith`: lowered, evaluated, and made of nothing but integer operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.lowering.evaluate import Tensor, evaluate, function_named
from requant.lowering.evaluate.arrays import dtype_of
from requant.lowering.module import Module
from requant.mlir import TensorType, parse_type
from requant.plan.operands import static_shape
from tests.core.lowering.modules import lowered, operations

Array = np.ndarray[Any, Any]
PASS = "requant-to-integer-arith"
STRIP = "strip-func-quant-types"


def tensor_type(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def quantized(storage: str, scales: Sequence[float], zeros: Sequence[int], axis: int = 0, bounds: Any = None) -> str:
    """Return an element type: per tensor for one scale, per axis for several."""
    narrowed = "" if bounds is None else f"<{bounds[0]}:{bounds[1]}>"
    listed = ", ".join(f"{scale:.17e}:{zero}" for scale, zero in zip(scales, zeros, strict=True))
    if len(scales) == 1:
        return f"!quant.uniform<{storage}{narrowed}:f32, {listed}>"
    return f"!quant.uniform<{storage}{narrowed}:f32:{axis}, {{{listed}}}>"


def function(arguments: Sequence[str], lines: Sequence[str], result: str) -> str:
    """Return a function of %a0, %a1... that returns %r."""
    given = ", ".join(f"%a{index}: {type_}" for index, type_ in enumerate(arguments))
    body = "\n  ".join(lines)
    return f"func.func @main({given}) -> {result} {{\n  {body}\n  return %r : {result}\n}}"


def integer_module(text: str, option: str = "") -> Module:
    """Return the lowered module; nothing in it is quantized or a float."""
    module = lowered(text, STRIP, PASS + (f"{{{option}}}" if option else ""))
    written = module.write()
    assert "quant" not in written
    assert "f32" not in written
    assert {name.partition(".")[0] for name in operations(module)} <= {"arith", "linalg", "tensor", "func"}
    return module


def run(module: Module, arrays: Sequence[Array]) -> Array:
    """Return the stored integers that the function gives for those, as the signless integers of its result."""
    chosen = function_named(module, None)
    inputs = []
    for array, argument in zip(arrays, chosen.body.block.args, strict=True):
        type_ = parse_type(str(argument.type))
        assert isinstance(type_, TensorType)
        dtype = dtype_of(type_.element)
        inputs.append(Tensor(type_, np.ascontiguousarray(array).view(dtype).reshape(static_shape(type_))))
    (found,) = evaluate(module, chosen, inputs)
    return found.elements


def stored(array: Array, like: Array) -> Array:
    """Return the bits of `array` as those of `like`, both of one width."""
    return np.ascontiguousarray(array).reshape(-1).view(like.dtype)
