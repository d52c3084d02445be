"""A small model as Hugging Face's libraries save it: shards of BF16 weights, an index, config.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support.hand_made_plan import Tensors, write_safetensors

_ONE = 0x3F80


def make_model(directory: Path, *, shards: int = 2, size: int = 128, not_finite: bool = False) -> Path:
    """Write a model with a layer in each shard, and return its directory. `not_finite`: the last weight has a NaN."""
    directory.mkdir(parents=True)
    random = np.random.default_rng(0)
    weight_map: dict[str, str] = {}
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
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(directory / file, tensors)
        weight_map |= dict.fromkeys(tensors, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": size,
    }
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text("{}")
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    """Return the bytes of each file of a converted model but the manifest."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in files if path.name != "requant-manifest.json"}
