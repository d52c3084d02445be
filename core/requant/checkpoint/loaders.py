"""Which programs are known to load what `quantization_config` describes. Sources: docs/checkpoints.md, Loaders."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from requant.checkpoint.quantization_config import model_optimizer
from requant.checkpoint.quantization_config.compressed_tensors import METHOD

# Of the widths that Requant writes in GPTQ's layout.
_GPTQ_BITS_OF_VLLM = (4, 8)
_MX_AND_NVFP4_OF_VLLM = ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized")
_INT8 = 8


class Loader(StrEnum):
    """A program, in the release that docs/checkpoints.md names."""

    VLLM = "vLLM"
    TRANSFORMERS = "transformers"


def loaders_of(quantization: Mapping[str, Any] | None) -> tuple[Loader, ...]:
    """Return the programs that are known to load weights stored so, as Requant writes them."""
    if not quantization:
        return ()
    loads = {Loader.VLLM: _vllm_loads, Loader.TRANSFORMERS: _transformers_loads}
    return tuple(loader for loader in Loader if loads[loader](quantization))


def _vllm_loads(quantization: Mapping[str, Any]) -> bool:
    method = quantization.get("quant_method")
    if method == "auto-round":
        of_gptq = quantization["packing_format"] == "auto_round:auto_gptq"
        return of_gptq and quantization["bits"] in _GPTQ_BITS_OF_VLLM
    if method != METHOD:
        return method in ("fp8", model_optimizer.METHOD)
    return all(_vllm_has_scheme(group) for group in quantization["config_groups"].values())


def _vllm_has_scheme(group: Mapping[str, Any]) -> bool:
    weights, layout = group["weights"], group["format"]
    if layout == "pack-quantized":
        return weights["strategy"] in ("group", "channel")
    if layout == "int-quantized":
        # Codes of fewer bits, one in a byte, have a scheme only for CPUs.
        fits = weights["symmetric"] and weights["strategy"] in ("channel", "tensor")
        return bool(fits) and (weights["num_bits"], group["input_activations"]["num_bits"]) == (_INT8, _INT8)
    return layout in (*_MX_AND_NVFP4_OF_VLLM, "float-quantized", "naive-quantized")


def _transformers_loads(quantization: Mapping[str, Any]) -> bool:
    if quantization.get("quant_method") == model_optimizer.METHOD:
        return False
    groups = quantization.get("config_groups", {}).values()
    # The zero points of packed weights are expected in another shape.
    return all(group["weights"]["symmetric"] or group["format"] != "pack-quantized" for group in groups)
