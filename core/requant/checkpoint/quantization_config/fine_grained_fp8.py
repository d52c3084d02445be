"""`quant_method` fp8: fine-grained fp8, as DeepSeek, Qwen and transformers write it.

Source: transformers 5.23.0, `FineGrainedFP8Config` (`utils/quantization_config.py`); vLLM 0.33.0, `Fp8Config`
(`model_executor/layers/quantization/fp8.py`); the config.json of DeepSeek-V3 and of Qwen3's FP8 checkpoints, which
state `fmt` too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from requant.checkpoint.profiles import TRANSFORMERS
from requant.checkpoint.quantization_config.block_sizes import check_block
from requant.checkpoint.scheme import NOT_LINEAR, OF_TORCH, Members, Scheme, options_of
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8

METHOD = "fp8"


def _scheme(scale_dtype: str) -> Callable[[str, list[str]], Scheme]:
    weight_format = FineGrainedFp8(scale_dtype)

    def config(targets: Sequence[str], ignore: Sequence[str], left: Sequence[str]) -> Members:
        members: Members = {
            "quant_method": METHOD,
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [weight_format.height, weight_format.width],
            "modules_to_not_convert": list(left),
        }
        return members if scale_dtype == "F32" else {**members, "scale_fmt": "ue8m0"}

    def scheme(name: str, options: list[str]) -> Scheme:
        options_of(name, options, ())
        return Scheme(
            name,
            f"f8E4M3FN, one {scale_dtype} scale per block of 128 x 128, dynamic 8-bit activations",
            (TRANSFORMERS.name,),
            False,
            lambda profile: weight_format,
            config,
            NOT_LINEAR,
            OF_TORCH,
        )

    return scheme


PRESETS = {"FINE_GRAINED_FP8": _scheme("F32"), "FINE_GRAINED_FP8_UE8M0": _scheme("F8_E8M0")}


def stored_format(members: Mapping[str, Any]) -> FineGrainedFp8:
    """Return how weights are stored. Raises CheckpointError unless they are in blocks."""
    block: Any = members.get("weight_block_size")
    check_block(block, "weight_block_size")
    return FineGrainedFp8("F32", block[0], block[1], ragged=True)
