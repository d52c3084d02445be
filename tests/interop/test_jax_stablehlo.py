"""Profile `stablehlo` against StableHLO's interpreter, which jaxlib carries.

For f32 the quantized operators are lowered by StableHLO's own pass. The pass takes no other expressed type; for those
the operators of the specification's formula are written out, and the interpreter computes them in that type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.interop import traps
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import operator, profile
from tests.interop.quantized_case import (
    NUMPY,
    Case,
    bounds,
    per_stored_tensor,
    per_tensor,
    spread_parameters,
    zero_points,
)
from tests.interop.seed_of_the_day import generator

ir: Any = pytest.importorskip("jaxlib.mlir.ir")
passes: Any = pytest.importorskip("jaxlib.mlir.passmanager")
stablehlo: Any = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")

pytestmark = pytest.mark.interop

Array = NDArray[Any]

LOWERING = (
    "builtin.module(func.func(stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo),"
    "func.func(shape-legalize-to-stablehlo,stablehlo-canonicalize-dynamism))"
)
STORAGES = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "i32", "u32")


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    stablehlo.register_stablehlo_passes()
    with ir.Context() as opened, ir.Location.unknown():
        stablehlo.register_dialect(opened)
        # Loads the quant dialect, which jaxlib has no function for.
        passes.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)").run(ir.Module.parse("").operation)
        yield


def spelled(storage: str) -> str:
    """The storage as StableHLO's operators read it: `u8` they take for signed, `ui8` not."""
    return storage.replace("u", "ui")


def carrier(storage: str) -> str:
    """How stored numbers go in and out: integers that numpy does not have in the next wider one."""
    return spelled(storage[0] + str(max(8, int(storage[1:]))))


def evaluate(text: str, source: Array, type_: Any, result: np.dtype[Any], lowering: str | None = None) -> Array:
    """Run the one function of a module."""
    module = ir.Module.parse(text)
    if lowering is not None:
        passes.PassManager.parse(lowering).run(module.operation)
    raw = source.view(np.uint16) if source.dtype == NUMPY["bf16"] else source
    argument = ir.DenseElementsAttr.get(np.ascontiguousarray(raw), shape=list(source.shape), type=type_)
    (found,) = stablehlo.eval_module(module, [argument])
    return np.array(found).view(result).reshape(source.shape)


def shaped(case: Case, element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in case.shape)}{element}>"


def quantized_by_pass(case: Case, source: Array) -> Array:
    carried, stored = shaped(case, carrier(case.storage)), shaped(case, spelled(case.storage))
    quantized = shaped(case, case.element.replace("<u", "<ui"))
    text = f"""func.func @main(%x: {shaped(case, "f32")}) -> {carried} {{
      %q = stablehlo.uniform_quantize %x : ({shaped(case, "f32")}) -> {quantized}
      %b = stablehlo.bitcast_convert %q : ({quantized}) -> {stored}
      %c = stablehlo.convert %b : ({stored}) -> {carried}
      return %c : {carried}
    }}"""
    return evaluate(text, source, ir.F32Type.get(), case.dtype, LOWERING)


def dequantized_by_pass(case: Case, source: Array) -> Array:
    carried, stored = shaped(case, carrier(case.storage)), shaped(case, spelled(case.storage))
    quantized = shaped(case, case.element.replace("<u", "<ui"))
    text = f"""func.func @main(%x: {carried}) -> {shaped(case, "f32")} {{
      %c = stablehlo.convert %x : ({carried}) -> {stored}
      %b = stablehlo.bitcast_convert %c : ({stored}) -> {quantized}
      %r = stablehlo.uniform_dequantize %b : ({quantized}) -> {shaped(case, "f32")}
      return %r : {shaped(case, "f32")}
    }}"""
    return evaluate(text, source, ir.Type.parse(carrier(case.storage)), NUMPY["f32"], LOWERING)


def quantized_by_formula(case: Case, source: Array) -> Array:
    """convert(round_nearest_even(clamp(lo, x / s + z, hi))), per tensor, all of it in the expressed type."""
    real, carried = shaped(case, case.expressed), shaped(case, carrier(case.storage))
    text = f"""func.func @main(%x: {real}) -> {carried} {{
      %s = stablehlo.constant dense<{float(case.scales):.17e}> : {real}
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
    return evaluate(text, source, ir.Type.parse(case.expressed), case.dtype)


def dequantized_by_formula(case: Case, source: Array) -> Array:
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
    return evaluate(text, source, ir.Type.parse(carrier(case.storage)), NUMPY[case.expressed])


def along_last_axis(storage: str, rng: np.random.Generator) -> list[Case]:
    """The lowering broadcasts parameters along the last axis only."""
    return [
        Case(shape, storage, "f32", *spread_parameters((shape[-1],), storage, "f32", rng), len(shape) - 1)
        for shape in ((15_000, 7), (2, 40, 1303))
    ]


QUANTIZE = (profile("stablehlo", "quantize"), operator("stablehlo.uniform_quantize"))
DEQUANTIZE = (profile("stablehlo", "dequantize"), operator("stablehlo.uniform_dequantize"))


@pytest.mark.parametrize("storage", STORAGES)
def test_quantize(storage: str) -> None:
    rng = np.random.default_rng(51)
    comparison = Comparison(f"StableHLO interpreter quantize f32 to {storage}", systems.STABLEHLO, *QUANTIZE)
    points = zero_points(storage)
    cases = [per_tensor(storage, "f32", *each) for each in ((0.0237, points[-2]), (3e-39, points[0]))]
    for case in [*cases, along_last_axis(storage, rng)[storage[0] == "u"]]:
        source = case.real_data(rng)
        comparison.add(case, source, case.quantized(source, "stablehlo"), quantized_by_pass(case, source))
    comparison.finish(300_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_dequantize(storage: str) -> None:
    rng = np.random.default_rng(52)
    comparison = Comparison(f"StableHLO interpreter dequantize {storage} to f32", systems.STABLEHLO, *DEQUANTIZE)
    cases = [per_stored_tensor(storage, "f32", scale, z) for scale in (0.0237, 3e-39) for z in zero_points(storage)]
    for case in [*cases, along_last_axis(storage, rng)[0]]:
        source = case.stored_data(rng)
        comparison.add(case, source, case.dequantized(source, "stablehlo"), dequantized_by_pass(case, source))
    comparison.finish(100_000)


@pytest.mark.parametrize("expressed", ["f16", "bf16", "f64"])
def test_quantize_in_the_expressed_type(expressed: str) -> None:
    rng = np.random.default_rng(53)
    comparison = Comparison(f"StableHLO interpreter quantize {expressed}", systems.STABLEHLO, *QUANTIZE)
    for storage in ("i4", "i8", "u8", "u16", "i32"):
        case = per_tensor(storage, expressed, 0.0237, zero_points(storage)[-2])
        source = case.real_data(rng)
        comparison.add(case, source, case.quantized(source, "stablehlo"), quantized_by_formula(case, source))
    comparison.finish(500_000)


@pytest.mark.parametrize("expressed", ["f16", "bf16", "f64"])
def test_dequantize_in_the_expressed_type(expressed: str) -> None:
    rng = np.random.default_rng(54)
    comparison = Comparison(f"StableHLO interpreter dequantize {expressed}", systems.STABLEHLO, *DEQUANTIZE)
    for storage in STORAGES:
        for z in zero_points(storage):
            case = per_stored_tensor(storage, expressed, 0.0237, z)
            source = case.stored_data(rng)
            comparison.add(case, source, case.dequantized(source, "stablehlo"), dequantized_by_formula(case, source))
    comparison.finish(500_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_quantize_traps(storage: str) -> None:
    rng = generator(55)
    comparison = Comparison(f"StableHLO interpreter quantize f32 to {storage}", systems.STABLEHLO, *QUANTIZE)
    for case, source in traps.reals(storage, "f32", rng, granularities=()):
        comparison.add(case, source, case.quantized(source, "stablehlo"), quantized_by_pass(case, source))
    comparison.finish(10_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_dequantize_traps(storage: str) -> None:
    rng = generator(56)
    comparison = Comparison(f"StableHLO interpreter dequantize {storage} to f32", systems.STABLEHLO, *DEQUANTIZE)
    for case, source in traps.stored(storage, "f32", rng, granularities=()):
        comparison.add(case, source, case.dequantized(source, "stablehlo"), dequantized_by_pass(case, source))
    comparison.finish(10_000)


@pytest.mark.parametrize("expressed", ["f16", "bf16"])
def test_traps_in_the_expressed_type(expressed: str) -> None:
    rng = generator(57)
    comparison = Comparison(f"StableHLO interpreter {expressed} to i8", systems.STABLEHLO, *QUANTIZE)
    for case, source in traps.reals("i8", expressed, rng, granularities=()):
        comparison.add(case, source, case.quantized(source, "stablehlo"), quantized_by_formula(case, source))
    comparison.finish(10_000)
    comparison = Comparison(f"StableHLO interpreter i8 to {expressed}", systems.STABLEHLO, *DEQUANTIZE)
    for case, source in traps.stored("i8", expressed, rng, granularities=()):
        comparison.add(case, source, case.dequantized(source, "stablehlo"), dequantized_by_formula(case, source))
    comparison.finish(15_000)
