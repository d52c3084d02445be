"""`requant-to-integer-arith`: requantization and RESCALE, against exact integers, the service's plans, and vectors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import IntegerType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from requant.convert.requantize import plan_requantize
from requant.convert.scaling import ScalingPlan
from requant.description import ModuleLimits
from requant.errors import LoweringError, ParameterError, PreconditionError, UnsupportedError
from requant.lowering.evaluate import Tensor, evaluate, function_named
from requant.lowering.module import Module
from requant.lowering.passes import parse_pass
from requant.lowering.passes.requant_to_integer_arith.loops import FIXED_POINT_PROFILES, FIXED_POINT_SCHEMES
from requant.lowering.passes.requant_to_integer_arith.scaling import scale
from requant.lowering.passes.rewriting import Emitter
from requant.mlir import parse_type
from requant.mlir.types import TensorType as TypeOfTensor
from requant.schemes import FixedPoint, Multiplier
from tests.core.lowering.integer_arith import Array, function, integer_module, quantized, run, stored, tensor_type
from tests.core.lowering.modules import lowered
from tests.oracles import schemes as scheme_oracle
from tests.support.cases import EXHAUSTIVE, examples, sample, sample_array
from tests.support.rescale_case import numbers
from tests.support.rescale_case import stored as patterns
from tests.vector_cases.rescale import rescales
from tests.vector_cases.schemes import scheme_conversions

# What each scheme takes here: (input storage, scale, zero point; output scale, zero point). The last two make ties.
_WIDE = (("i16", 0.02, 0, 1.7, -3), ("i16", 0.75, -700, 96.0, 5), ("i16", 1.0, 0, 256.0, 1), ("i16", 1.0, 3, 64.0, 0))
_BYTES = (("i8", 0.02, 3, 0.05, -3), ("u8", 1.5, 200, 0.5, 7), ("i8", 1.0, -1, 2.0, 1))


def parsed_tensor(text: str) -> TypeOfTensor:
    parsed = parse_type(text)
    assert isinstance(parsed, TypeOfTensor)
    return parsed


def planned(source: str, target: str, scheme: str) -> Any:
    return plan_requantize(parsed_tensor(source), parse_type(target), scheme=scheme)


@lru_cache
def multiplier(scheme: str, scale_in: float, scale_out: float) -> tuple[int, int]:
    derived = scheme_oracle.derive(scheme, scheme_oracle.factor(scheme, scale_in, None, scale_out))
    assert derived is not None
    return derived.multiplier, derived.shift


def oracle_value(scheme: str, q: int, scales: tuple[float, float], zeros: tuple[int, int], bounds: Any) -> int | None:
    return scheme_oracle.requantized(scheme, q, zeros[0], *multiplier(scheme, *scales), zeros[1], bounds)


@pytest.mark.sample(2)
@pytest.mark.parametrize("scheme", FIXED_POINT_SCHEMES)
def test_every_stored_number(scheme: str) -> None:
    """All of i16 (8 bits where a scheme takes no more) to i8: the service's bits, and exact integers."""
    for storage, scale_in, z_in, scale_out, z_out in _BYTES if scheme == "xnnpack_cvt8" else _WIDE:
        width, unsigned = int(storage[1:]), storage[0] == "u"
        low = 0 if unsigned else -(1 << (width - 1))
        values = sample_array(np.arange(low, low + (1 << width)), 1024).astype(f"{storage[0]}{width // 8}")
        source = tensor_type([values.size], quantized(storage, [scale_in], [z_in]))
        target = tensor_type([values.size], quantized("i8", [scale_out], [z_out]))
        line = f"%r = stablehlo.uniform_quantize %a0 : ({source}) -> {target}"
        found = run(integer_module(function([source], [line], target), f"scheme={scheme}"), [values])
        expected = np.empty(values.size, np.int8)
        planned(source, target, scheme).run(values, expected)
        assert np.array_equal(found, expected), (scheme, scale_in, scale_out)
        exact = [oracle_value(scheme, q, (scale_in, scale_out), (z_in, z_out), (-128, 127)) for q in values.tolist()]
        assert found.tolist() == exact, (scheme, scale_in, scale_out)


@settings(max_examples=examples(250))
@given(data=st.data())
def test_accumulators_at_ties_per_axis(data: st.DataObject) -> None:
    """i32 to any storage, each channel with its own scale and zero point; numbers next to ties of the product."""
    draw = data.draw
    scheme = draw(st.sampled_from([name for name in FIXED_POINT_SCHEMES if name != "xnnpack_cvt8"]))
    storage = draw(st.sampled_from(("i8", "u8", "i16", "u16", "i4", "u4", "i32", "i8<-100:99>")))
    name, _, narrowed = storage.partition("<")
    width = int(name[1:])
    bounds = (0, (1 << width) - 1) if name[0] == "u" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    bounds = (-100, 99) if narrowed else bounds
    channels = draw(st.integers(1, 3))
    exponents = st.integers(-9, 9).map(lambda power: 2.0**power)
    scales = [draw(st.one_of(exponents, st.floats(2.0**-9, 2.0**9, width=32))) for _ in range(channels)]
    zeros = [draw(st.integers(*bounds)) for _ in range(channels)]
    scale_in, z_in = draw(st.floats(2.0**-8, 1.0, width=32)), draw(st.sampled_from((0, 0, 5, -77)))
    z_in = 0 if scheme.startswith("tosa") else z_in
    rows, columns = 4, []
    for s in scales:
        factor = scale_in / s
        near = [int((draw(st.integers(-200, 200)) + 0.5) / factor) + draw(st.integers(-1, 1)) for _ in range(rows)]
        columns.append([min(max(q, -(2**31)), 2**31 - 1) for q in near])
    values = np.array(columns, np.int32).T
    source = tensor_type(values.shape, quantized("i32", [scale_in], [z_in]))
    target = tensor_type(values.shape, quantized(storage, scales, zeros, 1))
    try:
        plan = planned(source, target, scheme)
    except ParameterError:
        return
    expected = np.empty(values.size, plan.output_dtype)
    try:
        plan.run(values.ravel(), expected)
    except PreconditionError:
        return
    line = f"%r = stablehlo.uniform_quantize %a0 : ({source}) -> {target}"
    found = run(integer_module(function([source], [line], target), f"scheme={scheme}"), [values]).ravel()
    mask = (1 << width) - 1
    exact = [
        oracle_value(scheme, q, (scale_in, scales[i % channels]), (z_in, zeros[i % channels]), bounds)
        for i, q in enumerate(values.ravel().tolist())
    ]
    assert [q & mask for q in found.tolist()] == [q & mask for q in expected.tolist()]
    assert [q & mask for q in found.tolist()] == [None if q is None else q & mask for q in exact]


def emitted(plan: ScalingPlan, values: Array, width_in: int, width_out: int) -> Array:
    """Return what a plan, whose multipliers may have been given, becomes as a module, on stored integers."""
    shape = [values.size]
    element = IntegerType(width_out)
    block = Block(arg_types=[TensorType(IntegerType(width_in), shape)])
    done = ReturnOp()
    block.add_op(done)
    result = scale(Emitter(done), block.args[0], plan, element)
    block.erase_op(done)
    block.add_op(ReturnOp(result))
    operation = ModuleOp([FuncOp("main", ([block.args[0].type], [result.type]), Region(block))])
    operation.verify()
    return run(Module(operation, "", ModuleLimits()), [values])


@pytest.mark.exhaustive
def test_vectors_of_real_systems() -> None:
    """requantize_variants, tflite_multiplier and their like: everything with a multiplier, a shift and integers."""
    elements: dict[str, int] = {}
    for case in scheme_conversions():
        if case.error is not None or case.expected is None or case.values.size == 0:
            continue
        source = parsed_tensor(case.input_type)
        given_ = [Multiplier(*pair) for pair in case.multipliers] or None
        plan = plan_requantize(source, parse_type(case.output_type), case.profile, given_, **case.options)
        if not isinstance(plan, ScalingPlan) or not isinstance(plan.scheme.stage, FixedPoint):
            continue
        if len(source.shape or ()) != 1 or plan.sides.source.width not in (8, 16, 32, 64):
            continue
        width = plan.sides.target.width
        found = emitted(plan, case.values.view(f"i{case.values.dtype.itemsize}"), plan.sides.source.width, width)
        assert np.array_equal(stored(found, case.expected), case.expected), case.name
        elements[plan.scheme.name] = elements.get(plan.scheme.name, 0) + found.size
    assert set(elements) >= {"litert", "cmsis_nn", "cmsis_nn_single_rounding", "cmsis_nn_int64", "xnnpack_rndnu",
                             "xnnpack_rndna", "xnnpack_gemmlowp"}  # fmt: skip
    assert sum(elements.values()) > 10_000, elements


def rescale_module(case: Any) -> str:
    """Return a function of one tosa.rescale."""
    source, target = tensor_type(case.shape, case.in_t), tensor_type(case.shape, case.out_t)
    wide = 32 if case.scale32 else 16
    count = len(case.multiplier)
    operands = (
        (list(case.multiplier), f"tensor<{count}xi{wide}>"),
        (list(case.shift), f"tensor<{count}xi8>"),
        (patterns([case.input_zp], case.in_t).tolist(), f"tensor<1x{case.in_t}>"),
        (patterns([case.output_zp], case.out_t).tolist(), f"tensor<1x{case.out_t}>"),
    )
    lines = [
        f'%c{index} = "tosa.const"() <{{values = dense<{values}> : {type_}}}> : () -> {type_}'
        for index, (values, type_) in enumerate(operands)
    ]
    words = {name: str(getattr(case, name)).lower() for name in ("scale32", "per_channel", "input_unsigned",
                                                                "output_unsigned")}  # fmt: skip
    flags = f"scale32({words['scale32']}) rounding_mode<{case.rounding_mode}> per_channel({words['per_channel']}) "
    flags += f"input_unsigned({words['input_unsigned']}) output_unsigned({words['output_unsigned']})"
    types = ", ".join((source, *(type_ for _, type_ in operands)))
    lines = [
        line.replace('"tosa.const"() <{values = ', "tosa.const values(").replace("}> : ()", ") : ()") for line in lines
    ]
    lines.append(f"%r = tosa.rescale %a0, %c0, %c1, %c2, %c3 {flags} : ({types}) -> {target}")
    return function([source], lines, target)


@pytest.mark.exhaustive
def test_every_rescale_of_the_reference_model() -> None:
    """tosa_rescale.json: all types, flags and modes but INEXACT_ROUND, which multiplies floats."""
    counts = {"valid": 0, "refused": 0}
    for vector in sample(list(rescales()), 100):
        if vector.error is not None:
            continue
        text = rescale_module(vector.case)
        if vector.case.rounding_mode == "INEXACT_ROUND":
            with pytest.raises(LoweringError, match="has no fixed point"):
                integer_module(text)
            counts["refused"] += 1
            continue
        found = run(integer_module(text), [patterns(vector.values, vector.case.in_t)])
        unsigned = vector.case.output_unsigned
        assert tuple(numbers(found.ravel(), vector.case.out_t, unsigned=unsigned)) == vector.output, vector.name
        counts["valid"] += 1
    assert counts == {"valid": 225, "refused": 55} if EXHAUSTIVE else min(counts.values()) > 5


def test_what_has_no_fixed_point_is_named() -> None:
    for scheme in ("onnxruntime", "stablehlo", "xnnpack_fp32", "tosa_inexact_round"):
        with pytest.raises(UnsupportedError, match=f"scheme {scheme} has no fixed point; .*gemmlowp, cmsis_nn"):
            integer_module("func.func @main() { return }", f"scheme={scheme}")
    for profile in ("onnx", "torch", "stablehlo", "onednn"):
        with pytest.raises(UnsupportedError, match=f"profile {profile} has no fixed point; .*litert_xnnpack, tosa"):
            integer_module("func.func @main() { return }", f"profile={profile}")
    with pytest.raises(UnsupportedError, match="no option"):
        parse_pass("requant-to-integer-arith{scheme=none}")
    assert FIXED_POINT_PROFILES == (
        "litert", "litert_single_rounding", "litert_xnnpack", "tosa", "tosa_double_round",
    )  # fmt: skip
    assert len(FIXED_POINT_SCHEMES) == 23


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("?x!quant.uniform<i8:f32, 1.0>", "?x!quant.uniform<i8:f32, 2.0>", "static shape"),
        ("2x!quant.uniform<ui8:f32, 1.0>", "2x!quant.uniform<i8:f32, 2.0>", "signless"),
        ("2x!quant.uniform<i16:f32, 1.0:1>", "2x!quant.uniform<i16:f32, 2.0>", "zero points 0"),
    ],
)
def test_what_is_refused(source: str, target: str, reason: str) -> None:
    line = f"%r = stablehlo.uniform_quantize %a0 : (tensor<{source}>) -> tensor<{target}>"
    text = function([f"tensor<{source}>"], [line], f"tensor<{target}>")
    with pytest.raises(LoweringError, match=f"{reason}.*at line 2, column 3"):
        lowered(text, "requant-to-integer-arith")


def test_narrow_unsigned_storage_through_casts() -> None:
    """quant.scast keeps 4 bits: 15 of u4 is -1 of i4 and back."""
    source, target = (tensor_type([16], quantized("u4", [each], [3])) for each in (0.5, 0.25))
    line = f"%r = stablehlo.uniform_quantize %a0 : ({source}) -> {target}"
    module = lowered(function([source], [line], target), "requant-to-integer-arith{scheme=litert}")
    values = np.arange(16, dtype=np.uint8)
    (found,) = evaluate(module, function_named(module, None), [Tensor(parsed_tensor(source), values)])
    assert found.elements.tolist() == [min(max(2 * (q - 3) + 3, 0), 15) for q in range(16)]


def test_the_one_bit_of_i1_is_its_sign() -> None:
    line = "%r = arith.extsi %a0 : tensor<2xi1> to tensor<2xi32>"
    module = lowered(function(["tensor<2xi1>"], [line], "tensor<2xi32>"))
    inputs = [Tensor(parsed_tensor("tensor<2xi1>"), np.array([False, True]))]
    (found,) = evaluate(module, function_named(module, None), inputs)
    assert found.elements.tolist() == [0, -1]


@pytest.mark.parametrize(("scale_in", "z_out"), [(4.0, 0), (0.99999994, 30000), (0.99999994, -32768)])
def test_litert_wraps_where_its_int32_does(scale_in: float, z_out: int) -> None:
    """The shift to the left, and the addition of the output's zero point, near both ends of int32."""
    values = np.array([2**31 - 1, 2**31 - 9, 2**29 + 5, -(2**29) - 7, -(2**31), -(2**31) + 3, 77], np.int32)
    source = tensor_type([7], quantized("i32", [scale_in], [0]))
    target = tensor_type([7], quantized("i16", [1.0], [z_out]))
    line = f"%r = stablehlo.uniform_quantize %a0 : ({source}) -> {target}"
    found = run(integer_module(function([source], [line], target), "scheme=litert"), [values])
    assert found.tolist() == [
        oracle_value("litert", q, (scale_in, 1.0), (0, z_out), (-32768, 32767)) for q in values.tolist()
    ]
