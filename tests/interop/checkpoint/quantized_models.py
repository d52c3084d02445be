"""Small random checkpoints that are quantized when they are published: names, shapes and config.json of DeepSeek-V4 and
gpt-oss, with few layers.

Codes and scales are random bytes, and the scales of a shard lie in the next one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

from tests.interop.checkpoint.source_model import SourceModel

DEEPSEEK_V4: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 256,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "head_dim": 128,
    "q_lora_rank": 128,
    "o_groups": 2,
    "o_lora_rank": 64,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "index_n_heads": 4,
    "index_head_dim": 32,
    "index_topk": 8,
    "sliding_window": 16,
    "max_position_embeddings": 512,
    "num_hash_layers": 1,
    "compress_ratios": [0, 0, 4, 128],
}
DEEPSEEK_QUANTIZATION = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "scale_fmt": "ue8m0",
    "weight_block_size": [128, 128],
}
_FP8 = (".wq_a.", ".wq_b.", ".wkv.", ".wo_a.", ".wo_b.", ".shared_experts.")
_SHARDS = 3


def e4m3_codes(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Return random codes, none of them NaN."""
    codes = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    codes[codes & 0x7F == 0x7F] = 0x30
    return codes.view(torch.float8_e4m3fn)


def powers(generator: torch.Generator, *shape: int, about: int, spread: int = 3) -> torch.Tensor:
    """Return random scales within `spread` of 2^about, as the bytes of E8M0."""
    return torch.randint(127 + about - spread, 128 + about + spread, shape, generator=generator, dtype=torch.uint8)


def e2m1_codes(generator: torch.Generator, rows: int, columns: int, *, largest_in_groups: bool) -> torch.Tensor:
    """Return random bytes of two codes each. `largest_in_groups`: each 16 codes have a 6 or -6 among them."""
    codes = torch.randint(0, 256, (rows, columns // 2), generator=generator, dtype=torch.uint8)
    if largest_in_groups:
        codes[:, ::8] |= 7
    return codes


def deepseek_v4(folder: Path, *, experts: str = "fp4", largest_in_groups: bool = False, seed: int = 29) -> SourceModel:
    """Return DeepSeek-V4, as it is published: `experts` of fp4; or its base, of fp8 with scales in F32.

    `folder`: where transformers writes a model to take names and plain tensors from.
    """
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = DeepseekV4ForCausalLM(DeepseekV4Config(**DEEPSEEK_V4)).to(torch.bfloat16)
    for name, buffer in model.named_buffers():
        if name.endswith("tid2eid"):
            buffer.copy_(torch.randint(0, DEEPSEEK_V4["n_routed_experts"], buffer.shape, generator=generator))
    model.save_pretrained(folder)
    plain = load_file(folder / "model.safetensors")
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in sorted(plain.items()):
        name = name.removeprefix("model.")
        module, _, parameter = name.rpartition(".")
        routed = ".experts." in name
        if parameter != "weight" or not (routed or any(each in name for each in _FP8)) or "compressor" in name:
            tensors[name] = tensor
        elif routed and experts == "fp4":
            rows, columns = tensor.shape
            codes = e2m1_codes(generator, rows, columns, largest_in_groups=largest_in_groups)
            tensors[name] = codes.view(torch.int8)
            scales = powers(generator, rows, columns // 32, about=-6)
            tensors[f"{module}.scale"] = scales.view(torch.float8_e8m0fnu)
        else:
            tensors[name] = e4m3_codes(generator, *tensor.shape)
            grid = [-(-extent // 128) for extent in tensor.shape]
            if experts == "fp4":
                tensors[f"{module}.scale"] = powers(generator, *grid, about=-11, spread=2).view(torch.float8_e8m0fnu)
            else:
                tensors[f"{module}.scale"] = torch.rand(grid, generator=generator) * 2.0**-10
    config = {
        **DEEPSEEK_V4,
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "torch_dtype": "bfloat16",
        "expert_dtype": experts,
        "quantization_config": DEEPSEEK_QUANTIZATION if experts == "fp4" else _without_powers(),
    }
    return SourceModel(config, _spread(tensors))


GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initial_context_length": 128,
    "intermediate_size": 96,
    "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 4096,
    "model_type": "gpt_oss",
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "rms_norm_eps": 1e-5,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 128,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "sliding_window": 16,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "vocab_size": 256,
}
GPT_OSS_QUANTIZATION = {
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
    "quant_method": "mxfp4",
}


def gpt_oss(
    dtype: torch.dtype = torch.bfloat16, *, quantized: bool = True, largest_in_groups: bool = False, seed: int = 30
) -> SourceModel:
    """Return gpt-oss, with experts in MXFP4 as it is published, or in `dtype` as transformers saves it."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, experts = (GPT_OSS[name] for name in ("hidden_size", "intermediate_size", "num_local_experts"))
    heads, pairs, size = (GPT_OSS[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))

    def new(*shape: int, scale: float = 0.05) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * scale).to(dtype)

    tensors = {
        "model.embed_tokens.weight": new(GPT_OSS["vocab_size"], hidden, scale=1),
        "model.norm.weight": 1 + new(hidden),
        "lm_head.weight": new(GPT_OSS["vocab_size"], hidden),
    }
    for layer in range(GPT_OSS["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        for name, rows, columns in (
            ("self_attn.q_proj", heads * size, hidden),
            ("self_attn.k_proj", pairs * size, hidden),
            ("self_attn.v_proj", pairs * size, hidden),
            ("self_attn.o_proj", hidden, heads * size),
            ("mlp.router", experts, hidden),
        ):
            tensors |= {f"{block}.{name}.weight": new(rows, columns), f"{block}.{name}.bias": new(rows)}
        tensors[f"{block}.self_attn.sinks"] = new(heads, scale=1)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{block}.{name}.weight"] = 1 + new(hidden)
        for name, rows, columns in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
            stacked = f"{block}.mlp.experts.{name}"
            tensors[f"{stacked}_bias"] = new(experts, rows)
            if quantized:
                codes = e2m1_codes(generator, experts * rows, columns, largest_in_groups=largest_in_groups)
                tensors[f"{stacked}_blocks"] = codes.reshape(experts, rows, columns // 32, 16)
                tensors[f"{stacked}_scales"] = powers(generator, experts, rows, columns // 32, about=-6)
            else:
                tensors[stacked] = new(experts, columns, rows)
    config = {**GPT_OSS, "dtype": str(dtype).removeprefix("torch.")}
    if quantized:
        config["quantization_config"] = GPT_OSS_QUANTIZATION
    return SourceModel(config, _spread(tensors))


def _without_powers() -> dict[str, Any]:
    return {name: value for name, value in DEEPSEEK_QUANTIZATION.items() if name != "scale_fmt"}


def _spread(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], ...]:
    """Return the tensors of each shard: codes by layer, scales in the next one."""
    shards: tuple[dict[str, torch.Tensor], ...] = tuple({} for _ in range(_SHARDS))
    for name, tensor in tensors.items():
        number = next((int(part) for part in name.split(".") if part.isdigit()), 0)
        shards[(number + name.endswith(("scale", "scales"))) % _SHARDS][name] = tensor
    return shards
