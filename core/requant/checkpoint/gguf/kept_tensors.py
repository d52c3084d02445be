"""The tensors that llama.cpp never quantizes, by their names. Source: llama.cpp's llama-quant.cpp, version 0.5.0."""

from __future__ import annotations

_KEPT_NAMES = frozenset({"position_embd.weight", "token_types.weight"})
_KEPT_PARTS = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
)


def rank_without_ones(dimensions: tuple[int, ...]) -> int:
    """Return the rank as ggml counts it: without outer dimensions of 1, but at least 1."""
    return next((rank for rank in range(len(dimensions), 1, -1) if dimensions[rank - 1] != 1), 1)


def reason_to_keep(name: str, dimensions: tuple[int, ...]) -> str | None:
    """Return why llama.cpp does not quantize a tensor, None if it does. `dimensions`: innermost first."""
    if rank_without_ones(dimensions) < 2:
        return "one dimension"
    if not name.endswith("weight"):
        return "its name does not end in weight"
    if name in _KEPT_NAMES:
        return "llama.cpp keeps it"
    part = next((part for part in _KEPT_PARTS if part in name), None)
    return f"llama.cpp keeps {part}" if part else None
