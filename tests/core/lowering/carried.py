"""Functions between plain numbers (`tests.interop.stablehlo_programs.carried`) run on random stored numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.lowering.evaluate import Tensor, evaluate, function_named
from requant.lowering.evaluate.arrays import dtype_of
from requant.lowering.module import read_module
from requant.mlir import ElementType, TensorType, TupleType, parse_type
from tests.interop.stablehlo_programs import Argument

Array = np.ndarray[Any, Any]


def element_type(text: str) -> ElementType:
    found = parse_type(text)
    assert not isinstance(found, TensorType | TupleType)
    return found


def numbers(argument: Argument, random: np.random.Generator, *, inside: bool = False) -> Array:
    """Stored numbers from all over the storage, or only `inside` of narrower bounds; or floats."""
    dtype = dtype_of(element_type(argument.element))
    if argument.element == "f32":
        return random.normal(0, 20, argument.shape).astype(dtype)
    if argument.type == "i1":
        return random.integers(0, 2, argument.shape).astype(dtype)
    found = re.search(r"uniform<u?i?(\d+)", argument.type)
    assert found is not None
    width = min(int(found[1]), 24)
    low, high = (0, 1 << width) if argument.element.startswith("ui") else (-(1 << (width - 1)), 1 << (width - 1))
    if random.random() < 0.5:
        low, high = low // 8, high // 8 + 1
    narrowed = re.search(r"<(-?\d+):(-?\d+)>:", argument.type)
    if inside and narrowed is not None:
        low, high = int(narrowed[1]), int(narrowed[2]) + 1
    return random.integers(low, high, argument.shape).astype(dtype)


def evaluated(text: str, arguments: Sequence[Argument], given: Sequence[Array]) -> Array:
    """Return what the one function of a module gives."""
    module = read_module(text)
    inputs = [
        Tensor(TensorType(each.shape, element_type(each.element)), array)
        for each, array in zip(arguments, given, strict=True)
    ]
    (found,) = evaluate(module, function_named(module, None), inputs)
    return found.elements
