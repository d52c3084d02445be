"""Models that are quantized when they are published: what their tensors become, in one pass and in two."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from requant.checkpoint.plan.model import Direction, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run import steps
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.run.verdicts import Outcome
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.difference import diff
from requant.checkpoint.verify.verification import verify
from requant.checkpoint.weights.floats import bits_of
from requant.checkpoints import repack_checkpoint
from requant.errors import CheckpointError
from tests.oracles import mxfp4, weight_layouts
from tests.support.hand_made_plan import read_safetensors
from tests.support.model_directory import contents
from tests.support.published_models import deepseek_v4, gpt_oss

CPU = "compressed-tensors-cpu"
IGNORE = ("default",)


def convert(source: Path, target: Path, scheme: str | None, ignore: tuple[str, ...] = IGNORE) -> Path:
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    schemes = () if scheme is None else (SchemeFor(scheme),)
    request = Request(direction, schemes, "" if scheme is None else CPU, ignore if scheme else ())
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


def numbers_of(codes: bytes, scales: bytes, shape: tuple[int, int, int], dtype: str) -> np.ndarray:
    """Return the bits of what is stored [experts, rows, columns / 32, 16]."""
    experts, rows, columns = shape
    halves = np.frombuffer(codes, np.uint8).reshape(experts, rows, columns // 2)
    each = np.stack([halves & 15, halves >> 4], axis=-1).reshape(shape)
    bytes_ = np.repeat(np.frombuffer(scales, np.uint8).reshape(experts, rows, columns // 32), 32, axis=2)
    table = np.array([[mxfp4.value(code, byte, dtype.lower()) for code in range(16)] for byte in range(256)])
    return bits_of(table.astype(np.float32)[bytes_, each].reshape(experts * rows, columns), dtype).reshape(shape)


STACKED = {"gate_up_proj": (3, 320, 96), "down_proj": (3, 96, 160)}


@pytest.mark.parametrize("small_pieces", [False, True])
def test_gpt_oss_to_bf16(small_pieces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers saves it: the matrices of experts are transposed, and biases stay as they are."""
    if small_pieces:
        monkeypatch.setattr(steps, "PIECE_OF_COLUMNS", 0)
        monkeypatch.setattr(LocalStore, "read_size", 5000)
    source = gpt_oss(tmp_path / "source")
    plain = convert(source, tmp_path / "plain", None)
    found, before = tensors(plain), tensors(source)
    stacked = {f"model.layers.{layer}.mlp.experts.{name}" for layer in range(2) for name in STACKED}
    assert found.keys() == {name for name in before if not name.endswith(("_blocks", "_scales"))} | stacked
    for name, data in found.items():
        if name not in stacked:
            assert data == before[name]
            continue
        experts, rows, columns = shape = STACKED[name.rpartition(".")[2]]
        numbers = numbers_of(before[f"{name}_blocks"], before[f"{name}_scales"], shape, "BF16")
        restored = np.frombuffer(data, np.uint16).reshape(experts, columns, rows)
        np.testing.assert_array_equal(restored, numbers.transpose(0, 2, 1))
    assert "quantization_config" not in json.loads((plain / "config.json").read_text())
    assert diff(LocalStore(source), LocalStore(plain)).differences == ()
    assert verify(LocalStore(source)).faults == ()


def test_openai_s_own_names(tmp_path: Path) -> None:
    """Nothing is transposed, and nothing else is made of them."""
    source = gpt_oss(tmp_path / "source", openai=True)
    before, found = tensors(source), tensors(convert(source, tmp_path / "plain", None))
    for layer in range(2):
        for name, theirs in (("gate_up_proj", "mlp1_weight"), ("down_proj", "mlp2_weight")):
            tensor, shape = f"block.{layer}.mlp.{theirs}", STACKED[name]
            numbers = numbers_of(before[f"{tensor}.blocks"], before[f"{tensor}.scales"], shape, "BF16")
            np.testing.assert_array_equal(np.frombuffer(found[tensor], np.uint16).reshape(shape), numbers)
            bias = tensor.replace("weight", "bias")
            assert found[bias] == before[bias]
    assert diff(LocalStore(source), LocalStore(tmp_path / "plain")).differences == ()
    with pytest.raises(CheckpointError, match="use those that transformers loads"):
        convert(source, tmp_path / "quantized", "NVFP4A16")


@pytest.mark.parametrize("scheme", ["NVFP4A16", "FP8_BLOCK", "MXFP4A16", "W8A8"])
def test_gpt_oss_in_one_pass(scheme: str, tmp_path: Path) -> None:
    source = gpt_oss(tmp_path / "source")
    converted = same_in_one_pass(source, tmp_path, scheme)
    assert verify(LocalStore(converted)).faults == ()


def test_gpt_oss_of_bf16_becomes_linear_modules(tmp_path: Path) -> None:
    """Of those of which nothing is quantized stays what was."""
    source = gpt_oss(tmp_path / "source", quantized=False)
    before = tensors(source)
    plain = convert(convert(source, tmp_path / "w8", "W8A16:channel"), tmp_path / "plain", None)
    found = tensors(plain)
    for name, (experts, rows, columns) in STACKED.items():
        stacked = np.frombuffer(before[f"model.layers.1.mlp.experts.{name}"], np.uint16)
        biases = np.frombuffer(before[f"model.layers.1.mlp.experts.{name}_bias"], np.uint16).reshape(experts, rows)
        parts = {"gate_proj": 0, "up_proj": 1} if name == "gate_up_proj" else {"down_proj": 0}
        for expert in range(experts):
            for part, first in parts.items():
                module = f"model.layers.1.mlp.experts.{expert}.{part}"
                bias = np.frombuffer(found[f"{module}.bias"], np.uint16)
                np.testing.assert_array_equal(bias, biases[expert, first :: len(parts)])
                expected = stacked.reshape(experts, columns, rows)[expert, :, first :: len(parts)].T
                restored = np.frombuffer(found[f"{module}.weight"], np.uint16).reshape(expected.shape)
                numbers, others = (np.asarray(each, np.uint32) << 16 for each in (restored, expected))
                difference = np.abs(numbers.view(np.float32) - others.view(np.float32))
                assert difference.max() <= 2 / 127
    assert len([name for name in found if ".experts." in name]) == 2 * experts * 3 * 2
    together = convert(source, tmp_path / "together", "W8A16:channel", ("default", "re:.*experts.*"))
    kept = tensors(together)
    assert {name: data for name, data in kept.items() if ".experts." in name} == {
        name: data for name, data in before.items() if ".experts." in name
    }


def test_gate_and_up_of_an_expert_share_a_scale(tmp_path: Path) -> None:
    """As llm-compressor gives it to them in memory."""
    for quantized in (True, False):
        source = gpt_oss(tmp_path / f"source {quantized}", quantized=quantized)
        found = tensors(convert(source, tmp_path / f"nvfp4 {quantized}", "NVFP4A16"))
        for layer in range(2):
            for expert in range(3):
                module = f"model.layers.{layer}.mlp.experts.{expert}"
                scales = [found[f"{module}.{name}_proj.weight_global_scale"] for name in ("gate", "up")]
                assert scales[0] == scales[1]


def test_numbers_are_those_of_one_pass(tmp_path: Path) -> None:
    """In BF16: each code is one, and so is its product with a power of two. What is changed has a place and numbers."""
    for source in (
        deepseek_v4(tmp_path / "deepseek"),
        gpt_oss(tmp_path / "gpt_oss"),
        gpt_oss(tmp_path / "openai", openai=True),
    ):
        plain = convert(source, tmp_path / f"plain {source.name}", None)
        found = diff(LocalStore(source), LocalStore(plain), numbers=True)
        assert found.differences == ()
        assert found.compared == len(tensors(plain))
    source, tensor = tmp_path / "gpt_oss", "model.layers.1.mlp.experts.down_proj"
    row = 2 * 96 + 7
    before, scale = tensors(source)[f"{tensor}_blocks"][row * 80 + 3], tensors(source)[f"{tensor}_scales"][row * 5]
    with_byte(source, f"{tensor}_blocks", row * 80 + 3, before ^ 0x11)
    (difference,) = diff(LocalStore(source), LocalStore(tmp_path / "plain gpt_oss"), numbers=True).differences
    # The two codes lie in columns 6 and 7 of row 7 of the last expert, which are rows of what is plain.
    first = (2 * 160 + 6) * 96 + 7
    assert (difference.tensor, difference.elements) == (tensor, 3 * 160 * 96)
    assert (difference.differing, difference.first) == (2, first)
    assert difference.numbers == tuple(mxfp4.number(code & 15, scale) for code in (before ^ 0x11, before))


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["MXFP4A16", "NVFP4A16", "MXFP8A16", "FP8_BLOCK"])
def test_codes_of_gpt_oss_are_moved(scheme: str, tmp_path: Path) -> None:
    """Without rounding, to modules of one expert each; a layer of plain experts stays as it was."""
    source = gpt_oss(tmp_path / "source", plain=(0,))
    before = tensors(source)
    verdicts = repack_checkpoint(source, tmp_path / "moved", scheme).verdicts
    outcomes = {name: each.outcome for name, each in verdicts.items()}
    exact = {name for name, outcome in outcomes.items() if outcome is Outcome.EXACT}
    modules = [f"{expert}.{part}_proj" for expert in range(3) for part in ("gate", "up", "down")]
    assert exact == {f"model.layers.1.mlp.experts.{module}.weight" for module in modules}
    assert outcomes["model.layers.0.mlp.experts.gate_up_proj"] is Outcome.COPIED
    assert verify(LocalStore(tmp_path / "moved"), LocalStore(source)).faults == ()
    found = tensors(convert(tmp_path / "moved", tmp_path / "plain", None))
    stacked = "model.layers.1.mlp.experts.gate_up_proj"
    numbers = numbers_of(before[f"{stacked}_blocks"], before[f"{stacked}_scales"], STACKED["gate_up_proj"], "BF16")
    for expert in range(3):
        for part, first in (("gate", 0), ("up", 1)):
            weight = found[f"model.layers.1.mlp.experts.{expert}.{part}_proj.weight"]
            np.testing.assert_array_equal(np.frombuffer(weight, np.uint16).reshape(160, 96), numbers[expert, first::2])


@pytest.mark.parametrize("scheme", ["MXFP8A16", "FP8_BLOCK", None])
def test_codes_of_deepseek_are_moved(scheme: str | None, tmp_path: Path) -> None:
    source = deepseek_v4(tmp_path / "source")
    verdicts = repack_checkpoint(source, tmp_path / "moved", scheme, dtype=None if scheme else "BF16").verdicts
    expected = Outcome.WIDENED if scheme is None else Outcome.EXACT
    assert Counter(each.outcome for each in verdicts.values()) == {expected: 18, Outcome.COPIED: 7}
    assert diff(LocalStore(source), LocalStore(tmp_path / "moved"), numbers=True).differences == ()
    assert verify(LocalStore(tmp_path / "moved"), LocalStore(source)).faults == ()


def test_codes_of_gpt_oss_become_floats(tmp_path: Path) -> None:
    """Its largest are no f16 with a scale of 2^14."""
    source = gpt_oss(tmp_path / "source")
    verdicts = repack_checkpoint(source, tmp_path / "moved", None, dtype="F16").verdicts
    assert verdicts["model.layers.1.mlp.experts.down_proj"].outcome is Outcome.WIDENED
    with_byte(source, "model.layers.1.mlp.experts.down_proj_scales", 7, 127 + 14)
    with pytest.raises(CheckpointError, match=r"layers.1.mlp.experts.down_proj of .* allow rounding"):
        repack_checkpoint(source, tmp_path / "refused", None, dtype="F16")


def with_byte(source: Path, tensor: str, at: int, byte: int) -> None:
    """Change a byte of a tensor."""
    path = next(each for each in source.glob("*.safetensors") if tensor in read_safetensors(each))
    data = bytearray(path.read_bytes())
    data[data.index(read_safetensors(path)[tensor]) + at] = byte
    path.write_bytes(data)


def test_a_scale_of_255(tmp_path: Path) -> None:
    """It is a fault of the checkpoint; dequantized as loaders do, and refused where a weight is quantized again."""
    tensor = "model.layers.0.mlp.experts.down_proj_scales"
    source = gpt_oss(tmp_path / "gpt_oss")
    with_byte(source, tensor, (2 * 96 + 1) * 5 + 2, 255)
    (fault,) = verify(LocalStore(source)).faults
    assert "255, which is 2^128 to the loaders of gpt-oss and NaN to all others" in fault.detail
    assert (fault.tensor, fault.index) == (tensor, (2, 1, 2))
    restored = tensors(convert(source, tmp_path / "plain", None))["model.layers.0.mlp.experts.down_proj"]
    group = np.frombuffer(restored, np.uint16).reshape(3, 160, 96)[2, 64:96, 1]
    assert {int(bits) & 0x7FFF for bits in group} <= {0, 0x7F00, 0x7F80}
    with pytest.raises(CheckpointError, match=r"experts.2.down_proj.weight .* holds a NaN or an infinity .*row 1, "):
        convert(source, tmp_path / "nvfp4", "NVFP4A16")
    source = deepseek_v4(tmp_path / "deepseek")
    with_byte(source, "layers.0.ffn.experts.1.w3.scale", 3 * 10 + 4, 255)
    (fault,) = verify(LocalStore(source)).faults
    assert (fault.tensor, fault.index) == ("layers.0.ffn.experts.1.w3.scale", (3, 4))
    with pytest.raises(CheckpointError, match=r"experts.1.w3.weight .* holds a NaN .*row 3, column 128"):
        convert(source, tmp_path / "fp8", "FP8_BLOCK")
