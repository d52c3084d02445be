"""Plans in pieces, in threads and on lanes: the same bits as whole."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.requantize import plan_requantize
from requant.errors import PreconditionError, TensorDataError
from requant.formats.elements import FLOATS
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.float_arrays import f16_of_f32, f32_of_f16, narrowed, widen
from requant.plan.plan import Conversion, Plan, merged, pack
from requant.profiles import Rounding
from tests.support.cases import EXHAUSTIVE
from tests.support.drawn_types import tensor

Array = NDArray[Any]
ELEMENTS = 203


def quantizing(element: str, target: str, profile: str = "stablehlo") -> Plan:
    return plan_quantize(tensor(f"tensor<{ELEMENTS}x{element}>"), parse_type(target), profile)


REAL = np.random.default_rng(1).normal(0, 9, ELEMENTS)
REAL[[3, 77, 199]] = np.nan, np.inf, -np.inf
FITTING = np.random.default_rng(5).uniform(0, 3.5, ELEMENTS).astype(np.float32)
I4 = np.random.default_rng(2).integers(-8, 8, ELEMENTS).astype(np.int8)
U2 = np.random.default_rng(3).integers(0, 4, ELEMENTS).astype(np.uint8)
I8 = np.random.default_rng(4).integers(-128, 128, ELEMENTS).astype(np.int8)
CHANNELS = ", ".join(f"{0.1 + i / 50}" for i in range(29))

# What is converted, and the bits of a packed number going in and coming out.
CASES: dict[str, tuple[Plan, Array, int | None, int | None]] = {
    "f32 to i8": (quantizing("f32", "!quant.uniform<i8:f32, 0.5:3>"), REAL.astype("f4"), None, None),
    "f64 to i16": (quantizing("f64", "!quant.uniform<i16:f64, 0.001>"), REAL, None, None),
    "f16 to i8": (quantizing("f16", "!quant.uniform<i8:f16, 0.5>"), REAL.astype("f2"), None, None),
    "f32 to packed i4": (quantizing("f32", "!quant.uniform<i4:f32, 0.5>"), REAL.astype("f4"), None, 4),
    "f32 to packed u3": (quantizing("f32", "!quant.uniform<u3:f32, 0.5>", "mlir"), FITTING, None, 3),
    "channels": (
        plan_quantize(tensor("tensor<7x29xf32>"), parse_type(f"!quant.uniform<i8:f32:1, {{{CHANNELS}}}>"), "stablehlo"),
        REAL.astype("f4"),
        None,
        None,
    ),
    "i8 to f32": (plan_dequantize(tensor(f"tensor<{ELEMENTS}x!quant.uniform<i8:f32, 0.5:3>>")), I8, None, None),
    "packed i4 to f32": (plan_dequantize(tensor(f"tensor<{ELEMENTS}x!quant.uniform<i4:f32, 0.5>>")), I4, 4, None),
    "packed u2 to f32": (plan_dequantize(tensor(f"tensor<{ELEMENTS}x!quant.uniform<u2:f32, 0.5>>")), U2, 2, None),
    "i32 to i8": (
        plan_requantize(
            tensor(f"tensor<{ELEMENTS}x!quant.uniform<i32:f32, 0.01>>"), parse_type("!quant.uniform<i8:f32, 0.3:1>")
        ),
        (I8.astype(np.int32) * 99),
        None,
        None,
    ),
}


def travelling(values: Array, width: int | None) -> Array:
    return values if width is None else pack(values, width)


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_any_pieces_in_any_order_are_the_whole(name: str, data: st.DataObject) -> None:
    plan, values, packed_in, packed_out = CASES[name]
    whole = np.empty(plan.elements, plan.output_dtype)
    report = plan.run(values, whole)
    conversion = Conversion(plan, packed_in, packed_out)
    source = travelling(values, packed_in)
    assert (source.size, source.nbytes) == (conversion.input_entries, conversion.input_bytes)
    edges = data.draw(st.lists(st.integers(0, ELEMENTS // 8), max_size=6))
    cuts = sorted({0, ELEMENTS, *(8 * edge for edge in edges)})
    pieces = data.draw(st.permutations(list(itertools.pairwise(cuts))))
    output = np.empty(conversion.output_entries, conversion.output_dtype)
    tallies = []
    for first, last in pieces:
        counts = plan.new_counts()
        begin, end = conversion.input_at(first), conversion.input_at(last)
        assert conversion.element_at(begin) == first
        assert conversion.element_at(end) == last
        target = output[conversion.output_at(first) : conversion.output_at(last)]
        conversion.step(source[begin:end], target, first, counts)
        tallies.append(counts)
    assert output.tobytes() == travelling(whole, packed_out).tobytes()
    assert plan.report(merged(tallies, plan.new_counts())) == report


def test_pieces_end_at_groups() -> None:
    conversion = Conversion(CASES["f32 to packed u3"][0], None, 3)
    assert list(conversion.pieces(0, 203, 70)) == [(0, 64), (64, 128), (128, 192), (192, 203)]
    assert list(conversion.pieces(0, 0, 70)) == []
    assert conversion.input_group == 8


def test_the_first_undefined_element_is_named_whatever_the_order() -> None:
    plan = quantizing("f32", "!quant.uniform<i8:f32, 0.5>", "mlir")
    conversion = Conversion(plan)
    values = np.zeros(ELEMENTS, np.float32)
    values[[20, 150]] = np.nan
    tallies = []
    for first, last in ((100, ELEMENTS), (0, 100)):
        counts = plan.new_counts()
        conversion.step(values[first:last], np.empty(last - first, np.int8), first, counts)
        tallies.append(counts)
    with pytest.raises(PreconditionError) as caught:
        plan.report(merged(tallies, plan.new_counts()))
    assert caught.value.index == 20


def test_a_number_that_its_type_does_not_hold_is_named_by_its_place_in_the_tensor() -> None:
    plan = CASES["packed i4 to f32"][0]
    stored = I4.copy()
    stored[150] = 8
    conversion = Conversion(plan)
    with pytest.raises(TensorDataError, match="element 150 is 8; its type holds -8 to 7"):
        conversion.check(stored[96:], 96)
    with pytest.raises(TensorDataError, match="element 150 is 8"):
        conversion.step(stored[96:], np.empty(ELEMENTS - 96, np.float32), 96, plan.new_counts())
    conversion.check(stored[:96], 0)


def test_packed_codes_that_a_table_does_not_have() -> None:
    """Two bits hold -2 too."""
    table = "!quant.quantile<ui2:f32, {-4.0, 0.0, 9.0}, <-1:1>>"
    plan = plan_dequantize(tensor(f"tensor<12x!quant.uniform<{table}:f32, 1.0>>"), None, "quantile")
    conversion = Conversion(plan, 2)
    packed = pack(np.array([0, 1, -1, 0, 0, 0, 0, 0, 0, 1, -2, 0], np.int8), 2)
    with pytest.raises(TensorDataError, match="element 10 is -2; its type holds -1 to 1"):
        conversion.step(packed[2:], np.empty(4, np.float32), 8, plan.new_counts())


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8", "i4"])
def test_an_array_of_another_width_is_no_f16(dtype: str) -> None:
    with pytest.raises(TypeError, match="expected f16"):
        f32_of_f16(np.zeros(3, dtype))
    with pytest.raises(TypeError, match="expected f16"):
        widen(np.zeros(3, dtype), FLOATS["f16"])


@pytest.mark.parametrize("dtype", ["f2", "f8", "i4"])
def test_an_array_of_another_type_is_no_f32(dtype: str) -> None:
    with pytest.raises(TypeError, match="expected f32"):
        f16_of_f32(np.zeros(3, dtype))


def test_f64_are_rounded_to_f16_once() -> None:
    between = np.array([1 + 2**-11 + 2**-40])
    assert narrowed(between, FLOATS["f16"]).tolist() == [1 + 2**-10]


ROWS, COLUMNS = 480 if EXHAUSTIVE else 60, 96
AXIS = ", ".join(f"{0.01 + 0.001 * i:.4f}:{i % 7 - 3}" for i in range(COLUMNS))
PER_TENSOR = "!quant.uniform<i8:f32, 0.05:3>"
TYPES = {
    "per tensor": PER_TENSOR,
    "last axis": f"!quant.uniform<i8:f32:1, {{{AXIS}}}>",
    "i4": "!quant.uniform<i4:f32, 0.5:1>",
    "f8E4M3FN": "!quant.uniform<f8E4M3FN:f32, 0.05>",
}


def typed(element: str) -> TensorType:
    parsed = parse_type(f"tensor<{ROWS}x{COLUMNS}x{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


def plans() -> dict[str, tuple[Plan, int | None]]:
    """Plans by name, each with the width of its packed output, if that is packed."""
    real = typed("f32")
    found: dict[str, tuple[Plan, int | None]] = {
        f"f32 to {name}": (plan_quantize(real, parse_type(text), "onnx"), 4 if name == "i4" else None)
        for name, text in TYPES.items()
    }
    drawn = plan_quantize(real, parse_type(PER_TENSOR), "stablehlo", rounding=Rounding.STOCHASTIC, seed=11)
    found["f32 to i8, stochastic"] = drawn, None
    found["i8 to f32"] = plan_dequantize(typed(TYPES["last axis"]), None, "onnx"), None
    found["i8 to i8"] = (
        plan_requantize(typed(PER_TENSOR), parse_type(TYPES["last axis"]), "litert"),
        None,
    )
    return found


PLANS = plans()


def source_of(plan: Plan) -> Array:
    rng = np.random.default_rng(12)
    if plan.input_dtype.kind == "f":
        real = (rng.standard_normal(plan.elements) * 3).astype(np.float32)
        real[::97] = np.nan
        return real
    return rng.integers(-128, 128, plan.elements).astype(np.int8)


def converted(plan: Plan, width: int | None, threads: int, size: int) -> tuple[bytes, list[int]]:
    conversion, source = Conversion(plan, packed_out=width), source_of(plan)
    target = np.zeros(conversion.output_entries, conversion.output_dtype)
    pieces = list(conversion.pieces(0, plan.elements, size))
    random.Random(threads).shuffle(pieces)

    def step(piece: tuple[int, int]) -> Array:
        begin, end = piece
        counts = plan.new_counts()
        conversion.step(
            source[begin:end], target[conversion.output_at(begin) : conversion.output_at(end)], begin, counts
        )
        return counts

    with ThreadPoolExecutor(threads) as pool:
        tally: list[int] = merged(pool.map(step, pieces), plan.new_counts()).tolist()
    return target.tobytes(), tally


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PLANS)
def test_threads_and_pieces_change_nothing(name: str) -> None:
    plan, width = PLANS[name]
    expected = converted(plan, width, 1, plan.elements)
    for threads in (1, 2, 5):
        for size in (8, 1000, 4096, plan.elements):
            assert converted(plan, width, threads, size) == expected, f"{threads} threads, pieces of {size}"


MISSHAPEN: dict[str, Callable[[Array], Array]] = {
    "a gap between elements": lambda array: np.repeat(array, 2)[::2],
    "backwards": lambda array: array[::-1],
    "two axes": lambda array: array.reshape(-1, 1),
    "too short": lambda array: array[:-1],
    "another dtype": lambda array: array.view("u1").astype("u4")[: array.size],
}


@pytest.mark.parametrize("misshapen", MISSHAPEN)
@pytest.mark.parametrize("name", ["f32 to i8", "f64 to i16", "i8 to f32"])
def test_a_plan_takes_contiguous_arrays_of_its_dtypes_and_size_only(name: str, misshapen: str) -> None:
    plan, source, *_ = CASES[name]
    target = np.zeros(ELEMENTS, plan.output_dtype)
    for each, into in ((MISSHAPEN[misshapen](source), target), (source, MISSHAPEN[misshapen](target))):
        with pytest.raises(TensorDataError, match="contiguous elements of"):
            plan.run(each, into)
    assert not target.any()
