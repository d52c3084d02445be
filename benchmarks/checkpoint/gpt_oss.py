"""A random gpt-oss with experts in MXFP4, as it is published: real shapes, of two layers and eight experts, few words.

    python -m benchmarks.checkpoint.gpt_oss /tmp/gpt-oss      390 MB in 2 files

A file for each layer. Nothing of it is in memory but a tensor.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.checkpoint.model import weights
from requant.checkpoint.safetensors.writer import head_bytes, layout

HIDDEN, INNER, WORDS, LAYERS, EXPERTS = 2880, 2880, 8192, 2, 8
HEADS, KEY_VALUE_HEADS, HEAD = 64, 8, 64

_CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": HEAD,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_attention_heads": HEADS,
    "num_experts_per_tok": 4,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KEY_VALUE_HEADS,
    "num_local_experts": EXPERTS,
    "tie_word_embeddings": False,
    "vocab_size": WORDS,
    "dtype": "bfloat16",
    "quantization_config": {
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
        "quant_method": "mxfp4",
    },
}

Tensor = tuple[str, str, tuple[int, ...]]


def _tensors(layer: int) -> Iterator[Tensor]:
    """Yield names, dtypes and shapes of a layer's file. The first has the embeddings, the last what follows."""
    if layer == 0:
        yield "model.embed_tokens.weight", "BF16", (WORDS, HIDDEN)
    block = f"model.layers.{layer}."
    for name, rows, columns in (
        ("self_attn.q_proj", HEADS * HEAD, HIDDEN),
        ("self_attn.k_proj", KEY_VALUE_HEADS * HEAD, HIDDEN),
        ("self_attn.v_proj", KEY_VALUE_HEADS * HEAD, HIDDEN),
        ("self_attn.o_proj", HIDDEN, HEADS * HEAD),
        ("mlp.router", EXPERTS, HIDDEN),
    ):
        yield f"{block}{name}.weight", "BF16", (rows, columns)
        yield f"{block}{name}.bias", "BF16", (rows,)
    yield f"{block}self_attn.sinks", "BF16", (HEADS,)
    yield f"{block}input_layernorm.weight", "BF16", (HIDDEN,)
    yield f"{block}post_attention_layernorm.weight", "BF16", (HIDDEN,)
    for name, rows, columns in (("gate_up_proj", 2 * INNER, HIDDEN), ("down_proj", HIDDEN, INNER)):
        yield f"{block}mlp.experts.{name}_bias", "BF16", (EXPERTS, rows)
        yield f"{block}mlp.experts.{name}_blocks", "U8", (EXPERTS, rows, columns // 32, 16)
        yield f"{block}mlp.experts.{name}_scales", "U8", (EXPERTS, rows, columns // 32)
    if layer == LAYERS - 1:
        yield "model.norm.weight", "BF16", (HIDDEN,)
        yield "lm_head.weight", "BF16", (WORDS, HIDDEN)


def write(folder: Path, *, seed: int = 30) -> None:
    """Write the checkpoint into a new folder."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    files = {}
    total = 0
    for layer in range(LAYERS):
        header = layout(_tensors(layer), {"format": "pt"})
        name = f"model-{layer + 1:05}-of-{LAYERS:05}.safetensors"
        with (folder / name).open("wb") as file:
            file.write(head_bytes(header))
            for entry in header.tensors:
                if entry.dtype == "BF16":
                    file.write(weights(random, entry.shape).data)
                elif entry.name.endswith("_blocks"):
                    file.write(random.bytes(entry.end - entry.begin))
                else:
                    # Of weights of deviation 0.02: the largest of a group, 0.02 to 0.08, is 4 or 6 times the scale.
                    file.write(random.integers(119, 122, entry.shape, np.uint8).data)
                files[entry.name] = name
                total += entry.end - entry.begin
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    (folder / "config.json").write_text(json.dumps(_CONFIG, indent=2) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
