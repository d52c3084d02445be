"""The schemes by our names, and how llm-compressor is asked for the same."""

from __future__ import annotations

from typing import Any

_TOKENS = {"num_bits": 8, "strategy": "token", "symmetric": True, "dynamic": True}

PRESETS = (
    "W8A8",
    "INT8",
    "W8A16",
    "W7A16",
    "W6A16",
    "W5A16",
    "W4A16",
    "W3A16",
    "W2A16",
    "W4A16_ASYM",
    "W7A8",
    "W6A8",
    "W5A8",
    "W4A8",
    "W3A8",
    "W2A8",
    "W4A4",
    "W3A4",
    "W2A4",
    "W4AFP8",
    "FP8_DYNAMIC",
    "FP8_BLOCK",
    "NVFP4A16",
    "MXFP4A16",
    "MXFP4",
    "MXFP4XFP8",
    "MXFP6A16",
    "MXFP6A8",
    "MXFP8A16",
    "MXFP8",
)
"""Schemes that have the same name there."""

OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "W8A8:asymmetric": (
        {"num_bits": 8, "type": "int", "symmetric": False, "strategy": "channel"},
        {"type": "int", **_TOKENS},
    ),
    "W8A8:tensor": (
        {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "tensor"},
        {"type": "int", **_TOKENS},
    ),
    "W8A16:tensor": ({"num_bits": 8, "type": "int", "symmetric": True, "strategy": "tensor"}, None),
    "W8A16:channel": ({"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}, None),
    "W8A16:asymmetric": (
        {"num_bits": 8, "type": "int", "symmetric": False, "strategy": "group", "group_size": 128},
        None,
    ),
    "W4A16:channel": ({"num_bits": 4, "type": "int", "symmetric": True, "strategy": "channel"}, None),
    "W4A16:channel,asymmetric": ({"num_bits": 4, "type": "int", "symmetric": False, "strategy": "channel"}, None),
    "W4A16:group=32": ({"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}, None),
    "W4A16:group=64,asymmetric": (
        {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 64},
        None,
    ),
    "FP8A16": ({"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}, None),
    "FP8_DYNAMIC:tensor": (
        {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor"},
        {"type": "float", **_TOKENS},
    ),
    "W3A16:group=32,asymmetric": (
        {"num_bits": 3, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32},
        None,
    ),
}
"""Weights and activations of schemes that have no name there."""

_MSE = {"observer": "memoryless_mse", "observer_kwargs": {"norm": 2.0, "maxshrink": 0.6, "patience": 60}}
_EXPANDED_MSE = {"observer": "nvfp4_expanded_mse", "observer_kwargs": {"norm": 2.0}}

SEARCHED = (
    "W8A8:mse",
    "W8A8:asymmetric,mse",
    "W4A16:mse",
    "W4A16:channel,asymmetric,mse",
    "W4A16:group=64,asymmetric,mse",
    "W2A16:mse",
    "W4A4:mse",
    "FP8_DYNAMIC:mse",
    "FP8_BLOCK:mse",
    "NVFP4A16:mse",
    "MXFP4A16:mse",
    "MXFP6A16:mse",
    "MXFP8A16:mse",
)
"""Schemes with scales of least squared error."""


def theirs(name: str) -> Any:
    """Return what `model_free_ptq` is given."""
    if name in PRESETS:
        return name
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme, preset_name_to_scheme

    if name in SEARCHED:
        plain = theirs(name.removesuffix("mse").rstrip(":,"))
        scheme = preset_name_to_scheme(plain, ["Linear"]) if isinstance(plain, str) else plain
        observer = _EXPANDED_MSE if name.startswith("NVFP4") else _MSE
        weights = QuantizationArgs(**{**scheme.weights.model_dump(), **observer})
        return scheme.model_copy(update={"weights": weights})
    weights, activations = OPTIONS[name]
    return QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(**weights),
        input_activations=None if activations is None else QuantizationArgs(**activations),
    )
