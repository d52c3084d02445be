"""What vLLM 0.33.0 asks of a directory, as far as files alone can show it. docs/checkpoints.md has the places.

Written from its source, without its code: vLLM needs a GPU.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.utils.match import match_name
from safetensors import safe_open

FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
ANY_FLOAT = "any float"
"""A scale is copied into a parameter of another dtype."""


@dataclass(frozen=True)
class Parameter:
    """A tensor that a module must have: its shape, and its dtype in the file."""

    shape: tuple[int, ...]
    dtype: str


class NotServedError(Exception):
    """vLLM has no scheme for this configuration."""


def parameters(group: dict[str, Any], layout: str, rows: int, columns: int) -> dict[str, Parameter]:
    """Return what a linear layer [rows, columns] of a config group needs, by suffix. Raises NotServedError."""
    weights = QuantizationArgs.model_validate(group["weights"])
    inputs = group["input_activations"] and QuantizationArgs.model_validate(group["input_activations"])
    assert weights.actorder is None
    assert not weights.dynamic
    kind, strategy, bits = weights.type, weights.strategy, weights.num_bits
    if strategy == "tensor_group":
        return {
            "weight_packed": Parameter((rows, columns // 2), "U8"),
            "weight_scale": Parameter((rows, columns // 16), "F8_E4M3"),
            "weight_global_scale": Parameter((1,), "F32"),
        }
    if kind == "float" and weights.scale_dtype == torch.uint8:
        if bits == 6:
            raise NotServedError
        name, width, dtype = ("weight_packed", columns // 2, "U8") if bits == 4 else ("weight", columns, "F8_E4M3")
        return {name: Parameter((rows, width), dtype), "weight_scale": Parameter((rows, columns // 32), "U8")}
    if layout == "pack-quantized" and inputs is None and strategy in ("channel", "group"):
        groups = columns // weights.group_size if strategy == "group" else 1
        found = {
            "weight_packed": Parameter((rows, ceil(columns * bits / 32)), "I32"),
            "weight_scale": Parameter((rows, groups), ANY_FLOAT),
            "weight_shape": Parameter((2,), "I64"),
        }
        if not weights.symmetric:
            found["weight_zero_point"] = Parameter((ceil(rows * bits / 32), groups), "I32")
        return found
    if not weights.symmetric or layout not in ("int-quantized", "float-quantized", "naive-quantized"):
        raise NotServedError
    if kind == "int" and bits != 8:
        raise NotServedError
    scale = {
        "tensor": (1,),
        "channel": (rows, 1),
        "block": tuple(map(ceil, (rows / 128, columns / 128))),
    }[strategy]
    if kind == "int":
        assert inputs
        assert (inputs.num_bits, inputs.strategy, inputs.dynamic) == (8, "token", True)
    elif strategy == "block":
        assert weights.block_structure == [128, 128]
    return {
        "weight": Parameter((rows, columns), "I8" if kind == "int" else "F8_E4M3"),
        "weight_scale": Parameter(scale, ANY_FLOAT),
    }


def tensors_of(folder: Path) -> dict[str, Parameter]:
    """Return what the loader reads: the files of the index, or all, by safetensors' own reader."""
    index = folder / "model.safetensors.index.json"
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    found: dict[str, Parameter] = {}
    for name in files:
        with safe_open(folder / name, framework="pt") as file:
            for tensor in file.keys():  # noqa: SIM118  not a dict
                assert tensor not in found
                part = file.get_slice(tensor)
                found[tensor] = Parameter(tuple(part.get_shape()), part.get_dtype())
    if index.exists():
        weight_map = json.loads(index.read_text())["weight_map"]
        assert sorted(set(weight_map.values())) == files
        assert sorted(weight_map) == sorted(found)
    return found


def check(folder: Path, source: Path) -> int:
    """Hold a directory to all demands, and return how many modules are quantized. Raises NotServedError."""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors"
    assert not config.get("sparsity_config")
    assert not config["kv_cache_scheme"]
    (group,) = config["config_groups"].values()
    assert group["targets"] == ["Linear"]
    layout = group["format"] or config["format"]
    stored, before = tensors_of(folder), tensors_of(source)
    quantized = 0
    for name, tensor in before.items():
        module = name.removesuffix(".weight")
        ignored = any(match_name(module, entry) for entry in config["ignore"])
        is_linear = len(tensor.shape) == 2 and "embed" not in name and not name.startswith("lm_head")
        if ignored or not is_linear:
            # Embeddings and the head are no linear layers to it.
            assert stored.pop(name) == tensor
            continue
        for suffix, expected in parameters(group, layout, *tensor.shape).items():
            found = stored.pop(f"{module}.{suffix}")
            assert found.shape == expected.shape, (module, suffix)
            if expected.dtype == ANY_FLOAT:
                assert found.dtype in ("BF16", "F16", "F32")
            else:
                assert found.dtype == expected.dtype, (module, suffix)
        quantized += 1
    assert not stored, "tensors that vLLM does not know"
    _check_fused_sets(config["ignore"], before)
    return quantized


def _check_fused_sets(ignore: list[str], names: dict[str, Parameter]) -> None:
    for name in names:
        for members in FUSED:
            module = name.removesuffix(".weight")
            if module.endswith(members[0]):
                siblings = [module.removesuffix(members[0]) + member for member in members]
                assert len({any(match_name(each, entry) for entry in ignore) for each in siblings}) == 1
