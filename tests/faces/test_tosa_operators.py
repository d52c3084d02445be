"""TOSA's operators in the process, over JSON and as models: the same bits, RESCALE's those of its own route."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.description import TensorValue
from requant.mlir import print_type
from requant.operators.tosa.block_scaled import MX_FORMATS
from tests.oracles.tosa import Rescale
from tests.support.oip_wire import Input, body_of, read
from tests.support.operator_calls import run, tensor
from tests.support.rescale_case import body, stored

Array = NDArray[Any]
X = (np.random.default_rng(3).standard_normal((2, 3, 64)) * 40).astype(np.float32)


def over_json(
    client: httpx.Client, name: str, inputs: dict[str, TensorValue], attributes: dict[str, Any]
) -> dict[str, bytes]:
    tensors = {
        key: {"type": print_type(each.type), "data": base64.b64encode(each.data.tobytes()).decode()}
        for key, each in inputs.items()
    }
    reply = client.post(f"/v1/tosa/{name}", json={"inputs": tensors, "attributes": attributes})
    assert reply.status_code == 200, reply.text
    return {key: base64.b64decode(each["data"]) for key, each in reply.json()["outputs"].items()}


def as_model(
    client: httpx.Client,
    name: str,
    inputs: dict[str, TensorValue],
    attributes: dict[str, Any],
    typed: tuple[str, ...],
) -> dict[str, bytes]:
    sent = [
        Input(key, each.data.reshape(each.shape), "BF16" if print_type(each.type.element) == "bf16" else "")
        for key, each in inputs.items()
    ]
    types = {f"{key}_type": print_type(inputs[key].type.element) for key in typed}
    content, headers = body_of(sent, parameters={"binary_data_output": True, **attributes, **types})
    reply = read(client.post(f"/v2/models/tosa.{name}/infer", content=content, headers=headers))
    return {key: each.tobytes() for key, each in reply.outputs.items()}


def in_process(name: str, inputs: dict[str, TensorValue], attributes: dict[str, Any]) -> dict[str, bytes]:
    return {key: each.tobytes() for key, each in run(f"tosa.{name}", inputs, attributes).items()}


@pytest.mark.parametrize("element", MX_FORMATS)
def test_casts(client: httpx.Client, element: str) -> None:
    inputs = {"input_data": tensor("f32", X)}
    attributes = {"output_data_type": element, "block_size": "BLOCK_SIZE_32"}
    expected = in_process("CAST_TO_BLOCK_SCALED", inputs, attributes)
    assert over_json(client, "CAST_TO_BLOCK_SCALED", inputs, attributes) == expected
    assert as_model(client, "CAST_TO_BLOCK_SCALED", inputs, attributes, ()) == expected
    codes = np.frombuffer(expected["output_data"], np.int8 if element == "i8" else np.uint8).reshape(X.shape)
    scales = np.frombuffer(expected["output_scale"], np.uint8).reshape(2, 3, 2)
    back = {"input_data": tensor(element, codes), "input_scale": tensor("f8E8M0FNU", scales)}
    for real in ("f32", "bf16"):
        attributes = {"output_data_type": real}
        expected = in_process("CAST_FROM_BLOCK_SCALED", back, attributes)
        assert over_json(client, "CAST_FROM_BLOCK_SCALED", back, attributes) == expected
        assert as_model(client, "CAST_FROM_BLOCK_SCALED", back, attributes, tuple(back)) == expected


@pytest.mark.parametrize(
    "case",
    [
        Rescale(in_t="i32", out_t="i8", shape=(2, 2), multiplier=(1 << 30, 1431655765), shift=(38, 39), output_zp=-1,
                per_channel=True),
        Rescale(in_t="i48", out_t="i16", shape=(2, 2), multiplier=(1 << 14,), shift=(30,), scale32=False,
                rounding_mode="INEXACT_ROUND"),
        Rescale(in_t="i16", out_t="i16", shape=(2, 2), multiplier=(1 << 30,), shift=(31,), output_zp=32768,
                output_unsigned=True, rounding_mode="DOUBLE_ROUND"),
    ],
    ids=str,
)  # fmt: skip
def test_rescale_is_its_own_route(client: httpx.Client, case: Rescale) -> None:
    source = stored([1000, -2000, 3000, 30000], case.in_t)
    reply = client.post("/v1/tosa/rescale", json=body(case, source, "data"))
    assert reply.status_code == 200, reply.text
    expected = {"output": base64.b64decode(reply.json()["output"]["data"])}
    inputs = {
        "input": tensor(case.in_t, source.reshape(case.shape)),
        "multiplier": tensor("i32" if case.scale32 else "i16", case.multiplier),
        "shift": tensor("i8", case.shift),
        "input_zp": tensor(case.in_t, stored([case.input_zp], case.in_t)),
        "output_zp": tensor(case.out_t, stored([case.output_zp], case.out_t)),
    }
    names = ("scale32", "rounding_mode", "per_channel", "input_unsigned", "output_unsigned")
    attributes = {name: getattr(case, name) for name in names}
    assert in_process("RESCALE", inputs, attributes) == expected
    assert over_json(client, "RESCALE", inputs, attributes) == expected
    assert as_model(client, "RESCALE", inputs, attributes, ("input", "input_zp")) == expected
