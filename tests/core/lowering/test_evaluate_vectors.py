"""Lowered modules, evaluated, against what upstream's passes and interpreters gave (tests/vectors)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from requant.description import ModuleLimits
from requant.errors import LimitError, PreconditionError
from requant.lowering.evaluate import Tensor, evaluate, function_named
from requant.lowering.evaluate.arrays import dtype_of
from requant.lowering.module import read_module
from requant.mlir import TensorType, parse_type
from tests.core.lowering.modules import lowered
from tests.support.cases import sample

VECTORS = Path(__file__).parents[2] / "vectors"
STABLEHLO: dict[str, Any] = json.loads((VECTORS / "stablehlo_passes.json").read_text())
EXECUTED = STABLEHLO["quant_to_math"]["executed"]
MATH = "stablehlo-legalize-quant-to-math"


def shaped(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def tensor(type_: str, values: Sequence[Any]) -> Tensor:
    parsed = parse_type(type_)
    assert isinstance(parsed, TensorType)
    shape = cast(tuple[int, ...], parsed.shape)
    numbers = np.array([float(value) if isinstance(value, str) else value for value in values])
    return Tensor(
        parsed,
        numbers.astype(np.int64 if numbers.dtype.kind in "iu" else np.float64)
        .astype(dtype_of(parsed.element))
        .reshape(shape),
    )


def run(text: str, inputs: Sequence[Tensor], *passes: str) -> Tensor:
    module = lowered(text, *passes)
    (result,) = evaluate(module, function_named(module, None), inputs)
    return result


def program(line: str, arguments: Sequence[str], result: str) -> str:
    given = ", ".join(f"%a{index}: {type_}" for index, type_ in enumerate(arguments))
    return f"func.func @main({given}) -> {result} {{\n  %r = {line}\n  return %r : {result}\n}}"


def lowered_type(type_: str) -> str:
    """The type of an argument after the pass: the storage, `u8` as i8."""
    parsed = parse_type(type_)
    assert isinstance(parsed, TensorType)
    storage = getattr(parsed.element, "storage", None)
    return type_ if storage is None else shaped(cast(Sequence[int], parsed.shape), storage.element.name)


def check_math(line: str, arguments: Sequence[tuple[str, Sequence[Any]]], result: str, expected: Sequence[Any]) -> None:
    """Check what the lowered function gives, before CHLO is expanded and after."""
    text = program(line, [type_ for type_, _ in arguments], result)
    for passes in ((MATH,), (MATH, "chlo-legalize-to-stablehlo")):
        inputs = [tensor(lowered_type(type_), values) for type_, values in arguments]
        found = run(text, inputs, *passes).elements.reshape(-1).tolist()
        wanted = [float(each) if isinstance(each, str) else each for each in expected]
        same = [a == b or (a != a and b != b) for a, b in zip(found, wanted, strict=True)]
        assert all(same), (line, found, wanted)


def check_spec(line: str, arguments: Sequence[tuple[str, Sequence[Any]]], result: str, expected: Sequence[Any]) -> None:
    """Check what the quantized function itself gives."""
    text = program(line, [type_ for type_, _ in arguments], result)
    found = run(text, [tensor(*argument) for argument in arguments]).elements.reshape(-1).tolist()
    assert found == list(expected), (line, found, expected)


def numbers(case: dict[str, Any], key: str = "output") -> list[Any]:
    found = case.get(f"{key}_hex")
    if found is None:
        return cast(list[Any], case[key])
    return [float.fromhex(each) if "x" in each else float(each) for each in found]


@pytest.mark.parametrize("case", sample(EXECUTED["uniform_quantize"], 12), ids=lambda case: case["type"])
def test_quantize(case: dict[str, Any]) -> None:
    real, stored = shaped(case["shape"], "f32"), shaped(case["shape"], case["type"])
    check_math(
        f"stablehlo.uniform_quantize %a0 : ({real}) -> {stored}", [(real, case["input"])], stored, case["output"]
    )
    if not case["type"].startswith("!quant.uniform<u") or "<ui" in case["type"]:
        line = f"stablehlo.uniform_quantize %a0 : ({real}) -> {stored}"
        check_spec(line, [(real, case["input"])], stored, case["output"])


@pytest.mark.parametrize("case", sample(EXECUTED["uniform_dequantize"], 10), ids=lambda case: case["type"])
def test_dequantize(case: dict[str, Any]) -> None:
    real, stored = shaped(case["shape"], "f32"), shaped(case["shape"], case["type"])
    line = f"stablehlo.uniform_dequantize %a0 : ({stored}) -> {real}"
    check_math(line, [(stored, case["input"])], real, numbers(case))


@pytest.mark.parametrize(
    "case", sample(EXECUTED["requantize"], 14), ids=lambda case: f"{case['input_type']} {case['output_type']}"
)
def test_requantize(case: dict[str, Any]) -> None:
    source, target = shaped(case["shape"], case["input_type"]), shaped(case["shape"], case["output_type"])
    line = f"stablehlo.uniform_quantize %a0 : ({source}) -> {target}"
    check_math(line, [(source, case["input"])], target, case["output"])


@pytest.mark.parametrize("case", sample(EXECUTED["add"], 9), ids=lambda case: case["result_type"])
def test_add(case: dict[str, Any]) -> None:
    shape = case.get("shape", [len(case["lhs"])])
    left, right, target = (shaped(shape, case[f"{side}_type"]) for side in ("lhs", "rhs", "result"))
    line = f"stablehlo.add %a0, %a1 : ({left}, {right}) -> {target}"
    check_math(line, [(left, case["lhs"]), (right, case["rhs"])], target, case["output"])


@pytest.mark.parametrize("case", sample(EXECUTED["dot_general"], 10), ids=lambda case: case["result_type"])
def test_dot(case: dict[str, Any]) -> None:
    result_shape = [*case["lhs_shape"][:-1], *case["rhs_shape"][1:]]
    left, right = shaped(case["lhs_shape"], case["lhs_type"]), shaped(case["rhs_shape"], case["rhs_type"])
    target = shaped(result_shape, case["result_type"])
    dims = "" if case["op"] == "stablehlo.dot" else ", contracting_dims = [1] x [0]"
    line = f"{case['op']} %a0, %a1{dims} : ({left}, {right}) -> {target}"
    check_math(line, [(left, case["lhs"]), (right, case["rhs"])], target, case["output"])


@pytest.mark.parametrize("case", EXECUTED["hybrid_dot_general"], ids=lambda case: case["rhs_type"])
def test_hybrid_dot(case: dict[str, Any]) -> None:
    left, right = shaped(case["lhs_shape"], "f32"), shaped(case["rhs_shape"], case["rhs_type"])
    target = shaped([case["lhs_shape"][0], case["rhs_shape"][1]], "f32")
    line = f"stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : ({left}, {right}) -> {target}"
    check_math(line, [(left, case["lhs"]), (right, case["rhs"])], target, numbers(case))


@pytest.mark.parametrize("case", [*EXECUTED["fallback_qdq"], *EXECUTED["generic"]], ids=lambda case: case["op"])
def test_other_operations(case: dict[str, Any]) -> None:
    count = len(case["inputs"][0])
    types = [shaped([count], each) for each in case["operand_types"]]
    target = shaped([count], case["result_type"])
    operands = ", ".join(f"%a{index}" for index in range(len(types)))
    name = case["op"].split()[0]
    line = f"stablehlo.{name.removeprefix('stablehlo.')} {operands} : ({', '.join(types)}) -> {target}"
    if name == "compare":
        direction = case.get("direction", case["op"].split()[-1])
        line = f"stablehlo.compare {direction}, {operands} : ({', '.join(types)}) -> {target}"
    check_math(line, list(zip(types, case["inputs"], strict=True)), target, case["output"])


_RESCALE = STABLEHLO["quant_to_tosa_rescale"]
RESCALED: list[dict[str, Any]] = [*_RESCALE["upstream_tests"], *_RESCALE["computed"]]


def rescaled_program(case: dict[str, Any], count: int) -> tuple[str, list[str], str]:
    sides = [side for side in ("lhs", "rhs", "input") if case.get(side)]
    types = [
        shaped([count], f"!quant.uniform<{case['storage']}:f32, {case[side]['scale']!r}:{case[side]['zero_point']}>")
        for side in sides
    ]
    operands = ", ".join(f"%a{index}" for index in range(len(types)))
    if case["op"] == "compare":
        target = shaped([count], "i1")
        return (
            program(f"stablehlo.compare LT, {operands} : ({', '.join(types)}) -> {target}", types, target),
            types,
            target,
        )
    result = case["result"]
    target = shaped([count], f"!quant.uniform<{case['storage']}:f32, {result['scale']!r}:{result['zero_point']}>")
    line = f"stablehlo.{case['op']} {operands} : ({', '.join(types)}) -> {target}"
    return program(line, types, target), types, target


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", sample(RESCALED, 12), ids=lambda case: f"{case['op']} {case['storage']}")
def test_rescales(case: dict[str, Any]) -> None:
    """Multipliers and shifts of every rescale, and the numbers of RESCALE where the vectors have them."""
    numeric = case.get("numeric") or {}
    count = len(numeric.get("lhs", numeric.get("input", [0])))
    text, types, _ = rescaled_program(case, count)
    module = lowered(text, "stablehlo-quant-legalize-to-tosa-rescale")
    constants = [
        int(cast(Any, op.properties["values"]).get_values()[0])
        for op in module.operation.walk()
        if op.name == "tosa.const"
    ]
    order = [side for side in ("lhs", "rhs", "input", "result") if side in case["rescales"]]
    stated = [case["rescales"][side] for side in order]
    wanted = [each[key] for each in stated for key in ("multiplier", "shift", "input_zp", "output_zp")]
    assert constants == wanted
    if numeric.get("status") != "ok" or "output" not in numeric:
        return
    sides = [side for side in ("lhs", "rhs", "input") if side in numeric]
    inputs = [tensor(type_, numeric[side]) for type_, side in zip(types, sides, strict=True)]
    if case["op"] == "compare":
        return
    for passes in ((), ("tosa-rescale-legalize-to-stablehlo",)):
        found = run(text, inputs, "stablehlo-quant-legalize-to-tosa-rescale", *passes)
        assert found.elements.tolist() == numeric["output"]


@pytest.mark.parametrize("case", STABLEHLO["tosa_rescale_to_stablehlo"]["computed"])
def test_rescale_to_stablehlo(case: dict[str, Any]) -> None:
    count = len(case["input"])
    source, target = shaped([count], case["in_t"]), shaped([count], case["out_t"])
    names = ("multiplier", "shift", "input_zp", "output_zp")
    types = ("i32", "i8", case["in_t"], case["out_t"])
    constants = "\n".join(
        f'  %{name} = "tosa.const"() {{values = dense<{case[name]}> : tensor<1x{type_}>}} : () -> tensor<1x{type_}>'
        for name, type_ in zip(names, types, strict=True)
    )
    text = f"""func.func @main(%x: {source}) -> {target} {{
{constants}
      %r = tosa.rescale %x, %multiplier, %shift, %input_zp, %output_zp scale32(true) rounding_mode<SINGLE_ROUND>
        per_channel(false) input_unsigned(false) output_unsigned(false) :
        ({source}, {", ".join(f"tensor<1x{type_}>" for type_ in types)}) -> {target}
      return %r : {target}
    }}"""
    found = run(text, [tensor(source, case["input"])], "tosa-rescale-legalize-to-stablehlo")
    assert found.elements.tolist() == case["output"]


LOWERED: dict[str, Any] = json.loads((VECTORS / "lower_quant_ops.json").read_text())


def cast_program(case: dict[str, Any], shape: Sequence[int] | None) -> tuple[str, str, str]:
    parsed = cast(Any, parse_type(case["type"]))
    real, stored = parsed.expressed.name, case["type"]
    types = [real, stored] if case["op"] == "qcast" else [stored, real]
    source, target = types if shape is None else (shaped(shape, each) for each in types)
    return (
        f"""func.func @main(%x: {source}) -> {target} {{
      %r = quant.{case["op"]} %x : {source} to {target}
      return %r : {target}
    }}""",
        source,
        target,
    )


def number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and value != "poison" else value


def stored_input(case: dict[str, Any], values: Sequence[Any], shape: Sequence[int]) -> Tensor:
    parsed = cast(Any, parse_type(case["type"]))
    element = parsed.expressed.name if case["op"] == "qcast" else parsed.storage.element.name
    type_ = shaped(shape, element)
    width = parsed.storage.width
    logical = [number(value) for value in values]
    if case["op"] == "dcast":
        logical = [(value + (1 << (width - 1))) % (1 << width) - (1 << (width - 1)) for value in logical]
    return tensor(type_, logical)


def logical_output(case: dict[str, Any], found: Tensor) -> list[Any]:
    """Return the numbers, signless ones of an unsigned type as unsigned."""
    parsed = cast(Any, parse_type(case["type"]))
    values = found.elements.reshape(-1).tolist()
    if found.elements.dtype == np.bool_ and parsed.storage.signed:
        return [-int(value) for value in values]
    if case["op"] == "qcast" and not parsed.storage.signed:
        return [value % (1 << parsed.storage.width) for value in values]
    return values


def test_lowered_casts_of_scalars() -> None:
    checked = 0
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in LOWERED["scalars"]:
        groups.setdefault((case["op"], case["type"]), []).append(case)
    for cases in groups.values():
        text, _, _ = cast_program(cases[0], None)
        module = lowered(text, "lower-quant-ops", "strip-func-quant-types")
        for case in cases:
            given = stored_input(case, [case["input"]], [])
            if case["output"] == "poison":
                with pytest.raises(PreconditionError):
                    evaluate(module, function_named(module, None), [given])
            else:
                (found,) = evaluate(module, function_named(module, None), [given])
                (value,), wanted = logical_output(case, found), number(case["output"])
                assert value == wanted or (isnan(value) and isnan(wanted)), case
            checked += 1
    assert checked == 820


@pytest.mark.parametrize("case", LOWERED["tensors"], ids=lambda case: case["type"])
def test_lowered_casts_of_tensors(case: dict[str, Any]) -> None:
    text, _, _ = cast_program(case, case["shape"])
    found = run(text, [stored_input(case, case["input"], case["shape"])], "lower-quant-ops", "strip-func-quant-types")
    assert logical_output(case, found) == [number(value) for value in case["output"]]


def test_products_and_sums_are_limited() -> None:
    """A product of matrices and a sum over many rows, which are loops in Python, just within the limit and beyond."""
    matrix = "tensor<8x8xf32>"
    dot = f"%0 = stablehlo.dot %x, %x : ({matrix}, {matrix}) -> {matrix} return %0 : {matrix}"
    for body, result, products in (
        (dot, matrix, 8 * (64 + 512)),
        (
            f"%z = stablehlo.constant dense<0.0> : tensor<f32> %0 = stablehlo.reduce(%x init: %z) applies "
            f"stablehlo.add across dimensions = [0] : ({matrix}, tensor<f32>) -> tensor<8xf32> "
            "return %0 : tensor<8xf32>",
            "tensor<8xf32>",
            64 + 8 * 512,
        ),
    ):
        text = f"func.func @main(%x: {matrix}) -> {result} {{ {body} }}"
        given = [Tensor(cast(TensorType, parse_type(matrix)), np.ones((8, 8), np.float32))]
        for limit in (products, products - 1):
            module = read_module(text, ModuleLimits(evaluation_products=limit))
            if limit == products:
                assert evaluate(module, function_named(module, None), given)[0].elements.ravel()[0] == 8
                continue
            with pytest.raises(LimitError, match="products and sums take more than"):
                evaluate(module, function_named(module, None), given)
