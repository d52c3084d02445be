"""The operation: what it compares, what it says, and functions of modules in the place of a rule."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import numpy as np
import pytest

import requant
from requant.equality.certificates import fault
from requant.errors import InvalidRequestError, LoweringError, ParameterError, RequantError, UnsupportedError
from requant.errors.cancellation import cancellation_check
from requant.errors.progress import progress_report
from requant.operations.equivalence import EQUIVALENCE
from requant.operations.function_rules import _MAX_UNDEFINED

SOURCE, TARGET = "!quant.uniform<i32:f32, 0.001>", "!quant.uniform<i8:f32, 0.25:-1>"
TYPES = {"input_type": SOURCE, "output_type": TARGET}
SHORT = {"input_type": "!quant.uniform<i16:f32, 0.001>", "output_type": TARGET}


def compared(operation: Any = "requantize", **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = requant.equivalence(operation, **options)
    return found


def test_a_pair_is_decided_with_a_certificate_in_a_fraction_of_a_second() -> None:
    seconds = []
    for _ in range(5):
        begun = process_time()
        found = compared(**TYPES, first={}, second={"profile": "litert_xnnpack"})
        seconds.append(process_time() - begun)
    assert min(seconds) < 0.25
    assert (found["equal"], found["differing"], found["inputs"]) == (False, 36, 1 << 32)
    document = json.loads(found["certificate"])
    assert fault(document) is None
    assert document["claim"]["differing"] == 36


def test_the_sample_is_of_inputs_that_differ() -> None:
    found = compared(**TYPES, first={}, second={"profile": "litert_xnnpack"})
    inputs = [int(each["input"]) for each in found["sample"]]
    assert inputs == sorted(inputs)
    for profile, side in (("litert", "first"), ("litert_xnnpack", "second")):
        outcomes = requant.requantize(np.array(inputs, np.int32), SOURCE, TARGET, profile=profile)
        assert outcomes.tolist() == [int(each[side]) for each in found["sample"]]


def test_each_rule_may_have_its_own_types_and_multiplier() -> None:
    first = {"scheme": "litert", "multiplier": 1 << 30, "shift": -5}
    assert compared(**TYPES, first=first, second={"scheme": "tosa", "multiplier": 1 << 30, "shift": 36})["differing"]
    same = compared(input_type="i32", output_type="i8", first=first, second={**first, "input_type": SOURCE})
    assert same["equal"]
    narrow = {"output_type": "!quant.uniform<i8<-127:127>:f32, 0.25:-1>"}
    assert compared(**TYPES, first={}, second=narrow)["differing"] == found_at_lowest()


def found_at_lowest() -> int:
    """How many accumulators become -128: all up to the last one that does."""
    accumulators = np.arange(-40_000, 0, dtype=np.int32)
    at_lowest = np.flatnonzero(requant.requantize(accumulators, SOURCE, TARGET, profile="litert") == -128)
    return int(accumulators[at_lowest[-1]]) + (1 << 31) + 1


def test_floats_are_shown_with_their_bits() -> None:
    found = compared("quantize", input_type="f32", output_type="!quant.uniform<i8:f32, 0.5>", first={}, second={
        "profile": "onnx"})  # fmt: skip
    assert found["differing"] == (1 << 24) - 2
    assert found["sample"][0] == {"input": "NaN", "input_bits": "0x7f800001", "first": "0", "second": "-128"}
    wide = compared("dequantize", input_type="f8E4M3FN", output_type="f32", first={}, second={})
    assert (wide["equal"], wide["inputs"]) == (True, 256)


def test_counts_of_64_bits_are_exact() -> None:
    types = {"input_type": "f64", "output_type": "!quant.uniform<i8:f64, 0.5>"}
    found = compared("quantize", **types, first={}, second={"rounding": "floor"}, certificate=True)
    assert found["inputs"] == 1 << 64
    assert json.loads(found["certificate"])["claim"]["differing"] == found["differing"] > 1 << 50


def test_many_multipliers() -> None:
    multipliers, shifts = [1099511680, 1 << 30, 1 << 60], [-7, -5, 0]
    types = {"input_type": "i32", "output_type": "i8"}
    rules: dict[str, Any] = {"first": {"scheme": "litert"}, "second": {"scheme": "tosa"}}
    found = compared(**types, **rules, multipliers=multipliers, shifts=shifts)
    assert [each.get("differing") for each in found["multipliers"]][:2] == [0, 255]
    assert "refusal" in found["multipliers"][2]
    assert found["differing"] == 255
    assert not found["equal"]
    with pytest.raises(ParameterError, match="each of which names its scheme"):
        compared(**types, first={}, second={}, multipliers=[1], shifts=[0])


def test_additions() -> None:
    eight = "!quant.uniform<i8:f32, 0.5>"
    found = compared("add", input_type=eight, output_type="!quant.uniform<i8:f32, 0.7>", first={}, second={
        "profile": "onnx"})  # fmt: skip
    assert (found["inputs"], found["decided"][0]["method"]) == (1 << 16, "pairs")
    wide = {"input_type": "!quant.uniform<i16:f32, 0.5>", "output_type": "!quant.uniform<i16:f32, 0.7>"}
    with pytest.raises(UnsupportedError, match="cannot be reduced"):
        compared("add", **wide, first={}, second={"profile": "onnx"})
    with pytest.raises(UnsupportedError, match="without smt2"):
        compared("add", **wide, first={}, second={}, smt2=True)


def test_smt2_says_what_is_known() -> None:
    assert "(set-info :status unsat)" in compared(**TYPES, first={}, second={"profile": "tosa"}, smt2=True)["smt2"]
    with pytest.raises(UnsupportedError, match="integer arithmetic only") as caught:
        compared(**TYPES, first={}, second={"profile": "litert_xnnpack"}, smt2=True)
    assert caught.value.pointer == "/smt2"


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"second": {"rounding": "floor"}}, "/second/rounding"),
        ({"second": {"profile": "mlir"}}, "/second"),
        ({"second": {"input_type": "f32"}}, "/second/input_type"),
        ({"second": {"multiplier": 3}}, "/second"),
        ({"second": {}, "input_type": None}, "/input_type"),
        ({"second": {}, "rhs_type": SOURCE}, "/rhs_type"),
        ({"module": "x"}, "/module"),
    ],
)
def test_errors_point_at_the_rule(options: dict[str, Any], pointer: str) -> None:
    given = {name: value for name, value in {**TYPES, **options}.items() if value is not None}
    with pytest.raises(RequantError) as caught:
        compared(first={}, **given)
    faults = caught.value.faults if isinstance(caught.value, InvalidRequestError) else ()
    assert pointer in (caught.value.pointer, *(each.pointer for each in faults))


def module_of(input_type: str, output_type: str, shape: str = "2") -> str:
    before, after = f"tensor<{shape}x{input_type}>", f"tensor<{shape}x{output_type}>"
    return (
        f"func.func @main(%x: {before}) -> {after} {{\n  %q = stablehlo.uniform_quantize %x : ({before}) -> {after}\n"
        f"  return %q : {after}\n}}\n"
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("passes", [[], ["requant-to-integer-arith"], ["requant-to-integer-arith",
                                                                       "strip-func-quant-types"]])  # fmt: skip
@pytest.mark.parametrize("shape", ["1", "2x3", "?"])
def test_a_function_is_compared_with_a_rule(passes: list[str], shape: str) -> None:
    if passes and shape == "?":
        return  # the pass takes static shapes
    module = requant.lower(module_of(**SHORT, shape=shape), passes=passes)["module"]
    same, other = ("litert", "stablehlo") if passes else ("stablehlo", "litert")
    found = compared(**SHORT, first={"profile": same}, module=module)
    assert (found["equal"], found["inputs"], found["decided"][0]["method"]) == (True, 1 << 16, "sweep")
    assert "certificate" not in found
    differs = compared(**SHORT, first={"profile": other}, module=module)
    as_rules = compared(**SHORT, first={"profile": other}, second={"profile": same})
    assert differs["differing"] == as_rules["differing"] == 36
    assert differs["sample"][0]["input"] == as_rules["sample"][0]["input"]


@pytest.mark.parametrize(
    ("passes", "scale", "undefined"),
    [
        # Infinities and NaN.
        ([], "512.0", 2 * (0x8000 - 0x7C00)),
        # From 128 * 256 on, from -129 * 256 on, and NaN of either sign.
        (["lower-quant-ops"], "256.0", (0x8000 - 0x7800) + (0x8000 - 0x7808)),
        (["lower-quant-ops", "strip-func-quant-types"], "256.0", (0x8000 - 0x7800) + (0x8000 - 0x7808)),
    ],
)
def test_a_function_is_undefined_where_its_rule_is(passes: list[str], scale: str, undefined: int) -> None:
    target = f"!quant.uniform<i8:f16, {scale}>"
    text = f"tensor<4x{target}>"
    module = f"func.func @main(%x: tensor<4xf16>) -> {text} {{\n  %q = quant.qcast %x : tensor<4xf16> to {text}\n"
    module = requant.lower(f"{module}  return %q : {text}\n}}\n", passes=passes)["module"]
    types = {"input_type": "f16", "output_type": target}
    found = compared("quantize", **types, first={"profile": "mlir"}, module=module)
    assert found["equal"]
    assert found["neither"] == undefined


def function(body: str, source: str = "tensor<4xi8>", target: str = "tensor<4xi8>") -> str:
    return f"func.func @main(%x: {source}) -> {target} {{\n{body}\n  return %q : {target}\n}}\n"


CONSTANT = "  %c = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi8>\n  %q = stablehlo.add %x, %c : tensor<4xi8>"
SIZES = (
    "  %z = arith.constant 0 : index\n  %n = tensor.dim %x, %z : tensor<?xi8>\n"
    "  %i = arith.index_cast %n : index to i8\n"
    "  %t = tensor.splat %i[%n] : tensor<?xi8>\n  %q = arith.addi %x, %t : tensor<?xi8>"
)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (function("  %q = stablehlo.reverse %x, dims = [0] : tensor<4xi8>"), "not on single elements"),
        (function(CONSTANT), "a constant of several numbers"),
        (function(SIZES, "tensor<?xi8>", "tensor<?xi8>"), "goes into their values"),
        (function("  %q = stablehlo.convert %x : (tensor<4xi16>) -> tensor<4xi8>", "tensor<4xi16>"), "has i16 where"),
        ("func.func @main(%x: tensor<4xi8>, %q: tensor<4xi8>) -> tensor<4xi8> { return %q : tensor<4xi8> }", "one arg"),
        ("func.func @main(%x: tensor<i8>) -> tensor<i8> { return %x : tensor<i8> }", "without dimensions"),
    ],
)
def test_functions_that_are_no_rules(module: str, message: str) -> None:
    types = {"input_type": "!quant.uniform<i8:f32, 0.5>", "output_type": "!quant.uniform<i8:f32, 0.5>"}
    with pytest.raises((LoweringError, RequantError), match=message) as caught:
        compared(**types, first={}, module=module)
    assert caught.value.pointer == "/module"


@pytest.mark.exhaustive
def test_a_function_that_is_mostly_undefined_is_refused() -> None:
    types = {"input_type": "f32", "output_type": "!quant.uniform<i8:f32, 0.5>"}
    text = "tensor<4x!quant.uniform<i8:f32, 0.5>>"
    module = function(f"  %q = quant.qcast %x : tensor<4xf32> to {text}", "tensor<4xf32>", text)
    with pytest.raises(UnsupportedError, match=f"more than {_MAX_UNDEFINED} inputs"):
        compared("quantize", **types, first={"profile": "mlir"}, module=module)


def test_progress_is_told_and_work_ends_when_asked() -> None:
    told: list[tuple[int, int]] = []
    token = progress_report.set(lambda done, total: told.append((done, total)))
    try:
        compared(**SHORT, first={"profile": "stablehlo"}, module=module_of(**SHORT))
    finally:
        progress_report.reset(token)
    assert told[-1] == (1 << 16, 1 << 16)

    def end() -> None:
        raise InterruptedError

    ending = cancellation_check.set(end)
    try:
        with pytest.raises(InterruptedError):
            compared(**SHORT, first={"profile": "stablehlo"}, module=module_of(**SHORT))
    finally:
        cancellation_check.reset(ending)


def test_the_example_is_of_the_page() -> None:
    assert EQUIVALENCE.example["second"] == {"profile": "litert_xnnpack"}
