"""Operators whose types say all: StableHLO, MLIR's quant dialect, LiteRT. Each is the profile that it names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.errors import InvalidRequestError, RequantError, TypeFitError, UnsupportedError
from requant.mlir import parse_type
from tests.oracles import profiles as profile_oracle
from tests.support.operator_calls import output_types, run, tensor

X = np.array([0.25, 0.75, -1.25, 2.5, 300.0, -300.0], np.float32)
TYPE = "!quant.uniform<i8:f32, 0.5:3>"
I8 = profile_oracle.target("i8")
SLOTS = {"stablehlo": "operand", "mlir": "input", "litert": "input"}


def named(output_type: str, **more: Any) -> dict[str, Any]:
    return {"output_type": parse_type(output_type), **more}


@pytest.mark.parametrize(
    ("operator", "attributes", "oracle"),
    [
        ("stablehlo.uniform_quantize", {}, "stablehlo"),
        ("litert.QUANTIZE", {}, "litert"),
        ("litert.QUANTIZE", {"kernel": "xnnpack"}, "litert_xnnpack"),
        ("mlir.quant.qcast", {}, "mlir"),
    ],
)
def test_floats_are_quantized_as_the_oracles_do(operator: str, attributes: Any, oracle: str) -> None:
    x = X[:4] if oracle == "mlir" else X
    inputs = {SLOTS[operator.split(".")[0]]: tensor("f32", x)}
    (found,) = run(operator, inputs, named(TYPE, **attributes)).values()
    quantize = profile_oracle.QUANTIZE[oracle]
    expected = [quantize(float(each), 0.5, 3, I8) for each in x]
    assert found.tolist() == [each.value for each in expected if each is not None]


@pytest.mark.parametrize("operator", ["stablehlo.uniform_dequantize", "litert.DEQUANTIZE", "mlir.quant.dcast"])
def test_stored_numbers_are_dequantized(operator: str) -> None:
    inputs = {SLOTS[operator.split(".")[0]]: tensor(TYPE, [3, 4, -128, 127])}
    attributes = named("f32") if operator == "mlir.quant.dcast" else {}
    (found,) = run(operator, inputs, attributes).values()
    assert found.tolist() == [0.0, 0.5, -65.5, 62.0]


@pytest.mark.parametrize("operator", ["stablehlo.uniform_quantize", "litert.QUANTIZE"])
def test_stored_numbers_are_requantized(operator: str) -> None:
    inputs = {SLOTS[operator.split(".")[0]]: tensor(TYPE, [3, 5, -1])}
    attributes = named("!quant.uniform<i8:f32, 0.25:0>")
    (found,) = run(operator, inputs, attributes).values()
    assert found.tolist() == [0, 4, -8]
    (text,) = output_types(operator, inputs, attributes).values()
    assert text.startswith("tensor<3x!quant.uniform<i8:f32, 2.5")


def test_scast_keeps_the_bits() -> None:
    unsigned = {"input": tensor("!quant.uniform<u8:f32, 1.0>", [0, 200, 255])}
    assert run("mlir.quant.scast", unsigned, named("i8"))["result"].tolist() == [0, -56, -1]
    back = {"input": tensor("i8", [0, -56, -1])}
    assert run("mlir.quant.scast", back, named("!quant.uniform<u8:f32, 1.0>"))["result"].tolist() == [0, 200, 255]
    narrow = {"input": tensor("i4", [7, -8])}
    assert run("mlir.quant.scast", narrow, named("!quant.uniform<u4:f32, 1.0>"))["result"].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("operator", "element", "attributes", "error", "pointer"),
    [
        ("stablehlo.uniform_quantize", "f32", named("i8"), UnsupportedError, "/attributes/output_type"),
        ("stablehlo.uniform_quantize", "f32", named(f"tensor<3x{TYPE}>"), TypeFitError, "/attributes/output_type"),
        ("stablehlo.uniform_quantize", "f16", named(TYPE), UnsupportedError, "/attributes/output_type"),
        ("stablehlo.uniform_quantize", "i8", named(TYPE), UnsupportedError, "/inputs/operand"),
        ("stablehlo.uniform_quantize", "f32", {}, InvalidRequestError, None),
        ("stablehlo.uniform_dequantize", "f32", {}, UnsupportedError, "/inputs/operand"),
        ("mlir.quant.qcast", "f16", named(TYPE), UnsupportedError, "/attributes/output_type"),
        ("mlir.quant.scast", "i16", named(TYPE), UnsupportedError, "/attributes/output_type"),
        ("mlir.quant.scast", "i8", named("i8"), UnsupportedError, "/attributes/output_type"),
        ("litert.QUANTIZE", "f32", named("f16"), UnsupportedError, "/attributes/output_type"),
        (
            "litert.QUANTIZE",
            "f32",
            named("!quant.uniform<i16:f32, 1.0>", kernel="xnnpack"),
            UnsupportedError,
            "/attributes/output_type",
        ),
    ],
)
def test_what_is_refused(
    operator: str, element: str, attributes: Any, error: type[RequantError], pointer: str | None
) -> None:
    with pytest.raises(error) as caught:
        run(operator, {SLOTS[operator.split(".")[0]]: tensor(element, [0, 1])}, attributes)
    assert caught.value.pointer == pointer
