"""Where a pass of upstream's changes what a module computes: before, after, and what /v1/compare says of the two.

docs/lowering.md names each. They are upstream's, and our passes of the same names do the same.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.service.json_api.test_page_examples import evaluate, lower, tensor

MATH = "stablehlo-legalize-quant-to-math"
RESCALE = "stablehlo-quant-legalize-to-tosa-rescale"


def function(arguments: tuple[str, ...], line: str, result: str) -> str:
    given = ", ".join(f"%a{index}: {type_}" for index, type_ in enumerate(arguments))
    body = f"%r = {line} : ({', '.join(arguments)}) -> {result}\n  return %r : {result}"
    return f"func.func @main({given}) -> {result} {{\n  {body}\n}}"


def product(left: str, right: str, result: str, columns: int) -> tuple[str, tuple[str, str]]:
    types = (f"tensor<1x2x!quant.uniform<{left}>>", f"tensor<2x{columns}x!quant.uniform<{right}>>")
    line = "stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0]"
    return function(types, line, f"tensor<1x{columns}x!quant.uniform<{result}>>"), types


DOT = product("i8:f32, 0.5", "i8:f32, 0.5", "i8:f32, 1.0", 2)
NEAR = product("i8:f32, 1.0005", "i8:f32, 1.0", "i32:f32, 1.0", 2)
CHANNELS = product("i8:f32, 1.0", "i8:f32:1, {0.5, 0.25}", "i8:f32:1, {1.0, 1.0}", 2)
UNSIGNED = ("tensor<2x!quant.uniform<u8:f32, 1.0>>",)
PAIR = ("tensor<2x!quant.uniform<i8:f32, 0.5>>",) * 2

CASES: dict[str, tuple[str, tuple[str, ...], list[list[int]], str, list[float], list[float]]] = {
    # 0.25 * (3 * 1 + 4 * 3) = 3.75 to 4, not 3; 0.25 * 127 * 127 * 2 = 8064.5 to 127, not 8064 mod 256.
    "products truncate and wrap": (*DOT, [[3, 4], [1, 127, 3, 1]], MATH, [4, 96], [3, 96]),
    "a factor near 1 is left out": (*NEAR, [[100, 100], [100, 1, 100, 1]], MATH, [20010, 200], [20000, 200]),
    "the factor of channel 0 for all": (*CHANNELS, [[8, 8], [4, 4, 4, 4]], MATH, [32, 16], [32, 32]),
    "u8 is read as signed": (
        function(UNSIGNED, "stablehlo.uniform_dequantize %a0", "tensor<2xf32>"), UNSIGNED, [[100, 200]], MATH,
        [100, 200], [100, -56],
    ),
    # 8 / 2 is 4: 4 in steps of 1. The scale of a product, 0.25, makes 1 of it.
    "a quotient has the scale of a product": (
        function(PAIR, "stablehlo.divide %a0, %a1", "tensor<2x!quant.uniform<i8:f32, 1.0>>"), PAIR, [[8, 12], [2, 3]],
        RESCALE, [4, 4], [1, 1],
    ),
}  # fmt: skip


def stored(type_: str, name: str) -> str:
    """The type of an input after the pass."""
    if name == RESCALE:
        return type_
    return type_.partition("!")[0] + "i8>"


@pytest.mark.parametrize("name", CASES)
def test_what_a_pass_changes(client: httpx.Client, name: str) -> None:
    module, types, numbers, pass_, before, after = CASES[name]
    given = [tensor(type_, each) for type_, each in zip(types, numbers, strict=True)]
    (spec,) = evaluate(client, module, *given)
    assert spec["values"] == before
    made = lower(client, module, pass_)
    raw = [
        tensor(stored(type_, pass_), [value - 256 if value > 127 and pass_ == MATH else value for value in each])
        for type_, each in zip(types, numbers, strict=True)
    ]
    (found,) = evaluate(client, made, *raw)
    assert found["values"] == after
    shape = spec["type"].partition("!")[0].partition("f32")[0].removesuffix("x")
    sides: list[dict[str, Any]] = [tensor(f"{shape}xi32>", [int(each) for each in side]) for side in (before, after)]
    compared = client.post("/v1/compare", json={"a": sides[0], "b": sides[1]}).json()
    assert compared["mismatches"] == sum(a != b for a, b in zip(before, after, strict=True)) > 0
