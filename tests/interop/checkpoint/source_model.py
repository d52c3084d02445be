"""Small random checkpoints of several shards, as a model's publisher would lay them out.

Fused sets lie in different shards, and the weights hold what arithmetic trips over: rows of zeros, subnormals, ties,
negative zeros, one large value among small ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def with_dtypes_in_turn(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return names of schemes, each with one dtype: a run of llm-compressor takes seconds. `test_compressed_tensors`
    compares all of them with all dtypes.
    """
    return list(zip(names, cycle(DTYPES), strict=False))


LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class SourceModel:
    """`shards`: the tensors of each file. `config`: the text of config.json as an object."""

    config: dict[str, Any]
    shards: tuple[dict[str, torch.Tensor], ...]

    def save(self, folder: Path) -> Path:
        """Write it as transformers does, into a folder that is made."""
        folder.mkdir(parents=True)
        count = len(self.shards)
        names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
        if count == 1:
            names = ["model.safetensors"]
        weight_map: dict[str, str] = {}
        for name, tensors in zip(names, self.shards, strict=True):
            save_file(tensors, folder / name, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(tensors, name)
        if count > 1:
            size = sum(tensor.nbytes for tensors in self.shards for tensor in tensors.values())
            index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
        (folder / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
        (folder / "generation_config.json").write_text('{"bos_token_id": 1, "eos_token_id": 2}\n')
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "vocabulary.txt").write_text("a\nb\n")
        return folder


def weights(generator: torch.Generator, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Return normal values whose magnitude differs from row to row, and rows of special values below them."""
    exponents = torch.randint(-8, 1, (*shape[:-1], 1), generator=generator)
    values = (torch.randn(shape, generator=generator) * 0.1 * 2.0**exponents).to(dtype)
    rows = values.reshape(-1, shape[-1])
    if len(rows) < 64:
        return values
    columns = torch.arange(shape[-1])
    tiny = torch.finfo(dtype).smallest_normal
    rows[3] = 0
    rows[5] = -0.0
    rows[7] = tiny * (columns % 9 - 4) / 8
    rows[11] = (columns % 511 - 255) / 2 * 2.0**-10
    rows[13] = (columns % 31 - 15) / 2 * 2.0**-8
    rows[17] = 2.0**-9
    rows[17, 1] = -1.0
    rows[19] = -(columns % 4) / 8
    rows[23] = rows[23].abs()
    rows[29, : shape[-1] // 2] = 0
    rows[31, ::2] = -0.0
    return values


def llama(dtype: torch.dtype, *, tied: bool = False, seed: int = 18) -> SourceModel:
    """Return a model that transformers loads: 4 shards, with q, k, v and gate, up of a layer in different ones."""
    generator = torch.Generator().manual_seed(seed)
    config = {**LLAMA, "tie_word_embeddings": tied, "dtype": str(dtype).removeprefix("torch.")}
    hidden, inner, words = (LLAMA[name] for name in ("hidden_size", "intermediate_size", "vocab_size"))
    shards: tuple[dict[str, torch.Tensor], ...] = ({}, {}, {}, {})
    shards[0]["model.embed_tokens.weight"] = weights(generator, words, hidden, dtype=dtype)
    for layer in range(LLAMA["num_hidden_layers"]):
        for number, (name, rows, columns) in enumerate(
            (
                ("self_attn.q_proj", hidden, hidden),
                ("self_attn.k_proj", hidden // 2, hidden),
                ("self_attn.v_proj", hidden // 2, hidden),
                ("self_attn.o_proj", hidden, hidden),
                ("mlp.gate_proj", inner, hidden),
                ("mlp.up_proj", inner, hidden),
                ("mlp.down_proj", hidden, inner),
            )
        ):
            tensor = weights(generator, rows, columns, dtype=dtype)
            shards[(number + layer) % 3][f"model.layers.{layer}.{name}.weight"] = tensor
        for name in ("input_layernorm", "post_attention_layernorm"):
            norm = 1 + torch.randn(hidden, generator=generator) / 16
            shards[layer][f"model.layers.{layer}.{name}.weight"] = norm.to(dtype)
    shards[3]["model.norm.weight"] = torch.ones(hidden, dtype=dtype)
    if not tied:
        shards[3]["lm_head.weight"] = weights(generator, words, hidden, dtype=dtype)
    return SourceModel(config, shards)


QWEN3_MOE: dict[str, Any] = {
    **{name: value for name, value in LLAMA.items() if not name.endswith("_bias")},
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 128,
    "norm_topk_prob": True,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}


def qwen3_moe(dtype: torch.dtype, seed: int = 20) -> SourceModel:
    """Return a model with the names, shapes and config.json of Qwen3-30B-A3B, made small.

    Of 3 shards the second has the rest of the first layer, and the third what is behind the layers.
    """
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, words = (QWEN3_MOE[name] for name in ("hidden_size", "moe_intermediate_size", "vocab_size"))
    shards: tuple[dict[str, torch.Tensor], ...] = ({}, {}, {})

    def add(shard: int, name: str, *shape: int) -> None:
        new = weights(generator, *shape, dtype=dtype) if len(shape) > 1 else torch.ones(shape, dtype=dtype)
        shards[shard][f"{name}.weight"] = new

    add(0, "model.embed_tokens", words, hidden)
    for layer in range(QWEN3_MOE["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        for part, rows in (("q_proj", hidden), ("k_proj", hidden // 2), ("v_proj", hidden // 2), ("o_proj", hidden)):
            add(layer, f"{name}.self_attn.{part}", rows, hidden)
        for part in ("self_attn.q_norm", "self_attn.k_norm"):
            add(layer, f"{name}.{part}", QWEN3_MOE["head_dim"])
        add(layer, f"{name}.mlp.gate", QWEN3_MOE["num_experts"], hidden)
        for expert in range(QWEN3_MOE["num_experts"]):
            shard = max(layer, expert // 3)
            for part, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
                add(shard, f"{name}.mlp.experts.{expert}.{part}_proj", *shape)
        add(layer, f"{name}.input_layernorm", hidden)
        add(layer, f"{name}.post_attention_layernorm", hidden)
    add(2, "model.norm", hidden)
    add(2, "lm_head", words, hidden)
    return SourceModel({**QWEN3_MOE, "dtype": str(dtype).removeprefix("torch.")}, shards)


def mixture_of_experts(dtype: torch.dtype, seed: int = 19) -> SourceModel:
    """Return tensors of all kinds that no one model has: experts stacked and single, biases, convolutions, integers.

    Shapes are whole groups of 128 in the inner dimension, and not whole blocks in the outer one.
    """
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, experts = 128, 256, 3

    def new(*shape: int) -> torch.Tensor:
        return weights(generator, *shape, dtype=dtype)

    first = {
        "model.embed_tokens.weight": new(96, hidden),
        "model.layers.0.self_attn.q_proj.weight": new(200, hidden),
        "model.layers.0.self_attn.q_proj.bias": new(200),
        "model.layers.0.self_attn.q_norm.weight": new(64),
        "model.layers.0.mlp.gate.weight": new(experts, hidden),
        "model.layers.0.mlp.experts.gate_up_proj": new(experts, 2 * inner, hidden),
        "model.layers.0.conv.weight": new(4, 3, 5),
        "model.layers.0.rotary.inv_freq": torch.arange(8, dtype=torch.float32),
        "model.layers.0.steps": torch.arange(5),
        "model.layers.0.scalar": torch.tensor(3.0, dtype=dtype),
        "model.layers.0.none": torch.empty(0, hidden, dtype=dtype),
    }
    second = {
        "model.layers.0.self_attn.k_proj.weight": new(72, hidden),
        "model.layers.0.self_attn.v_proj.weight": new(1, hidden),
        "model.layers.0.mlp.experts.down_proj": new(experts, hidden, inner),
        "model.layers.1.mlp.experts.0.w1.weight": new(inner, hidden),
        "model.layers.1.mlp.experts.0.w2.weight": new(hidden, inner),
        "model.layers.1.mlp.experts.1.w3.weight": new(inner, hidden),
        "model.layers.2.self_attn.wq_a.weight": new(40, hidden),
    }
    third = {
        "model.layers.1.mlp.experts.0.w3.weight": new(inner, hidden),
        "model.layers.1.mlp.experts.1.w1.weight": new(inner, hidden),
        "model.layers.1.mlp.experts.1.w2.weight": new(hidden, inner),
        "model.layers.2.self_attn.wkv_a_with_mqa.weight": new(24, hidden),
        "model.layers.2.mlp.gate_proj.weight": new(130, 384),
        "model.layers.2.mlp.up_proj.weight": new(130, 384),
        "model.layers.2.mlp.down_proj.weight": new(384, 640),
        "model.visual.proj.weight": new(65, hidden),
        "model.norm.weight": new(hidden),
        "lm_head.weight": new(96, hidden),
    }
    return SourceModel({"model_type": "none", "dtype": str(dtype).removeprefix("torch.")}, (first, second, third))
