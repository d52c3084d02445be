"""/v1/tosa/rescale: the documented example, defaults, and bad input, with the operand that each problem points at."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

PATH = "/v1/tosa/rescale"
ONE: dict[str, Any] = {
    "input": {"type": "tensor<2xi8>", "values": [3, -3]},
    "output_type": "i8",
    "multiplier": [1 << 30],
    "shift": [31],
}


def refused(reply: httpx.Response, status: int, code: str, pointer: str | None) -> dict[str, Any]:
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert len(reply.content) < 4096
    found: dict[str, Any] = reply.json()
    if pointer is not None:
        assert found["errors"][0]["pointer"] == pointer
    return found


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    assert client.post(PATH, json=ONE).json()["output"] == {"type": "tensor<2xi8>", "values": [2, -1]}


def test_the_documented_example(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()["paths"][PATH]["post"]["requestBody"]["content"]
    reply = client.post(PATH, json=described["application/json"]["example"])
    assert reply.status_code == 200
    # 1000 * 2^-8 = 3.90625 and 70000 * 1431655765 * 2^-39 = 182.29 before the zero point.
    assert reply.json() == {"output": {"type": "tensor<2x2xi8>", "values": [3, -6, 11, 127]}}


def test_defaults_are_single_round_scale32_and_zero(client: httpx.Client) -> None:
    stated = {
        "input_zp": 0, "output_zp": 0, "scale32": True, "rounding_mode": "SINGLE_ROUND", "per_channel": False,
        "input_unsigned": False, "output_unsigned": False,
    }  # fmt: skip
    assert client.post(PATH, json=ONE | stated).json() == client.post(PATH, json=ONE).json()


def test_scalars_and_unsigned_bit_patterns(client: httpx.Client) -> None:
    scalar = ONE | {"input": {"type": "tensor<i8>", "values": [-56]}, "input_unsigned": True, "output_type": "i16"}
    for zero_point in (200, -56):
        reply = client.post(PATH, json=scalar | {"input_zp": zero_point, "shift": [30]})
        assert reply.json()["output"] == {"type": "tensor<i16>", "values": [0]}
    wide = ONE | {"output_type": "i16", "output_unsigned": True, "output_zp": 32768, "shift": [30]}
    assert client.post(PATH, json=wide).json()["output"]["values"] == [-32765, 32765]


def test_48_bits(client: httpx.Client) -> None:
    request = ONE | {"input": {"type": "tensor<2xi48>", "values": [-(2**47), 2**47 - 1]}}
    request |= {"output_type": "i32", "scale32": False, "multiplier": [1 << 14], "shift": [31]}
    assert client.post(PATH, json=request).json()["output"]["values"] == [-(2**30), 2**30]
    request["input"] = {"type": "tensor<2xi48>", "values": [0, 2**47]}
    refused(client.post(PATH, json=request), 400, "tensor_data", "/input")


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"multiplier": []}, "type_does_not_fit", "/multiplier"),
        ({"multiplier": [1, 1]}, "type_does_not_fit", "/multiplier"),
        ({"shift": []}, "type_does_not_fit", "/shift"),
        ({"per_channel": True}, "type_does_not_fit", "/multiplier"),
        ({"per_channel": True, "multiplier": [1, 1]}, "type_does_not_fit", "/shift"),
        ({"per_channel": True, "input": {"type": "tensor<i8>", "values": [1]}}, "unsupported", "/per_channel"),
        ({"input": {"type": "tensor<0xi8>", "values": []}}, "type_does_not_fit", "/input/type"),
        ({"input": {"type": "tensor<2x0xi8>", "data": ""}}, "type_does_not_fit", "/input/type"),
        ({"input": {"type": "tensor<?xi8>", "values": [1]}}, "type_does_not_fit", "/input/type"),
        ({"input": {"type": "i8", "values": [1]}}, "type_does_not_fit", "/input/type"),
        ({"input": {"type": "tensor<1xui8>", "values": [1]}}, "unsupported", "/input/type"),
        ({"input": {"type": "tensor<1xf32>", "values": [1]}}, "unsupported", "/input/type"),
        ({"input": {"type": "tensor<1x!quant.uniform<i8:f32, 1.0>>", "values": [1]}}, "unsupported", "/input/type"),
        ({"output_type": "i48"}, "unsupported", "/output_type"),
        ({"output_type": "!quant.uniform<i8:f32, 1.0>"}, "unsupported", "/output_type"),
        ({"output_type": "tensor<3xi8>"}, "type_does_not_fit", "/output_type"),
        ({"output_type": "i"}, "type_invalid", "/output_type"),
        ({"input_zp": 128}, "parameter_invalid", "/input_zp"),
        ({"output_zp": -129}, "parameter_invalid", "/output_zp"),
        ({"scale32": False}, "parameter_invalid", "/multiplier/0"),
        ({"scale32": False, "multiplier": [1], "rounding_mode": "DOUBLE_ROUND"}, "unsupported", "/rounding_mode"),
        ({"output_type": "i16", "output_zp": 1}, "unsupported", "/output_zp"),
        ({"input_unsigned": True, "output_unsigned": True}, "unsupported", "/output_unsigned"),
        ({"input_unsigned": True, "output_type": "i32"}, "unsupported", "/input_unsigned"),
    ],
)
def test_what_rescale_does_not_take(client: httpx.Client, change: dict[str, Any], code: str, pointer: str) -> None:
    refused(client.post(PATH, json=ONE | change), 422, code, pointer)


@pytest.mark.parametrize(
    ("change", "index", "pointer", "says"),
    [
        ({"multiplier": [-1]}, 0, "/multiplier/0", "requires multiplier >= 0"),
        ({"shift": [1]}, 0, "/shift/0", "requires 2 <= shift <= 62"),
        ({"shift": [63]}, 0, "/shift/0", "requires 2 <= shift <= 62"),
        ({"shift": [30, -128], "multiplier": [1, 1], "per_channel": True}, 1, "/shift/1", "shift 1 is -128"),
        ({"shift": [2]}, 0, "/input", "requires -2^(shift-1) <= input - input zero point < 2^(shift-1)"),
        (
            {
                "input": {"type": "tensor<3xi48>", "values": [0, 5, 2**40]},
                "scale32": False,
                "multiplier": [1],
                "shift": [2],
            },
            2,
            "/input",
            "requires the scaled value to fit int32",
        ),
        (
            {
                "input": {"type": "tensor<2xi32>", "values": [0, 2**31 - 1]},
                "scale32": False,
                "multiplier": [16384],
                "shift": [14],
                "output_zp": 1,
            },
            1,
            "/input",
            "requires the addition of the output zero point not to overflow int32",
        ),
    ],
)
def test_what_is_unpredictable(
    client: httpx.Client, change: dict[str, Any], index: int, pointer: str, says: str
) -> None:
    found = refused(client.post(PATH, json=ONE | change), 422, "precondition_failed", pointer)
    assert found.get("index", 0) == index
    assert says in found["detail"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        *(
            ({name: None}, f"/{name}")
            for name in ("input", "output_type", "multiplier", "shift", "input_zp", "scale32")
        ),
        ({"rounding_mode": "ROUND"}, "/rounding_mode"),
        ({"rounding_mode": 1}, "/rounding_mode"),
        ({"scale32": 1}, "/scale32"),
        ({"per_channel": "false"}, "/per_channel"),
        ({"multiplier": 1}, "/multiplier"),
        ({"multiplier": [1.0]}, "/multiplier/0"),
        ({"multiplier": ["1"]}, "/multiplier/0"),
        ({"multiplier": [True]}, "/multiplier/0"),
        ({"multiplier": [2**31]}, "/multiplier/0"),
        ({"multiplier": [10**400]}, "/multiplier/0"),
        ({"multiplier": [[1]]}, "/multiplier/0"),
        ({"shift": [128]}, "/shift/0"),
        ({"shift": [-129]}, "/shift/0"),
        ({"input_zp": 2**31}, "/input_zp"),
        ({"output_zp": -(10**300)}, "/output_zp"),
        ({"input_zp": 0.0}, "/input_zp"),
        ({"input_zp": [0]}, "/input_zp"),
        ({"double_round": True}, "/double_round"),
        ({"input": {"type": "tensor<2xi8>"}}, "/input"),
    ],
)
def test_fields_of_the_wrong_kind(client: httpx.Client, change: dict[str, Any], pointer: str) -> None:
    refused(client.post(PATH, json=ONE | change), 422, "request_invalid", pointer)


@pytest.mark.parametrize("name", ["input", "output_type", "multiplier", "shift"])
def test_missing_fields(client: httpx.Client, name: str) -> None:
    request = {key: value for key, value in ONE.items() if key != name}
    refused(client.post(PATH, json=request), 422, "request_invalid", f"/{name}")


@pytest.mark.parametrize("name", ["multiplier", "shift"])
def test_lists_beyond_the_limit(client: httpx.Client, name: str) -> None:
    found = refused(client.post(PATH, json=ONE | {name: [1] * 65537}), 413, "limit_exceeded", f"/{name}")
    assert found["limit"] == 65536


@pytest.mark.parametrize(
    ("tensor", "code", "pointer"),
    [
        ({"type": "tensor<2xi8>", "values": [1]}, "tensor_data", "/input/values"),
        ({"type": "tensor<1xi8>", "values": [200]}, "tensor_data", "/input/values/0"),
        ({"type": "tensor<1xi8>", "values": [1.5]}, "tensor_data", "/input/values/0"),
        ({"type": "tensor<1xi48>", "data": "AAAAAAAA"}, "tensor_data", "/input/data"),
        ({"type": "tensor<1000000x1000000xi8>", "data": "AAAA"}, "tensor_data", "/input/data"),
        ({"type": "tensor<1xi8>", "data": "!"}, "base64", "/input/data"),
    ],
)
def test_data_that_are_not_what_the_type_says(
    client: httpx.Client, tensor: dict[str, Any], code: str, pointer: str
) -> None:
    request = ONE | {"input": tensor}
    if "i48" in tensor["type"]:
        request |= {"scale32": False, "multiplier": [1]}
    refused(client.post(PATH, json=request), 400, code, pointer)


def test_literal_numbers_of_any_length(client: httpx.Client) -> None:
    """No JSON reader has integers of so many digits; none may be taken for another number."""
    head = '{"input": {"type": "tensor<1xi8>", "values": [1]}, "output_type": "i8", "shift": [3], "multiplier": ['
    for number in ("1" * 5000, "-" + "9" * 100_000, "1e999", "NaN", "Infinity", "-0.0"):
        reply = client.post(PATH, content=head + number + "]}", headers={"content-type": "application/json"})
        assert reply.status_code in (400, 422)
        assert len(reply.content) < 4096
