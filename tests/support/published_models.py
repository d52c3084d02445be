"""Small random checkpoints that are quantized when they are published: names, layouts and config.json of DeepSeek-V4
and gpt-oss.

Numpy alone, for conversions without the libraries that load them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.hand_made_plan import Tensors
from tests.support.model_directory import save_model

_SHARDS = 2
DEEPSEEK_V4: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "torch_dtype": "bfloat16",
    "hidden_size": 320,
    "expert_dtype": "fp4",
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
}


def bf16(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Return random bits of BF16 of magnitudes from 2^-7 to 2, and both signs."""
    bits: np.ndarray = random.integers(0x3C00, 0x4000, shape, np.uint16)
    bits |= random.integers(0, 2, shape, np.uint16) << 15
    return bits


def deepseek_v4(folder: Path) -> Path:
    """Write FP8 weights with blocks that are cut off, experts in FP4, and tensors that are not quantized."""
    random = np.random.default_rng(29)
    hidden, inner = 320, 160
    tensors: Tensors = {"embed.weight": ("BF16", bf16(random, 16, hidden))}
    for layer in range(2):
        for name, rows, columns in (
            ("attn.wq_a", 96, hidden),
            ("attn.wkv", 200, hidden),
            ("ffn.shared_experts.w1", inner, hidden),
        ):
            module = f"layers.{layer}.{name}"
            tensors[f"{module}.weight"] = ("F8_E4M3", random.integers(0, 0x7F, (rows, columns), np.uint8))
            grid = (-(-rows // 128), -(-columns // 128))
            tensors[f"{module}.scale"] = ("F8_E8M0", random.integers(110, 118, grid, np.uint8))
        for expert in range(2):
            for name, rows, columns in (("w1", inner, hidden), ("w2", hidden, inner), ("w3", inner, hidden)):
                module = f"layers.{layer}.ffn.experts.{expert}.{name}"
                tensors[f"{module}.weight"] = ("I8", random.integers(-128, 128, (rows, columns // 2), np.int8))
                tensors[f"{module}.scale"] = ("F8_E8M0", random.integers(118, 124, (rows, columns // 32), np.uint8))
        tensors[f"layers.{layer}.ffn.gate.weight"] = ("BF16", bf16(random, 2, hidden))
        tensors[f"layers.{layer}.hc_attn_scale"] = ("F32", np.ones(3, np.float32))
        tensors[f"layers.{layer}.attn_norm.weight"] = ("BF16", bf16(random, hidden))
    return save(folder, tensors, DEEPSEEK_V4)


GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "torch_dtype": "bfloat16",
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_local_experts": 3,
}
_OPENAI_NAMES = {"model.layers.": "block.", "experts.gate_up_proj": "mlp1_weight", "experts.down_proj": "mlp2_weight"}


def gpt_oss(folder: Path, *, quantized: bool = True, openai: bool = False, plain: tuple[int, ...] = ()) -> Path:
    """Write a model with experts in MXFP4, or in BF16 as transformers saves it. `openai`: with OpenAI's own names.

    `plain`: layers whose experts are in BF16 all the same.
    """
    random = np.random.default_rng(30)
    hidden, inner, experts = 96, 160, 3
    tensors: Tensors = {"model.embed_tokens.weight": ("BF16", bf16(random, 16, hidden))}
    for layer in range(2):
        block = f"model.layers.{layer}"
        for name, rows in (("self_attn.q_proj", 64), ("mlp.router", experts)):
            tensors[f"{block}.{name}.weight"] = ("BF16", bf16(random, rows, hidden))
            tensors[f"{block}.{name}.bias"] = ("BF16", bf16(random, rows))
        for name, rows, columns in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
            stacked = f"{block}.mlp.experts.{name}"
            tensors[f"{stacked}_bias"] = ("BF16", bf16(random, experts, rows))
            if quantized and layer not in plain:
                codes = random.integers(0, 256, (experts, rows, columns // 32, 16), np.uint8)
                tensors[f"{stacked}_blocks"] = ("U8", codes)
                tensors[f"{stacked}_scales"] = ("U8", random.integers(118, 124, codes.shape[:3], np.uint8))
            else:
                tensors[stacked] = ("BF16", bf16(random, experts, columns, rows))
    config = GPT_OSS | ({"quantization_config": {"quant_method": "mxfp4"}} if quantized and not openai else {})
    if openai:
        tensors = {_openai_name(name): content for name, content in tensors.items()}
        config = {"hidden_size": hidden, "num_experts": experts}
    return save(folder, tensors, config)


def _openai_name(name: str) -> str:
    for theirs, openai in _OPENAI_NAMES.items():
        name = name.replace(theirs, openai)
    return name.replace("_blocks", ".blocks").replace("_scales", ".scales").replace("weight_bias", "bias")


def save(folder: Path, tensors: Tensors, config: dict[str, Any]) -> Path:
    """Write the layers to shards in turn, and the scales of each to the next."""
    shards: list[Tensors] = [{} for _ in range(_SHARDS)]
    for name, content in tensors.items():
        layer = next((int(part) for part in name.split(".") if part.isdigit()), 0)
        shards[(layer + name.endswith(("scale", "scales"))) % _SHARDS][name] = content
    return save_model(folder, shards, config)
