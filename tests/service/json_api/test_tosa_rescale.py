"""/v1/tosa/rescale: bad input, with the operand that each problem points at."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.service.replies import refused

PATH = "/v1/tosa/rescale"
ONE: dict[str, Any] = {
    "input": {"type": "tensor<2xi8>", "values": [3, -3]},
    "output_type": "i8",
    "multiplier": [1 << 30],
    "shift": [31],
}


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    assert client.post(PATH, json=ONE).json()["output"] == {"type": "tensor<2xi8>", "values": [2, -1]}


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


@pytest.mark.parametrize("name", ["multiplier", "shift"])
def test_lists_beyond_the_limit(client: httpx.Client, name: str) -> None:
    found = refused(client.post(PATH, json=ONE | {name: [1] * 65537}), 413, "limit_exceeded", f"/{name}")
    assert found["limit"] == 65536


def test_literal_numbers_of_any_length(client: httpx.Client) -> None:
    """No JSON reader has integers of so many digits; none may be taken for another number."""
    head = '{"input": {"type": "tensor<1xi8>", "values": [1]}, "output_type": "i8", "shift": [3], "multiplier": ['
    for number in ("1" * 5000, "-" + "9" * 100_000, "1e999", "NaN", "Infinity", "-0.0"):
        reply = client.post(PATH, content=head + number + "]}", headers={"content-type": "application/json"})
        assert reply.status_code in (400, 422)
        assert len(reply.content) < 4096
