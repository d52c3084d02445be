"""Splits experts that a checkpoint stores as one tensor of rank 3 into the matrices of linear modules.

    X.gate_up_proj [experts, 2 * intermediate, hidden] -> X.<e>.gate_proj.weight, X.<e>.up_proj.weight
    X.down_proj    [experts, hidden, intermediate]     -> X.<e>.down_proj.weight

Source: llm-compressor 0.14, `split_fused_moe_experts` (`entrypoints/model_free/converter.py`), which also takes
`X.gate_up_proj.weight`, and splits whether or not the experts are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from requant.checkpoint.plan.model import SourceRange
from requant.checkpoint.safetensors.header import TensorEntry
from requant.errors import CheckpointError

MAX_EXPERTS = 8192
"""Of one tensor. Models have hundreds."""

_PARTS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


def is_stacked(entry: TensorEntry) -> bool:
    """Return whether a tensor holds the matrices of several experts."""
    return len(entry.shape) == 3 and any(key in entry.name for key in _PARTS)


def matrices(file: str, entry: TensorEntry, hidden: int | None) -> Iterator[tuple[str, SourceRange]]:
    """Yield the name and the place of each matrix. `hidden`: the model's hidden size, if config.json has it.

    Raises CheckpointError where the tensor cannot be split so, or the hidden size shows that its matrices are stored
    [in, out], as those of gpt-oss and Llama 4 are.
    """
    keys = [key for key in _PARTS if key in entry.name]
    if len(keys) > 1:
        raise CheckpointError(
            f"the name contains {' and '.join(keys)}; expected exactly one of them, which determines how to split it"
        )
    key, (experts, rows, columns) = keys[0], entry.shape
    parts = _PARTS[key]
    if experts > MAX_EXPERTS:
        raise CheckpointError(f"shape {list(entry.shape)}: {experts} experts; at most {MAX_EXPERTS} are split")
    if rows % len(parts):
        raise CheckpointError(f"shape {list(entry.shape)} cannot be split into {' and '.join(parts)}: {rows} is odd")
    both = key == "gate_up_proj"
    if hidden is not None and hidden != (columns if both else rows):
        expected = f"[experts, 2 * intermediate, {hidden}]" if both else f"[experts, {hidden}, intermediate]"
        raise CheckpointError(
            f"shape {list(entry.shape)}; expected {expected} by hidden_size of config.json. This model stores the "
            "experts' matrices differently, and they cannot be split into linear modules"
        )
    size = (entry.end - entry.begin) // (experts * len(parts)) if experts else 0
    begin = entry.begin
    for expert in range(experts):
        for part in parts:
            name = entry.name.replace(key, f"{expert}.{part}")
            name = name if name.endswith(".weight") else f"{name}.weight"
            shape = (rows // len(parts), columns)
            yield name, SourceRange(file, entry.name, entry.dtype, shape, begin, begin + size)
            begin += size


def hidden_size(config: dict[str, object]) -> int | None:
    """Return the hidden size of the language model, None if config.json does not have it."""
    for part in (config.get("text_config"), config):
        if isinstance(part, dict) and isinstance(part.get("hidden_size"), int):
            return int(part["hidden_size"])
    return None
