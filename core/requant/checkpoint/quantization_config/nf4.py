"""`quant_method` bitsandbytes with NF4.

Source: transformers 5.23.0, `BitsAndBytesConfig.to_dict` (`utils/quantization_config.py`), which writes these members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from requant.checkpoint.profiles import BITSANDBYTES
from requant.checkpoint.scheme import NOT_LINEAR, OF_TORCH, Members, Scheme, options_of
from requant.checkpoint.weights.nf4 import Nf4
from requant.errors import CheckpointError, excerpt

METHOD = "bitsandbytes"


def _config(targets: Sequence[str], ignore: Sequence[str], left: Sequence[str]) -> Members:
    return {
        "quant_method": METHOD,
        "_load_in_4bit": True,
        "_load_in_8bit": False,
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_use_double_quant": False,
        "bnb_4bit_compute_dtype": "bfloat16",
        "llm_int8_enable_fp32_cpu_offload": False,
        "llm_int8_has_fp16_weight": False,
        "llm_int8_skip_modules": list(left),
        "llm_int8_threshold": 6.0,
    }


def _scheme(name: str, options: list[str]) -> Scheme:
    options_of(name, options, ())
    return Scheme(
        name,
        "16 quantiles of a normal distribution, one f32 per block of 64 elements",
        (BITSANDBYTES.name,),
        False,
        lambda profile: Nf4(),
        _config,
        NOT_LINEAR,
        OF_TORCH,
    )


PRESETS = {"NF4": _scheme}


def stored_format(members: Mapping[str, Any]) -> Nf4:
    """Return how weights are stored. Raises CheckpointError for unsupported formats."""
    kind = members.get("bnb_4bit_quant_type")
    if members.get("load_in_4bit", members.get("_load_in_4bit")) is not True or kind != "nf4":
        raise CheckpointError(
            f"bitsandbytes weights with bnb_4bit_quant_type '{excerpt(str(kind))}', or in 8 bits, are not supported; "
            "expected load_in_4bit true and nf4"
        )
    if members.get("bnb_4bit_quant_storage", "uint8") != "uint8":
        raise CheckpointError("bnb_4bit_quant_storage is not uint8; expected codes stored as bytes")
    return Nf4()
