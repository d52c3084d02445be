"""The config.json entry of a scheme, member by member as compressed-tensors 0.20.0 reads it.

Source: `QuantizationConfig` and `QuantizationArgs` (`quantization/quant_config.py`, `quant_args.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU
from requant.checkpoint.scheme import MakeConfig, Members
from requant.checkpoint.weights.compressed_tensors.grouping import Grouping


def config(layout: str, weights: Members, activations: Members | None) -> MakeConfig:
    """Return what makes `quantization_config` of one group of modules, stored in the format `layout`."""

    def make(targets: Sequence[str], ignore: Sequence[str], left: Sequence[str]) -> Members:
        group = {
            "targets": list(targets),
            "weights": weights,
            "input_activations": activations,
            "output_activations": None,
            "format": layout,
        }
        return {
            "config_groups": {"group_0": group},
            "quant_method": "compressed-tensors",
            "kv_cache_scheme": None,
            "format": layout,
            "quantization_status": "compressed",
            "global_compression_ratio": None,
            "ignore": list(ignore),
            "transform_config": {},
            "version": COMPRESSED_TENSORS_CPU.version,
        }

    return make


def weights(
    bits: int, kind: str, grouping: Grouping, *, symmetric: bool = True, scale_dtype: str | None = None
) -> Members:
    """Return the entry for weights. `kind`: `int` or `float`."""
    members = _arguments(bits, kind, grouping.strategy, symmetric=symmetric)
    if grouping.strategy == "group":
        members["group_size"] = grouping.width
    if grouping.strategy == "block":
        members["block_structure"] = [grouping.height, grouping.width]
    if scale_dtype is not None:
        members["scale_dtype"] = scale_dtype
    return members


def dynamic_activations(bits: int, kind: str, group: int | None = None) -> Members:
    """Return what is said of activations whose scales, one for a token or for `group` of its elements, are computed
    while the model runs."""
    members = _arguments(bits, kind, "token" if group is None else "group", dynamic=True)
    members["group_size"] = group
    return members


def _arguments(bits: int, kind: str, strategy: str, *, symmetric: bool = True, dynamic: bool = False) -> Members:
    return {
        "num_bits": bits,
        "type": kind,
        "symmetric": symmetric,
        "group_size": None,
        "strategy": strategy,
        "dynamic": dynamic,
    }
