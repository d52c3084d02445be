"""Models with 8-bit codes and an F32 scale for each row, as bitsandbytes and fbgemm store them, with public names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from requant.checkpoint.plan.model import Direction, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.verification import verify
from requant.errors import CheckpointError
from tests.support.hand_made_plan import Tensors, write_safetensors
from tests.support.model_directory import contents
from tests.support.model_optimizer import e4m3, e4m3_codes
from tests.support.safetensors_files import tensor_places, tensors_in

LAYER = "model.layers.{}"
ATTENTION = {"q_proj": (256, 256), "k_proj": (128, 256), "v_proj": (128, 256), "o_proj": (256, 256)}
MLP = {"gate_proj": (384, 256), "up_proj": (384, 256), "down_proj": (256, 384)}
BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True, "llm_int8_threshold": 6.0}
FBGEMM = {
    "quant_method": "fbgemm_fp8",
    "activation_scale_ub": 1200.0,
    "modules_to_not_convert": ["lm_head", "model.layers.0", "model.layers.1.self_attn"],
}


def write(folder: Path, config: Mapping[str, Any], *, order: int | None = 0) -> dict[str, np.ndarray]:
    """Write a model in two files, scales in the one without the codes, and return its weights as bf16.

    `order`: of bitsandbytes' `weight_format`, None without one.
    """
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    files: tuple[Tensors, Tensors] = {}, {}
    weights: dict[str, np.ndarray] = {}

    def plain(name: str, shape: tuple[int, ...]) -> None:
        weights[name] = random.standard_normal(shape).astype(ml_dtypes.bfloat16)
        files[0][name] = "BF16", weights[name].view(np.uint16)

    def quantized(module: str, shape: tuple[int, int]) -> None:
        scales = random.uniform(0.01, 2, shape[0]).astype(np.float32)
        if config is FBGEMM:
            codes = e4m3_codes(shape, random)
            numbers = e4m3(codes) * scales[:, None]
            files[0][f"{module}.weight"] = "F8_E4M3", codes
            files[1][f"{module}.weight_scale"] = "F32", scales[:, None]
            files[1][f"{module}.input_scale_ub"] = "F32", np.array([1200], np.float32)
        else:
            signed = random.integers(-127, 128, shape, np.int8)
            numbers = signed.astype(np.float32) * scales[:, None] * np.float32(7.874015718698502e-3)
            files[0][f"{module}.weight"] = "I8", signed
            files[1][f"{module}.SCB"] = "F32", scales
            if order is not None:
                files[1][f"{module}.weight_format"] = "U8", np.array(order, np.uint8)
        weights[f"{module}.weight"] = numbers.astype(ml_dtypes.bfloat16)

    for name in ("model.embed_tokens", "lm_head"):
        plain(f"{name}.weight", (64, 256))
    for number in (0, 1):
        layer = LAYER.format(number)
        plain(f"{layer}.input_layernorm.weight", (256,))
        for name, shape in ATTENTION.items():
            (plain if config is FBGEMM else quantized)(
                f"{layer}.self_attn.{name}{'.weight' if config is FBGEMM else ''}", shape
            )
        for name, shape in MLP.items():
            skipped = config is FBGEMM and number == 0
            (plain if skipped else quantized)(f"{layer}.mlp.{name}{'.weight' if skipped else ''}", shape)
    for at, tensors in enumerate(files):
        write_safetensors(folder / f"model-0000{at + 1}-of-00002.safetensors", tensors)
    text = {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps({**text, "quantization_config": config}))
    return weights


def convert(source: Path, target: Path, scheme: str | None) -> Path:
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    profile = "" if scheme is None else scheme_named(scheme).profiles[0]
    schemes = () if scheme is None else (SchemeFor(scheme),)
    plan = plan_conversion(LocalStore(source), Request(direction, schemes, profile, ("default",) if scheme else ()))
    run_plan(plan, LocalStore(source), LocalStore(target), threads=1)
    return target


CONFIGS = {"bitsandbytes": BITSANDBYTES, "fbgemm": FBGEMM}


@pytest.mark.parametrize("name", CONFIGS)
def test_to_bf16(name: str, tmp_path: Path) -> None:
    weights = write(tmp_path / "source", CONFIGS[name])
    target = convert(tmp_path / "source", tmp_path / "plain", None)
    found = tensors_in(target)
    assert found.keys() == weights.keys()
    for tensor, numbers in weights.items():
        expected = numbers.view(np.uint16).reshape(-1)
        np.testing.assert_array_equal(np.frombuffer(found[tensor][2], np.uint16), expected, tensor)
    assert "quantization_config" not in json.loads((target / "config.json").read_text())
    assert verify(LocalStore(target), LocalStore(tmp_path / "source")).faults == ()
    of_source = verify(LocalStore(tmp_path / "source"))
    assert (of_source.faults, of_source.warnings) == ((), ())


@pytest.mark.parametrize("scheme", ["NVFP4A16", "FP8_BLOCK"])
@pytest.mark.parametrize("name", CONFIGS)
def test_in_one_pass(name: str, scheme: str, tmp_path: Path) -> None:
    write(tmp_path / "source", CONFIGS[name], order=None)
    once = convert(tmp_path / "source", tmp_path / "once", scheme)
    twice = convert(convert(tmp_path / "source", tmp_path / "plain", None), tmp_path / "twice", scheme)
    assert contents(once) == contents(twice)
    assert verify(LocalStore(once), LocalStore(tmp_path / "source")).faults == ()


def test_codes_in_another_order_are_refused(tmp_path: Path) -> None:
    """By the conversion, and by the check of the values without one."""
    write(tmp_path / "source", BITSANDBYTES, order=2)
    with pytest.raises(CheckpointError, match="weight_format is 2, an order of codes for tensor cores"):
        convert(tmp_path / "source", tmp_path / "plain", None)
    faults = verify(LocalStore(tmp_path / "source")).faults
    assert {fault.detail for fault in faults} == {"the value is an order of codes for tensor cores"}
    assert len(faults) == 14


@pytest.mark.parametrize(
    ("suffix", "value", "what"),
    [
        ("SCB", np.float32(np.nan), "NaN"),
        ("SCB", np.float32(-1), "negative"),
        ("SCB", np.float32(np.inf), "infinite"),
        ("SCB", np.float32(0), "0, the first at"),
        ("weight", np.int8(-128), "-128"),
    ],
)
def test_values_that_bitsandbytes_does_not_write(suffix: str, value: Any, what: str, tmp_path: Path) -> None:
    write(tmp_path / "source", BITSANDBYTES)
    name = f"model.layers.1.mlp.down_proj.{suffix}"
    ((path, entry),) = (
        (path, entry)
        for path in (tmp_path / "source").glob("*.safetensors")
        for entry in tensor_places(path)
        if entry.name == name
    )
    data = bytearray(path.read_bytes())
    data[entry.begin : entry.begin + value.nbytes] = value.tobytes()
    path.write_bytes(data)
    (fault,) = verify(LocalStore(tmp_path / "source")).faults
    assert fault.tensor == name
    assert what in fault.detail


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**BITSANDBYTES, "load_in_8bit": False}, "load_in_4bit False, load_in_8bit False"),
        ({**BITSANDBYTES, "load_in_4bit": True}, "load_in_4bit True, load_in_8bit True"),
        ({**BITSANDBYTES, "load_in_8bit": "yes"}, "expected load_in_8bit true"),
        ({"quant_method": "fbgemm_fp8"}, r"weight is I8 \[256, 384\]; expected F8_E4M3 \[256, 384\] by config.json"),
    ],
)
def test_another_config_is_refused(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "source", BITSANDBYTES)
    text = json.loads((tmp_path / "source" / "config.json").read_text())
    (tmp_path / "source" / "config.json").write_text(json.dumps({**text, "quantization_config": config}))
    with pytest.raises(CheckpointError, match=message):
        convert(tmp_path / "source", tmp_path / "plain", None)


@pytest.mark.parametrize("load", [{"load_in_8bit": True}, {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}])
def test_weights_of_conv1d_are_refused(load: dict[str, Any], tmp_path: Path) -> None:
    """transformers transposes them before bitsandbytes quantizes them."""
    write(tmp_path / "source", BITSANDBYTES)
    text = {"model_type": "gpt2", "quantization_config": {"quant_method": "bitsandbytes", **load}}
    (tmp_path / "source" / "config.json").write_text(json.dumps(text))
    with pytest.raises(CheckpointError, match="of a model of type 'gpt2' transposed"):
        convert(tmp_path / "source", tmp_path / "plain", None)
