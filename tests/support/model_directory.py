"""A small model as Hugging Face's libraries save it: shards of BF16 weights, an index, config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.hand_made_plan import Tensors, write_safetensors

_ONE = 0x3F80
LLAMA = {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
"""What config.json says of these models."""


def make_model(directory: Path, *, shards: int = 2, size: int = 128, not_finite: bool = False) -> Path:
    """Write a model with a layer in each shard, and return its directory. `not_finite`: the last weight has a NaN."""
    random = np.random.default_rng(0)
    made: list[Tensors] = []
    for shard in range(shards):
        layer = f"model.layers.{shard}"
        shapes = {f"{layer}.self_attn.q_proj.weight": (size, size), f"{layer}.mlp.up_proj.weight": (2 * size, size)}
        tensors: Tensors = {}
        for name, shape in shapes.items():
            # Of magnitudes from 2^-7 to 2, and both signs.
            bits = random.integers(_ONE - 7 * 128, _ONE + 128, shape, np.uint16)
            tensors[name] = ("BF16", bits | random.integers(0, 2, shape, np.uint16) << 15)
        tensors[f"{layer}.input_layernorm.weight"] = ("BF16", np.full(size, _ONE, np.uint16))
        if not_finite and shard == shards - 1:
            tensors[f"{layer}.mlp.up_proj.weight"][1][1, 2] = 0x7FC0
        made.append(tensors)
    save_model(directory, made, LLAMA | {"model_type": "llama", "hidden_size": size})
    (directory / "tokenizer.json").write_text("{}")
    return directory


def modules_of_llama(hidden: int, inner: int, keys: int) -> dict[str, tuple[int, int]]:
    """Return the linear modules of two layers, with the shapes of their weights."""
    matrices = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    return {f"model.layers.{layer}.{name}": shape for layer in range(2) for name, shape in matrices.items()}


def save_model(
    folder: Path, shards: Sequence[Tensors], config: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> Path:
    """Write a model in several files, with their index and config.json, and return its directory."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(folder / file, tensors, metadata)
        weight_map |= dict.fromkeys(tensors, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def contents(directory: Path) -> dict[str, bytes]:
    """Return the bytes of each file of a converted model but the manifest."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in files if path.name != "requant-manifest.json"}


def quantization_config(directory: Path) -> dict[str, Any]:
    """Return that member of config.json."""
    return dict(json.loads((directory / "config.json").read_text())["quantization_config"])
