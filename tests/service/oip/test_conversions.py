"""The conversions as models: every option of the JSON face, with the same result, and errors that point into /v2."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from requant.schemes import SCHEMES
from tests.oracles import schemes as scheme_oracle
from tests.support.oip_wire import Array, Input, infer, read

I8 = (-128, 127)
TO_I8 = "!quant.uniform<i8:f32, 1.0:3>"
TABLE = "!quant.uniform<!quant.quantile<ui2:f32, {-1.0, 0.0, 0.5, 1.0}>:f32, 0.2>"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_plain_integers_by_multipliers(client: httpx.Client, scheme: str, dtype: type[np.signedinteger[Any]]) -> None:
    """One multiplier for each column; the datatype says what x is."""
    derived = [scheme_oracle.derive(scheme, factor) for factor in (0.0123, 0.25)]
    pairs = [pair for pair in derived if pair is not None]
    x = np.array([-200, -1, 0, 1, 3, 127, 150, 200], dtype).reshape(4, 2)
    expected = [
        scheme_oracle.requantized(scheme, v, 0, pairs[i % 2].multiplier, pairs[i % 2].shift, 3, I8)
        for i, v in enumerate(x.ravel().tolist())
    ]
    inputs = [
        Input("x", x),
        Input("multiplier", np.array([pair.multiplier for pair in pairs], np.int64)),
        Input("shift", np.array([pair.shift for pair in pairs], np.int32)),
    ]
    parameters = {"output_type": TO_I8, "scheme": scheme, "axis": 1}
    reply = read(infer(client, "requantize", inputs, parameters=parameters))
    assert reply.outputs["y"].ravel().tolist() == expected
    assert reply.head["parameters"]["scheme"] == scheme
    assert reply.outputs["multiplier"].tolist() == [pair.multiplier for pair in pairs]
    assert reply.outputs["shift"].tolist() == [pair.shift for pair in pairs]


def test_packed_numbers_to_another_scale(client: httpx.Client) -> None:
    values = list(range(-8, 8))
    factor = scheme_oracle.factor("litert", 0.5, None, 1.5)
    pair = scheme_oracle.derive("litert", factor)
    assert pair is not None
    expected = [
        scheme_oracle.requantized("litert", q, 1, pair.multiplier, pair.shift, -1, (-2, 1)) or 0 for q in values
    ]
    dense_in = bytes((low & 15) | (high & 15) << 4 for low, high in zip(values[::2], values[1::2], strict=True))
    dense_out = [sum((q & 3) << 2 * i for i, q in enumerate(expected[at : at + 4])) for at in range(0, 16, 4)]
    parameters = {
        "input_type": "tensor<16x!quant.uniform<i4:f32, 0.5:1>>",
        "output_type": "!quant.uniform<i2:f32, 1.5:-1>",
        "scheme": "litert",
        "packing": "dense",
    }
    reply = read(infer(client, "requantize", [Input("x", np.frombuffer(dense_in, np.uint8))], parameters=parameters))
    assert reply.outputs["y"].tolist() == dense_out
    assert reply.head["outputs"][0]["parameters"]["element_type"] == "i2"


@pytest.mark.parametrize(
    ("target", "datatype", "bits", "options"),
    [
        ("f8E4M3FN", "UINT8", [0x38, 0x7F, 0xFF], {}),
        ("f8E5M2", "UINT8", [0x3C, 0x7B, 0xFB], {"profile": "onnx"}),
        ("f8E5M2", "UINT8", [0x3C, 0x7C, 0xFC], {"profile": "onnx", "saturate": False}),
        ("f16", "FP16", [0x3C00, 0x7C00, 0xFC00], {"profile": "ml_dtypes"}),
        ("bf16", "BF16", [0x3F80, 0x49F4, 0xC9F4], {"profile": "ml_dtypes"}),
    ],
)
def test_casts_to_narrower_floats_and_back(
    client: httpx.Client, target: str, datatype: str, bits: list[int], options: dict[str, Any]
) -> None:
    x = np.array([1.0, 2e6, -2e6], np.float32)
    profile = {"profile": "ml_dtypes", **options}
    reply = read(infer(client, "quantize", [Input("x", x)], parameters={"output_type": target, **profile}))
    y = reply.outputs["y"]
    (output,) = reply.head["outputs"]
    assert (output["datatype"], output["parameters"]["element_type"]) == (datatype, target)
    patterns = y.view(np.uint16) if y.dtype == np.float16 else y
    assert patterns.tolist() == bits

    back = {"input_type": target, "profile": profile["profile"]}
    wide = read(infer(client, "dequantize", [Input("x", y, datatype)], parameters=back)).outputs["y"]
    assert wide.dtype == np.float32
    assert wide[0] == 1.0
    assert (wide[2] == -wide[1] and abs(wide[1]) >= 57344) or np.isnan(wide[1])


@pytest.mark.parametrize("packing", ["unpacked", "dense"])
def test_tables_of_values(client: httpx.Client, packing: str) -> None:
    x = np.array([-0.3, 0.01, 0.11, 0.5], np.float32)
    given = {"profile": "quantile", "packing": packing}
    reply = read(infer(client, "quantize", [Input("x", x)], parameters={"output_type": TABLE, **given}))
    assert reply.outputs["y"].tolist() == ([0b11100100] if packing == "dense" else [0, 1, 2, 3])
    assert reply.head["outputs"][0]["parameters"]["element_type"] == "quantile"
    named = f"tensor<4x{TABLE}>"
    back = read(
        infer(client, "dequantize", [Input("x", reply.outputs["y"])], parameters={"input_type": named, **given})
    )
    assert back.outputs["y"].tolist() == (np.array([-1, 0, 0.5, 1], np.float32) * np.float32(0.2)).tolist()


def test_the_error_is_reported_where_it_is_asked_for(client: httpx.Client) -> None:
    x = np.array([0.25, 1.0], np.float32)
    asked = {"output_type": "!quant.uniform<i8:f32, 1.0>", "error": True}
    found = read(infer(client, "quantize", [Input("x", x)], parameters=asked)).head["parameters"]
    assert (found["max_absolute_error"], found["mean_absolute_error"], found["left_out"]) == (0.25, 0.125, 0)
    plain = read(infer(client, "quantize", [Input("x", x)], parameters={"output_type": asked["output_type"]}))
    assert "left_out" not in plain.head["parameters"]


ONES = np.ones(2, np.float32)
I32 = np.array([1, 2], np.int32)
OF_I32 = {"input_type": "!quant.uniform<i32:f32, 0.5>", "output_type": TO_I8}
ONE = {"multiplier": np.array([1 << 30], np.int64), "shift": np.array([0], np.int32)}


@pytest.mark.parametrize(
    ("model", "inputs", "parameters", "code", "pointer"),
    [
        ("requantize", {"x": I32}, {"output_type": TO_I8}, "unsupported", "/inputs/0"),
        ("requantize", {"x": I32, **ONE}, {**OF_I32, "scheme": "nosuch"}, "unknown_name", "/parameters/scheme"),
        ("requantize", {"x": I32}, {**OF_I32, "axis": 0}, "unsupported", "/parameters/axis"),
        ("requantize", {"x": I32}, {**OF_I32, "axis": 256}, "request_invalid", "/parameters/axis"),
        (
            "requantize",
            {"x": I32, "multiplier": np.array([1, 2, 3]), "shift": np.array([0, 0, 0], np.int32)},
            {**OF_I32, "axis": 0},
            "type_does_not_fit",
            "/inputs/1",
        ),
        (
            "requantize",
            {"x": I32, "multiplier": np.array([1 << 30, 1]), "shift": np.array([0, 0], np.int32)},
            {**OF_I32, "axis": 1},
            "type_does_not_fit",
            "/parameters/axis",
        ),
        (
            "requantize",
            {"x": I32, "multiplier": np.array([1 << 62]), "shift": np.array([0], np.int32)},
            OF_I32,
            "parameter_invalid",
            "/inputs/1",
        ),
        (
            "requantize",
            {"x": I32, "shift": np.array([2**40]), "multiplier": np.array([1 << 30])},
            OF_I32,
            "parameter_invalid",
            "/inputs/1",
        ),
        (
            "quantize",
            {"x": ONES},
            {"output_type": TO_I8, "saturate": True},
            "unsupported",
            "/parameters/saturate",
        ),
        ("quantize", {"x": ONES}, {"output_type": TO_I8, "saturate": 1}, "request_invalid", "/parameters/saturate"),
        (
            "quantize",
            {"x": ONES},
            {"output_type": "f8E4M3FN", "profile": "ml_dtypes", "nan": "lowest"},
            "unsupported",
            "/parameters/nan",
        ),
        (
            "quantize",
            {"x": ONES},
            {"output_type": TABLE, "profile": "quantile", "rounding": "floor"},
            "unsupported",
            "/parameters/rounding",
        ),
        (
            "dequantize",
            {"x": np.ones(2, np.float16), "scale": np.ones(1, np.float32)},
            {},
            "request_invalid",
            "/inputs/0/datatype",
        ),
        ("dequantize", {"x": np.ones(2, np.float16)}, {"input_type": "bf16"}, "tensor_data", "/inputs/0/datatype"),
    ],
)
def test_errors_point_to_what_they_are_about(
    client: httpx.Client, model: str, inputs: dict[str, Array], parameters: dict[str, Any], code: str, pointer: str
) -> None:
    given = [Input(name, array) for name, array in inputs.items()]
    response = infer(client, model, given, parameters=parameters)
    problem = response.json()
    assert (problem["code"], [error["pointer"] for error in problem["errors"]]) == (code, [pointer]), problem
    assert response.status_code in (400, 422)
