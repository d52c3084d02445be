"""What compressed-tensors and llm-compressor write and we only read: weights equal those that the library restores."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.interop.checkpoint import llm_compressor
from tests.interop.checkpoint.conversion import CPU, dequantize
from tests.interop.checkpoint.decompression import decompressed, scheme_of, tensors
from tests.interop.checkpoint.source_model import DTYPES, LLAMA, SourceModel, llama, mixture_of_experts
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

TOKENS = torch.arange(64).reshape(2, 32) * 7 % LLAMA["vocab_size"]
IGNORE = ("re:.*conv$", "model.layers.0.self_attn.v_proj", r"re:.*mlp\.gate$", "re:.*embed_tokens$", "re:.*visual.*")


def assert_restored(folder: Path, target: Path, schemes: Iterable[str]) -> None:
    """Compare all tensors. `schemes`: of the weights."""
    expected = decompressed(folder)
    restored = tensors(dequantize(folder, target))
    assert sorted(restored) == sorted(expected)
    elements = 0
    for name, tensor in expected.items():
        converted = tensor.to(restored[name].dtype) if tensor.is_floating_point() else tensor
        assert torch.equal(restored[name].reshape(-1).view(torch.uint8), converted.reshape(-1).view(torch.uint8)), name
        elements += tensor.numel()
    record(systems.COMPRESSED_TENSORS, [checkpoint(scheme, "dequantize", CPU) for scheme in schemes], elements)


@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [*product(("W4A8", "MXFP6A16"), DTYPES), *product(("W2A4", "W5A8", "W4AFP8", "MXFP6A8", "MXFP4XFP8"), ["bf16"])],
)
def test_presets(scheme: str, dtype: str, tmp_path: Path) -> None:
    source = mixture_of_experts(DTYPES[dtype]).save(tmp_path / "source")
    folder = llm_compressor.quantize(source, tmp_path / "quantized", scheme, IGNORE)
    assert_restored(folder, tmp_path / "restored", [scheme])


GROUPS: dict[str, tuple[list[str], str]] = {
    "0": (["Linear"], "FP8_DYNAMIC"),
    "1": ([r"re:.*experts\.0\.w[13]$", "re:.*gate_proj$"], "W4A16"),
    "2": (["re:.*experts.*"], "NVFP4A16"),
    "3": (["model.layers.1.mlp.experts.0.w3", "re:.*down_proj$"], "MXFP4A16"),
    "4": (["re:.*wq_a$"], "MXFP6A16"),
    "5": (["model.layers.2.self_attn.wkv_a_with_mqa"], "W8A8"),
}


CACHE = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}


def mixed(
    tmp_path: Path, source: SourceModel, groups: dict[str, tuple[list[str], str]], cache: dict[str, Any] | None
) -> Path:
    """A checkpoint whose modules are each of the group that the library chooses; `cache`: how it is quantized."""
    folder = source.save(tmp_path / "mixed")
    preset: dict[str, dict[str, Any]] = {}
    written: dict[str, dict[str, torch.Tensor]] = {}
    for name in dict.fromkeys(name for _, name in groups.values()):
        one = llm_compressor.quantize(source.save(tmp_path / f"source-{name}"), tmp_path / name, name, IGNORE)
        (group,) = json.loads((one / "config.json").read_text())["quantization_config"]["config_groups"].values()
        preset[name], written[name] = group, tensors(one)
    quantization: dict[str, Any] = {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "quantization_status": "compressed",
        "config_groups": {key: {**preset[name], "targets": targets} for key, (targets, name) in groups.items()},
        "kv_cache_scheme": cache,
        "ignore": list(IGNORE),
    }
    config = QuantizationConfig.model_validate(quantization)
    scheme_names = {json.dumps(targets): name for targets, name in groups.values()}
    places: dict[str, str] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found: dict[str, torch.Tensor] = {}
        for tensor, value in load_file(path).items():
            module = tensor.rpartition(".")[0]
            scheme = scheme_names[json.dumps(scheme_of(config, module).targets)]
            parts = {name: each for name, each in written[scheme].items() if name.startswith(f"{module}.weight")}
            found |= parts if tensor.endswith(".weight") and len(parts) > 1 else {tensor: value}
        if cache and path.name.startswith("model-00001"):
            for suffix in ("k_scale", "v_scale"):
                found[f"model.layers.0.self_attn.{suffix}"] = torch.tensor([0.5])
        save_file(found, path, metadata={"format": "pt"})
        places |= dict.fromkeys(found, path.name)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({**source.config, "quantization_config": quantization}))
    return folder


@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_with_formats_of_their_own(dtype: str, tmp_path: Path) -> None:
    """Several targets mean the same module."""
    source = mixture_of_experts(DTYPES[dtype])
    plain = {name: value for shard in source.shards for name, value in shard.items() if "experts.g" not in name}
    plain = {name: value for name, value in plain.items() if not name.endswith("experts.down_proj")}
    shards = tuple({name: value for name, value in shard.items() if name in plain} for shard in source.shards)
    folder = mixed(tmp_path, SourceModel(source.config, shards), GROUPS, CACHE)
    assert_restored(folder, tmp_path / "restored", [scheme for _, scheme in GROUPS.values()])


def test_transformers_loads_the_same_weights(tmp_path: Path) -> None:
    groups = {
        "0": (["Linear"], "W4A16"),
        "1": (["re:.*q_proj$", "model.layers.0.mlp.down_proj"], "W8A16"),
        "2": (["re:.*self_attn.*", "lm_head"], "W3A16"),
    }
    folder = mixed(tmp_path, llama(torch.bfloat16), groups, None)
    logits = []
    for each in (folder, dequantize(folder, tmp_path / "restored")):
        model = AutoModelForCausalLM.from_pretrained(each, dtype="auto").eval()
        with torch.no_grad():
            logits.append(model(TOKENS).logits)
    assert logits[0].isfinite().all()
    assert torch.equal(*logits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_groups_in_the_order_of_activations(bits: int, symmetric: bool, dtype: str, tmp_path: Path) -> None:
    """0.20 reads no `weight_g_idx`: it decompresses the sorted columns, as 0.12 did, which are then put back."""
    generator = torch.Generator().manual_seed(bits)
    arguments = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": 32, "symmetric": symmetric}
    scheme = QuantizationScheme.model_validate(
        {"targets": ["Linear"], "weights": arguments, "format": "pack-quantized"}
    )
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    low, rows, columns = -(2 ** (bits - 1)), 64, 128
    codes = torch.randint(low, -low, (rows, columns), generator=generator)
    scales = (torch.rand(rows, 4, generator=generator) + 0.01).to(DTYPES[dtype])
    zeros = torch.randint(low, -low, (rows, 4), generator=generator, dtype=torch.int8)
    groups = torch.arange(columns, dtype=torch.int32) // 32
    g_idx = groups[torch.randperm(columns, generator=generator)]
    order = torch.argsort(g_idx)

    def compressed(columns_of_codes: torch.Tensor) -> dict[str, torch.Tensor]:
        from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

        parts = {"weight_packed": pack_to_int32(columns_of_codes.to(torch.int8), bits), "weight_scale": scales}
        if not symmetric:
            parts["weight_zero_point"] = pack_to_int32(zeros, bits, packed_dim=0)
        return {**parts, "weight_shape": torch.tensor(columns_of_codes.shape)}

    by_group = compressor.decompress(compressed(codes[:, order]), scheme)["weight"]
    expected = torch.empty_like(by_group)
    expected[:, order] = by_group
    folder = tmp_path / "ordered"
    folder.mkdir()
    parts = {f"a.{name}": each.contiguous() for name, each in compressed(codes).items()}
    save_file({**parts, "a.weight_g_idx": g_idx}, folder / "model.safetensors")
    group = {"targets": ["Linear"], "weights": {**arguments, "actorder": "group"}, "format": "pack-quantized"}
    quantization = {"quant_method": "compressed-tensors", "config_groups": {"0": group}}
    names = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
    (folder / "config.json").write_text(json.dumps({"dtype": names[dtype], "quantization_config": quantization}))
    restored = tensors(dequantize(folder, tmp_path / "restored"))["a.weight"]
    assert torch.equal(restored.view(torch.uint8), expected.contiguous().view(torch.uint8))
    record(systems.COMPRESSED_TENSORS, [checkpoint(f"W{bits}A16", "dequantize", CPU)], expected.numel())
