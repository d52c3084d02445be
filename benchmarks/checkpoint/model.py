"""A random checkpoint of several shards: attention and MLP as in Llama, a layer of stacked experts, tied embeddings.

    python -m benchmarks.checkpoint.model /tmp/model                   889 MB in 5 shards
    python -m benchmarks.checkpoint.model /tmp/model --layers 200 --sparse   20 GB of zeros that take no room

Nothing of it is in memory but a tensor.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from requant.checkpoint.safetensors.writer import head_bytes, layout

HIDDEN, INNER, KEY_VALUE, WORDS = 2048, 5632, 512, 16256
EXPERTS, EXPERT_INNER = 8, 1024
IGNORE = ("re:.*embed_tokens", "re:.*mlp[.]router$")
"""The modules that are not quantized: embeddings and the router of the experts."""

Shape = tuple[int, ...]


def tensors(layers: int) -> Iterator[tuple[str, Shape]]:
    """Yield names and shapes, in the order of the layers. All are BF16."""
    yield "model.embed_tokens.weight", (WORDS, HIDDEN)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name, rows in (("q_proj", HIDDEN), ("k_proj", KEY_VALUE), ("v_proj", KEY_VALUE), ("o_proj", HIDDEN)):
            yield f"{prefix}self_attn.{name}.weight", (rows, HIDDEN)
        yield f"{prefix}mlp.gate_proj.weight", (INNER, HIDDEN)
        yield f"{prefix}mlp.up_proj.weight", (INNER, HIDDEN)
        yield f"{prefix}mlp.down_proj.weight", (HIDDEN, INNER)
        yield f"{prefix}input_layernorm.weight", (HIDDEN,)
        yield f"{prefix}post_attention_layernorm.weight", (HIDDEN,)
    prefix = f"model.layers.{layers}."
    yield f"{prefix}mlp.router.weight", (EXPERTS, HIDDEN)
    yield f"{prefix}mlp.experts.gate_up_proj", (EXPERTS, 2 * EXPERT_INNER, HIDDEN)
    yield f"{prefix}mlp.experts.down_proj", (EXPERTS, HIDDEN, EXPERT_INNER)
    yield "model.norm.weight", (HIDDEN,)


def write(folder: Path, *, layers: int = 8, shards: int = 5, sparse: bool = False, seed: int = 18) -> int:
    """Write the checkpoint into a new folder. Return the bytes of its tensors."""
    folder.mkdir(parents=True)
    names = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    if shards == 1:
        names = ["model.safetensors"]
    total = sum(_bytes(shape) for _, shape in tensors(layers))
    contents: dict[str, dict[str, Shape]] = {name: {} for name in names}
    done = 0
    for tensor, shape in tensors(layers):
        contents[names[done * shards // total]][tensor] = shape
        done += _bytes(shape)
    random = np.random.default_rng(seed)
    for name in names:
        header = layout([(tensor, "BF16", shape) for tensor, shape in contents[name].items()], {"format": "pt"})
        with (folder / name).open("wb") as file:
            file.write(head_bytes(header))
            for entry in () if sparse else header.tensors:
                file.write(weights(random, entry.shape).data)
            file.truncate(header.size)
    if shards > 1:
        index = {
            "metadata": {"total_size": total},
            "weight_map": {tensor: name for name in names for tensor in contents[name]},
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": layers,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return total


def _bytes(shape: Shape) -> int:
    return 2 * int(np.prod(shape))


def weights(random: np.random.Generator, shape: Shape) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """Return normal values of deviation 0.02 as BF16: the upper half of their f32."""
    values = random.standard_normal(shape, np.float32)
    values *= np.float32(0.02)
    return np.ascontiguousarray(values.view(np.uint32) >> 16).astype(np.uint16)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--shards", type=int, default=5)
    parser.add_argument("--sparse", action="store_true")
    options = parser.parse_args()
    print(f"{write(options.folder, layers=options.layers, shards=options.shards, sparse=options.sparse) / 1e6:.0f} MB")
