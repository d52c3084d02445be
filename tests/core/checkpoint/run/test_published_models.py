"""Models that are quantized when they are published: what their tensors become, in one pass and in two."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from requant.checkpoint.plan.model import Direction, Request
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.difference import diff
from requant.checkpoint.verify.verification import verify
from requant.checkpoint.weights.floats import bits_of
from tests.oracles import mxfp4, weight_layouts
from tests.support.hand_made_plan import read_safetensors
from tests.support.model_directory import contents
from tests.support.published_models import deepseek_v4

CPU = "compressed-tensors-cpu"
IGNORE = ("default",)


def convert(source: Path, target: Path, scheme: str | None) -> Path:
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    request = Request(direction, scheme, "" if scheme is None else CPU, IGNORE if scheme else ())
    plan = plan_conversion(LocalStore(source), request)
    run_plan(plan, LocalStore(source), LocalStore(target))
    return target


def tensors(folder: Path) -> dict[str, bytes]:
    return {name: data for path in folder.glob("*.safetensors") for name, data in read_safetensors(path).items()}


def same_in_one_pass(source: Path, folder: Path, scheme: str) -> Path:
    """Return what is quantized in one pass: the files that two passes write."""
    once = convert(source, folder / f"once {scheme}", scheme)
    plain = folder / "plain"
    twice = convert(plain if plain.exists() else convert(source, plain, None), folder / f"twice {scheme}", scheme)
    files, expected = contents(once), contents(twice)
    configs = [json.loads(each.pop("config.json")) for each in (files, expected)]
    assert files == expected
    assert configs[0] == configs[1]
    assert verify(LocalStore(once), LocalStore(source)).faults == ()
    return once


def test_deepseek_v4_to_bf16(tmp_path: Path) -> None:
    source = deepseek_v4(tmp_path / "source")
    found = tensors(convert(source, tmp_path / "plain", None))
    before = tensors(source)
    assert found.keys() == {name for name in before if not name.endswith(".scale")}
    for name, data in before.items():
        if f"{name.removesuffix('.weight')}.scale" not in before:
            assert name.endswith(".scale") or found[name] == data
    module = "layers.1.ffn.experts.1.w2"
    codes = np.frombuffer(before[f"{module}.weight"], np.uint8).reshape(320, 80)
    scales = np.frombuffer(before[f"{module}.scale"], np.uint8).reshape(320, 5)
    numbers = [
        [
            mxfp4.value(int(codes[row, column // 2] >> 4 * (column % 2)) & 15, int(scales[row, column // 32]), "bf16")
            for column in range(160)
        ]
        for row in range(0, 320, 37)
    ]
    restored = np.frombuffer(found[f"{module}.weight"], np.uint16).reshape(320, 160)
    np.testing.assert_array_equal(restored[::37], bits_of(np.array(numbers, np.float32), "BF16"))
    module = "layers.0.attn.wkv"
    codes = np.frombuffer(before[f"{module}.weight"], np.uint8).reshape(200, 320)
    scales = np.frombuffer(before[f"{module}.scale"], np.uint8).reshape(2, 3)
    numbers = [
        [
            weight_layouts.value_of_fp8(int(codes[row, column]), 2.0 ** (int(scales[row // 128, column // 128]) - 127))
            for column in range(0, 320, 7)
        ]
        for row in range(0, 200, 9)
    ]
    restored = np.frombuffer(found[f"{module}.weight"], np.uint16).reshape(200, 320)
    np.testing.assert_array_equal(restored[::9, ::7], bits_of(np.array(numbers, np.float32), "BF16"))


@pytest.mark.parametrize("scheme", ["NVFP4A16", "FP8_BLOCK", "MXFP4A16"])
def test_deepseek_v4_in_one_pass(scheme: str, tmp_path: Path) -> None:
    source = deepseek_v4(tmp_path / "source")
    converted = same_in_one_pass(source, tmp_path, scheme)
    config = json.loads((converted / "config.json").read_text())
    assert "expert_dtype" not in config
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert verify(LocalStore(source)).faults == ()


def test_deepseek_v4_differs_nowhere_from_its_numbers(tmp_path: Path) -> None:
    source = deepseek_v4(tmp_path / "source")
    found = diff(LocalStore(source), LocalStore(convert(source, tmp_path / "plain", None)))
    assert found.differences == ()
    assert found.compared == 25
