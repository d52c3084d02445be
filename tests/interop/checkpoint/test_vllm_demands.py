"""vLLM cannot run here: our files are held to what its source asks of them (docs/checkpoints.md has the table)."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from requant.checkpoint.loaders import Loader, loaders_of
from tests.interop.checkpoint.conversion import quantize
from tests.interop.checkpoint.schemes import OPTIONS, PRESETS
from tests.interop.checkpoint.source_model import LLAMA, llama
from tests.interop.checkpoint.vllm_demands import NotServedError, Parameter, check, tensors_of

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

IGNORE = ("default",)
LINEAR = 7 * LLAMA["num_hidden_layers"]
# Packed weights with one scale for all, int8 weights with zero points, codes of fewer bits in bytes, and MXFP6.
IN_BYTES = {name for name in PRESETS if name.endswith(("A8", "A4", "AFP8")) and name not in ("W8A8", "MXFP6A8")}
NOT_SERVED = {"W8A16:tensor", "W8A8:asymmetric", *IN_BYTES, "MXFP6A16", "MXFP6A8"}


@pytest.mark.parametrize("scheme", [*PRESETS, *OPTIONS])
def test_compressed_tensors(scheme: str, tmp_path: Path) -> None:
    source = llama(torch.bfloat16).save(tmp_path / "source")
    target = quantize(source, tmp_path / "target", scheme, IGNORE)
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert (Loader.VLLM in loaders_of(config)) == (scheme not in NOT_SERVED)
    if scheme in NOT_SERVED:
        with pytest.raises(NotServedError):
            check(target, source)
    else:
        assert check(target, source) == LINEAR


def test_a_directory_that_does_not_comply(tmp_path: Path) -> None:
    """With quantized embeddings, which vLLM does not take, the check fails."""
    source = llama(torch.bfloat16).save(tmp_path / "source")
    target = quantize(source, tmp_path / "target", "W8A8", ("lm_head",))
    with pytest.raises(AssertionError):
        check(target, source)


def test_global_scales_of_fused_layers(tmp_path: Path) -> None:
    """q, k and v lie in different files of the source, and get one scale."""
    source = llama(torch.bfloat16).save(tmp_path / "source")
    target = quantize(source, tmp_path / "target", "NVFP4A16", IGNORE)
    tensors = {name: tensor for path in target.glob("*.safetensors") for name, tensor in load_file(path).items()}
    for layer in range(LLAMA["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for names in (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj")):
            scales = {tensors[f"{prefix}.{name}.weight_global_scale"].item() for name in names}
            assert len(scales) == 1


@pytest.mark.parametrize("scale", ["", "_UE8M0"])
def test_fine_grained_fp8(scale: str, tmp_path: Path) -> None:
    source = llama(torch.bfloat16).save(tmp_path / "source")
    target = quantize(source, tmp_path / "target", f"FINE_GRAINED_FP8{scale}", IGNORE, profile="transformers")
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "fp8"
    assert config["activation_scheme"] == "dynamic"
    assert config["weight_block_size"] == [128, 128]
    assert {"lm_head", "model.embed_tokens"} <= set(config["modules_to_not_convert"])
    stored = tensors_of(target)
    for name, tensor in tensors_of(source).items():
        if "_proj" in name:
            rows, columns = tensor.shape
            assert stored[name] == Parameter((rows, columns), "F8_E4M3")
            inverse = Parameter((rows // 128, columns // 128), "F8_E8M0" if scale else "F32")
            assert stored[f"{name}_scale_inv"] == inverse
        else:
            assert stored[name] == tensor


@pytest.mark.parametrize("algorithm", ["W4A16_NVFP4", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO"])
def test_model_optimizer(algorithm: str, tmp_path: Path) -> None:
    source = llama(torch.bfloat16).save(tmp_path / "source")
    target = quantize(source, tmp_path / "target", f"MODELOPT_{algorithm}", IGNORE, profile="modelopt")
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert Loader.VLLM in loaders_of(config)
    assert (config["quant_method"], config["quant_algo"].upper()) == ("modelopt", algorithm)
    assert {"lm_head", "model.embed_tokens"} <= set(config["ignore"])
    stored = tensors_of(target)
    for name, tensor in tensors_of(source).items():
        if "_proj" not in name:
            assert stored.pop(name) == tensor
            continue
        rows, columns = tensor.shape
        if algorithm == "W4A16_NVFP4":
            assert stored.pop(name) == Parameter((rows, columns // 2), "U8")
            assert stored.pop(f"{name}_scale") == Parameter((rows, columns // 16), "F8_E4M3")
            # Loaded into one element of those of a fused layer.
            assert stored.pop(f"{name}_scale_2") == Parameter((), "F32")
            continue
        assert columns % 128 == 0
        scales = (rows,) if "CHANNEL" in algorithm else (ceil(rows / 128), 1, columns // 128, 1)
        assert stored.pop(name) == Parameter((rows, columns), "F8_E4M3")
        assert stored.pop(f"{name}_scale") == Parameter(scales, "F32")
    assert not stored


@pytest.mark.parametrize(("scheme", "bits"), [("GPTQ_W4A16", 4), ("GPTQ_W8A16", 8)])
def test_gptq(scheme: str, bits: int, tmp_path: Path) -> None:
    source = llama(torch.float16).save(tmp_path / "source")
    target = quantize(source, tmp_path / "target", scheme, IGNORE, profile="auto-round")
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "auto-round"
    assert (config["bits"], config["group_size"], config["sym"]) == (bits, 128, True)
    assert config["packing_format"] == "auto_round:auto_gptq"
    stored = tensors_of(target)
    for name, tensor in tensors_of(source).items():
        if "_proj" in name:
            module, (rows, columns) = name.removesuffix(".weight"), tensor.shape
            assert stored[f"{module}.qweight"] == Parameter((columns * bits // 32, rows), "I32")
            assert stored[f"{module}.qzeros"] == Parameter((columns // 128, rows * bits // 32), "I32")
            assert stored[f"{module}.scales"] == Parameter((columns // 128, rows), "F16")
        else:
            assert stored[name] == tensor
