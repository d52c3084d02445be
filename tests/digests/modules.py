"""Functions of MLIR modules, evaluated: what docs/lowering.md promises to be the same everywhere.

That leaves out the functions in NOT_PROMISED, which come from numpy and the C library, and what a NaN's bits are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import numpy as np

from requant.errors import RequantError
from requant.lowering.evaluate import Tensor, evaluate, function_named
from requant.lowering.evaluate.arrays import dtype_of, is_float
from requant.lowering.module import Module, read_module
from requant.lowering.passes import apply, parse_pass
from requant.mlir import TensorType
from tests.core.lowering.carried import element_type
from tests.digests.cases import Array, Case, Found, tensor
from tests.digests.patterns import finite_f32, integers, reals, specials
from tests.interop.stablehlo_programs import carried, convolution, elementwise, product

NOT_PROMISED = (
    "atan2", "cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "power",
    "sine", "tan", "tanh",
)  # fmt: skip
"""Functions whose last bit is that of numpy or the C library."""

_UNARY = (
    "abs", "ceil", "floor", "negate", "round_nearest_even", "round_nearest_afz", "sign", "sqrt", "rsqrt", "is_finite",
)  # fmt: skip
_BINARY = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum")
_OF_INTEGERS = (
    "add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "shift_left", "shift_right_logical",
    "shift_right_arithmetic",
)  # fmt: skip
_FLOATS = ("f16", "bf16", "f32", "f64")
_INTEGERS = ("i8", "ui8", "i16", "i32", "i64")


def _plain(element: str) -> Array:
    """Return floats or integers of all kinds."""
    dtype = dtype_of(element_type(element))
    if element not in _FLOATS:
        info = np.iinfo(dtype)
        return integers(int(info.min), int(info.max), 2000, 120).astype(dtype)
    return np.concatenate([specials(element), reals(element, 0.5)[::5]]).view(dtype)


def _found(module: Module, given: list[Tensor]) -> Found:
    for result in evaluate(module, function_named(module, None), given):
        numbers = result.elements
        if is_float(numbers):
            numbers = np.where(np.isnan(numbers.astype(np.float64)), numbers.dtype.type(np.nan), numbers)
        yield numbers.view(f"u{numbers.dtype.itemsize}") if numbers.dtype.kind == "V" else numbers


def _program(line: str, types: list[str], result: str) -> Module:
    given = ", ".join(f"%a{index}: {each}" for index, each in enumerate(types))
    return read_module(f"func.func @main({given}) -> {result} {{\n  %r = {line}\n  return %r : {result}\n}}")


def function_cases() -> Iterator[Case]:
    for element in (*_FLOATS, *_INTEGERS):
        values = _plain(element)
        type_ = f"tensor<{values.size}x{element}>"
        one = Tensor(tensor(element, values.shape), values)
        other = Tensor(one.type, np.ascontiguousarray(values[::-1]))
        for name in _UNARY if element in _FLOATS else ("abs", "negate", "sign"):
            result = type_ if name != "is_finite" else f"tensor<{values.size}xi1>"
            line = (
                f"stablehlo.{name} %a0 : {type_}"
                if result == type_
                else f"stablehlo.{name} %a0 : ({type_}) -> {result}"
            )
            yield Case(f"evaluate {name} {element}", partial(_found, _program(line, [type_], result), [one]))
        for name in _BINARY if element in _FLOATS else _OF_INTEGERS:
            module = _program(f"stablehlo.{name} %a0, %a1 : {type_}", [type_, type_], type_)
            yield Case(f"evaluate {name} {element}", partial(_found, module, [one, other]))
        for target in (*_FLOATS, *_INTEGERS):
            if target != element:
                result = f"tensor<{values.size}x{target}>"
                module = _program(f"stablehlo.convert %a0 : ({type_}) -> {result}", [type_], result)
                yield Case(f"evaluate convert {element} to {target}", partial(_found, module, [one]))


_PASSES: tuple[tuple[str, ...], ...] = (
    (), ("stablehlo-legalize-quantized-op-to-qdq",), ("stablehlo-legalize-quant-to-math",),
)  # fmt: skip


def quantized_cases() -> Iterator[Case]:
    for make in (elementwise, product, convolution):
        random = Random(f"digests {make.__name__}")
        for index in range(20):
            text, arguments, _ = carried(make(random, "main"))
            if any(f"stablehlo.{name} " in text for name in NOT_PROMISED):
                continue
            given = []
            for stream, argument in enumerate(arguments, 130 + index):
                element = element_type(argument.element)
                count = int(np.prod(argument.shape))
                stored = _stored(element, count, stream).reshape(argument.shape)
                given.append(Tensor(TensorType(argument.shape, element), stored))
            for passes in _PASSES:
                name = f"evaluate {make.__name__} {index} {' '.join(passes)}".strip()
                if (module := _lowered(text, passes)) is not None:
                    yield Case(name, partial(_found, module, given))


def _stored(element: Any, count: int, stream: int) -> Array:
    dtype = dtype_of(element)
    if dtype.kind == "f":
        return finite_f32(count, stream, 118, 132).astype(dtype)
    if dtype.kind == "b":
        return integers(0, 1, count, stream) > 0
    info = np.iinfo(dtype)
    return integers(max(int(info.min), -(1 << 23)), min(int(info.max), 1 << 23), count, stream).astype(dtype)


def _lowered(text: str, passes: tuple[str, ...]) -> Module | None:
    """Return a module after passes, None if one refuses it."""
    module = read_module(text)
    try:
        apply(module, [parse_pass(each) for each in passes])
    except RequantError:
        return None
    return module


def cases() -> Iterator[Case]:
    yield from function_cases()
    yield from quantized_cases()
