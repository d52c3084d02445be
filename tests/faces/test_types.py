"""Every kind of type over HTTP: described where it is a type, refused by the right question where it is not."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import httpx
import pytest

from requant.mlir.types import BLOCK_FORMATS

VECTORS = Path(__file__).parents[1] / "vectors"


def load(name: str) -> list[Any]:
    found: list[Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return found


def parse(client: httpx.Client, text: str) -> httpx.Response:
    return client.post("/v1/types/parse", json={"text": text})


def test_valid_texts_are_described_or_listed_as_divergences(client: httpx.Client) -> None:
    """The seven refused here are listed, text by text, in tests/core/mlir/test_vectors.py."""
    refused = []
    for entry in load("quant_types_valid"):
        reply = parse(client, entry["text"])
        if reply.status_code == 422:
            refused.append(entry["text"])
            continue
        described = reply.json()
        assert reply.status_code == 200
        assert parse(client, described["canonical"]).json() == described
        bits = [struct.pack(">d", float(scale)).hex().upper() for scale in described["scales"]]
        assert described["scale_bits"] == [f"0x{pattern}" for pattern in bits]
        assert [int(pattern, 16) for pattern in described["zero_point_bits"]] == [
            zero_point % 2**64 for zero_point in described["zero_points"]
        ]
    assert len(refused) == 7, refused


def test_invalid_texts_are_refused_with_a_place(client: httpx.Client) -> None:
    for entry in load("quant_types_invalid"):
        reply = parse(client, entry["text"])
        assert reply.status_code == 422, entry["text"]
        problem = reply.json()
        assert problem["code"] == "type_invalid"
        assert 0 <= problem["offset"] <= len(entry["text"])
        above, below = problem["caret"].split("\n")
        assert below.strip() == "^"
        assert len(below) <= len(above) + 1


@pytest.mark.parametrize(
    ("text", "passes", "reason"),
    [
        ("!quant.uniform<i8:f32, 0.5:3>", {"mlir", "qcast", "dcast", "scast", "stablehlo"}, {}),
        ("!quant.uniform<ui8:f32, 0.5>", {"mlir", "qcast", "dcast", "stablehlo"}, {"scast": "signless"}),
        ("!quant.uniform<i8:f32, 0.5:300>", {"mlir", "qcast", "dcast", "scast"}, {"stablehlo": "300"}),
        ("!quant.uniform<i7:f32, 0.5>", {"mlir", "qcast", "dcast", "scast"}, {"stablehlo": "7 bits"}),
        ("!quant.any<i8>", {"mlir", "scast"}, {"qcast": "expressed", "stablehlo": "uniform"}),
        ("!quant.calibrated<f32<-1.0:1.0>>", {"mlir", "qcast", "dcast"}, {"scast": "storage", "stablehlo": "uniform"}),
        ("tensor<3x!quant.uniform<i8:f32:0, {1.0, 2.0}>>", {"mlir"}, {"qcast": "2 scales", "stablehlo": "2 scales"}),
        ("tensor<4x4x!quant.uniform<i4:f32:{0:2}, {{1.0}, {2.0}}>>", {"mlir", "qcast", "dcast", "scast"},
         {"stablehlo": "sub-channel"}),
        ("f32", {"mlir", "stablehlo"}, {"qcast": "not a quantized type"}),
    ],
)  # fmt: skip
def test_checks(client: httpx.Client, text: str, passes: set[str], reason: dict[str, str]) -> None:
    checks = {check["name"]: check for check in parse(client, text).json()["checks"]}
    assert list(checks) == ["mlir", "qcast", "dcast", "scast", "stablehlo"]
    assert {name for name, check in checks.items() if check["passes"]} == passes
    assert all(("reason" in check) is not check["passes"] for check in checks.values())
    for name, part in reason.items():
        assert part in checks[name]["reason"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("!quant.uniform<i8:f32, 1>", "1.0"),
        ("!quant.uniform<int8:f32, 1.0>", "i8"),
        ("!quant.uniform<i8:f32, {1.0}>", "axis"),
        ("!quant.uniform<i8:float32, 1.0>", "f32"),
        ("!quant.uniform<i8:f32, 0.5, 3>", "`0.5:3`"),
        ("!quant.uniform<i8:-127:127:f32, 0.5>", "`i8<-127:127>:f32`"),
        ("!quant.uniform<fp8_e5m2:f32, 0.5>", "write `f8E5M2`"),
        ("!quant.uniform<uint8:f32, 0.5>", "write `u8`"),
        ("torch.float32", "write `f32`"),
        ("float32[2, 3]", "write `tensor<2x3xf32>`"),
        ("tensor<(4,)xf32>", "no brackets"),
        ("bfloat16", "write `bf16`"),
        ("fp8 e4m3", "write `f8E4M3FN`"),
        ("float8_e4m3fnuz", "write `f8E4M3FNUZ`"),
        ("fp8", "`f8E4M3FN`"),
        ("INT8", "are `i8`"),
        ("uint8", "`ui8`"),
        ("\\!quant.uniform<i8:f32, 0.5>", "backslash"),
        ("%21quant.uniform%3Ci8%3Af32%2C0.5%3E", "percent"),
    ],
)
def test_hints(client: httpx.Client, text: str, hint: str) -> None:
    assert hint in parse(client, text).json()["hint"]


@pytest.mark.parametrize(
    ("output_type", "says"),
    [
        ("!quant.quantile<ui2:f32, {0.0, 1.0, 2.0, 3.0}>", "quantile"),
        ("!quant.uniform<!quant.quantile<ui2:f32, {0.0,1.0,2.0,3.0}>:f32, 1.0>", "quantile"),
        ("f32", "f32"),
    ],
)
def test_kinds_without_arithmetic_name_what_is_missing(client: httpx.Client, output_type: str, says: str) -> None:
    body = {"input": {"type": "tensor<4xf32>", "values": [1.0, 2.0, 3.0, 4.0]}, "output_type": output_type}
    reply = client.post("/v1/quantize", json=body)
    assert reply.status_code == 422
    assert reply.json()["code"] == "unsupported"
    assert says in reply.json()["detail"]


def test_a_block_scaled_type_names_its_block_format(client: httpx.Client) -> None:
    """It is parsed; the block routes convert to it, and no route of uniform types does."""
    text = "tensor<2x32x!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:{}, {{0.3, 4.0}}>>"
    for value, block_format in BLOCK_FORMATS.items():
        found = parse(client, text.format(value)).json()
        expected = {"kind": "tensor", "element_kind": "block_scaled", "storage": value, "block_format": block_format,
                    "block_sizes": [32], "scales": ["0.25", "4.0"], "scale_shape": [2], "zero_points": []}  # fmt: skip
        assert {name: found[name] for name in expected} == expected
        assert [each["name"] for each in found["checks"] if each["passes"]] == ["mlir"]
        reply = client.post("/v1/types/translate", json={"type": text.format(value)})
        assert (reply.status_code, reply.json()["code"]) == (422, "unsupported")
        assert f"block format {block_format}" in reply.json()["detail"]
        tensor = {"type": "tensor<1x32xf32>", "values": [0.5] * 32}
        blocks = client.post("/v1/blocks/quantize", json={"input": tensor, "format": found["block_format"]})
        assert blocks.status_code == 200, blocks.text
        refused = client.post("/v1/quantize", json={"input": tensor, "output_type": found["element"]})
        assert (refused.status_code, refused.json()["code"]) == (422, "unsupported")
