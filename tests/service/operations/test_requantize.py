"""/v1/requantize and its .npy: schemes, multipliers of plain integers, packing, and what is refused."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest

from requant.schemes import SCHEMES
from tests.oracles import schemes as scheme_oracle

VALUES = [-(2**20), -12345, -1, 0, 1, 3, 127, 2**20]
I8 = (-128, 127)


def post(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/v1/requantize", json=body)


def npy(client: httpx.Client, array: np.ndarray, **query: Any) -> httpx.Response:
    file = io.BytesIO()
    np.save(file, array)
    return client.post("/v1/npy/requantize", params=query, content=file.getvalue())


def pair_of(scheme: str, factor: float) -> scheme_oracle.Derived:
    derived = scheme_oracle.derive(scheme, factor)
    assert derived is not None
    return derived


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("storage", ["i16", "i32", "i48", "i64"])
def test_plain_integers_by_multipliers(client: httpx.Client, scheme: str, storage: str) -> None:
    """The same through JSON and .npy; one multiplier for each column."""
    pairs = [pair_of(scheme, factor) for factor in (0.0123, 0.25)]
    small = scheme == "xnnpack_cvt8" or storage == "i16"
    values = [max(min(v, 200), -200) if small else v for v in VALUES]
    expected = [
        scheme_oracle.requantized(scheme, v, 0, pairs[i % 2].multiplier, pairs[i % 2].shift, 3, I8)
        for i, v in enumerate(values)
    ]
    listed = [{"multiplier": pair.multiplier, "shift": pair.shift} for pair in pairs]
    response = post(
        client,
        input={"type": f"tensor<4x2x{storage}>", "values": values},
        output_type="!quant.uniform<i8:f32, 1.0:3>",
        scheme=scheme,
        multipliers=listed,
        axis=1,
    )
    assert response.status_code == 200, response.text
    reply = response.json()
    assert reply["output"]["values"] == expected
    assert reply["multipliers"] == listed
    assert reply["report"]["scheme"] == scheme
    if storage == "i48":
        return
    response = npy(
        client,
        np.array(values, f"<i{int(storage[1:]) // 8}").reshape(4, 2),
        output_type="!quant.uniform<i8:f32, 1.0:3>",
        scheme=scheme,
        multipliers=",".join(f"{pair.multiplier}:{pair.shift}" for pair in pairs),
        axis=1,
    )
    assert response.status_code == 200, response.text
    assert np.load(io.BytesIO(response.content)).ravel().tolist() == expected


@pytest.mark.parametrize("scheme", ["litert", "onnxruntime", "litert_float", "tosa_scale16"])
def test_dense_packing(client: httpx.Client, scheme: str) -> None:
    """i4 in, i2 out; both packed, in JSON and .npy."""
    values = list(range(-8, 8))
    input_type, output_type = "tensor<16x!quant.uniform<i4:f32, 0.5:1>>", "!quant.uniform<i2:f32, 1.5:-1>"
    pair = pair_of(scheme, scheme_oracle.factor(scheme, 0.5, None, 1.5))
    expected = [scheme_oracle.requantized(scheme, q, 1, pair.multiplier, pair.shift, -1, (-2, 1)) for q in values]
    dense_in = bytes((low & 15) | (high & 15) << 4 for low, high in zip(values[::2], values[1::2], strict=True))
    quarters = [expected[i : i + 4] for i in range(0, 16, 4)]
    dense_out = bytes(sum(((q or 0) & 3) << 2 * i for i, q in enumerate(quarter)) for quarter in quarters)
    response = post(
        client,
        input={"type": input_type, "data": base64.b64encode(dense_in).decode()},
        output_type=output_type,
        scheme=scheme,
        packing="dense",
    )
    assert base64.b64decode(response.json()["output"]["data"]) == dense_out, response.text
    query = {"input_type": input_type, "output_type": output_type, "scheme": scheme, "packing": "dense"}
    response = npy(client, np.frombuffer(dense_in, np.uint8), **query)
    assert np.load(io.BytesIO(response.content)).tobytes() == dense_out, response.text


I32 = {"type": "tensor<2x!quant.uniform<i32:f32, 0.5>>", "values": [1, 2]}
PLAIN = {"type": "tensor<2xi64>", "values": [1, 2]}


def to_i8(source: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"input": source, "output_type": "!quant.uniform<i8:f32, 1.0>", **more}


def pair(multiplier: int, shift: int = 0) -> list[dict[str, int]]:
    return [{"multiplier": multiplier, "shift": shift}]


ONE = pair(1 << 30)
I4 = {"type": "tensor<2x!quant.uniform<i4:f32, 0.5>>", "values": [1, 2]}


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (to_i8(PLAIN), "unsupported", "/input/type"),
        ({"input": I32, "output_type": "i8"}, "unsupported", "/output_type"),
        (to_i8(PLAIN, multipliers=ONE * 2), "type_does_not_fit", "/multipliers"),
        (to_i8(PLAIN, multipliers=ONE * 3, axis=0), "type_does_not_fit", "/multipliers"),
        (to_i8(PLAIN, multipliers=ONE * 2, axis=1), "type_does_not_fit", "/axis"),
        (to_i8(I32, axis=0), "unsupported", "/axis"),
        (to_i8(I32, scheme="nosuch"), "unknown_name", "/scheme"),
        (to_i8(I32, scheme=""), "unknown_name", "/scheme"),
        (to_i8(I32, profile="mlir"), "unsupported", "/profile"),
        (to_i8(I32, profile="onednn", multipliers=ONE), "unsupported", "/profile"),
        (to_i8(I32, multipliers=[]), "type_does_not_fit", "/multipliers"),
        (to_i8(I32, multipliers=pair(2**24), scheme="onnxruntime"), "parameter_invalid", "/multipliers/0/multiplier"),
        (to_i8(I32, multipliers=pair(3, 172), scheme="fbgemm"), "parameter_invalid", "/multipliers/0/multiplier"),
        (to_i8(I32, multipliers=pair(1, 8), scheme="litert_int64"), "parameter_invalid", "/multipliers/0/shift"),
        (to_i8(I32, multipliers=pair(2**53 + 1)), "request_invalid", "/multipliers/0/multiplier"),
        (to_i8(I32, multipliers=ONE, axis=-1), "request_invalid", "/axis"),
        (to_i8(I4, packing="dense", scheme="litert"), "request_invalid", "/packing"),
    ],
)
def test_refusals(client: httpx.Client, body: dict[str, Any], code: str, pointer: str) -> None:
    response = post(client, **body)
    assert response.status_code == 422, response.text
    problem = response.json()
    assert problem["code"] == code
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("scheme", "value", "multiplier", "shift", "says"),
    [
        ("litert", 2**31, 1 << 30, 0, "fit int32"),
        ("litert_single_rounding", 2**30, 2**31 - 1, 2, "scaled value must fit int32"),
        ("litert_int64", 2**47, 1 << 30, -20, "2^47"),
        ("gemmlowp", 2**30, 1 << 30, 2, "shifted left"),
        ("tosa", 2**20, 1 << 30, 20, "2^(shift-1)"),
        ("tosa_scale16", 2**40, 1 << 14, 2, "scaled value to fit int32"),
        ("xnnpack_cvt8", 256, 256, 8, "8-bit"),
    ],
)
def test_the_requirement_that_failed_is_named(
    client: httpx.Client, scheme: str, value: int, multiplier: int, shift: int, says: str
) -> None:
    response = post(
        client,
        input={"type": "tensor<3xi64>", "values": [0, 1, value]},
        output_type="i32",
        scheme=scheme,
        multipliers=[{"multiplier": multiplier, "shift": shift}],
    )
    assert response.status_code == 422
    assert response.json()["code"] == "precondition_failed"
    assert response.json()["index"] == 2
    assert says in response.json()["detail"]


@pytest.mark.parametrize(
    "text", ["", ",", "1", "1:", ":1", "1:1,", "1.0:1", "1:1 ", "+1:1", "9007199254740993:0", "1:2049", "١:1"]
)
def test_multipliers_that_are_none(client: httpx.Client, text: str) -> None:
    response = npy(client, np.zeros(2, np.int32), output_type="i8", multipliers=text)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/multipliers"


@pytest.mark.parametrize("profile", ["stablehlo", "onnx", "onnx_reference", "onednn", "torch", "torch_decomposed"])
def test_profiles_that_requantize(client: httpx.Client, profile: str) -> None:
    """A tie with an odd zero point tells rounding before its addition from rounding after it."""
    response = post(
        client,
        input={"type": "tensor<4x!quant.uniform<i8:f32, 0.5>>", "values": [1, 3, 5, -1]},
        output_type="!quant.uniform<i8:f32, 1.0:3>",
        profile=profile,
    )
    after = [3, 5, 5, 3]
    before = [4, 4, 6, 2]
    expected = before if profile in ("stablehlo", "onnx_reference", "onednn") else after
    assert response.json()["output"]["values"] == expected, response.text
    assert bool(response.json()["multipliers"]) == (profile not in ("onednn", "torch_decomposed"))
