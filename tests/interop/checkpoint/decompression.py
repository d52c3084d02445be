"""The tensors of a directory, and the weights that compressed-tensors itself makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from compressed_tensors.utils.match import match_targets
from safetensors.torch import load_file


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of all files."""
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def scheme_of(config: QuantizationConfig, module: str) -> QuantizationScheme:
    """As `apply_quantization_config` chooses it."""
    by_target = {target: scheme for scheme in config.config_groups.values() for target in scheme.targets}
    return by_target[match_targets(module, torch.nn.Linear(1, 1), by_target)[0]]


def decompressed(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a quantized directory with the weights that the library makes of them."""
    stated = json.loads((folder / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate({**stated, "quant_method": "compressed-tensors"})
    found = tensors(folder)
    for module in [name.removesuffix(".weight_scale") for name in found if name.endswith(".weight_scale")]:
        scheme = scheme_of(config, module)
        parts = {name: found.pop(name) for name in list(found) if name.startswith(f"{module}.weight")}
        local = {name.removeprefix(f"{module}."): tensor for name, tensor in parts.items()}
        compressor = BaseCompressor.get_value_from_registry(scheme.format)
        found[f"{module}.weight"] = compressor.decompress(local, scheme)["weight"]
    return {name: tensor for name, tensor in found.items() if not name.endswith(("k_scale", "v_scale", "q_scale"))}
