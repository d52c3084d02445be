"""Every `quant_method` but compressed-tensors: its schemes, and its members of config.json, written and read.

- fp8, fine-grained fp8 as DeepSeek, Qwen and transformers write it: transformers 5.23.0, `FineGrainedFP8Config`
  (`utils/quantization_config.py`); vLLM 0.33.0, `Fp8Config` (`model_executor/layers/quantization/fp8.py`); the
  config.json of DeepSeek-V3 and of Qwen3's FP8 checkpoints, which state `fmt` too. DeepSeek-V4 states `expert_dtype`.
- auto-round, the GPTQ layout: auto-round 0.15.1, `_build_quantization_config` (`compressors/model_free.py`) and the
  formats that its loaders take (`inference/backend.py`): auto_round:auto_gptq has zero points of version 1, auto_round
  of version 2. Asymmetric codes are written in version 2, which transformers loads; auto-round itself writes them in
  version 1 and names version 2, and what it writes is read wrongly. `gptq` is read only: AutoGPTQ 0.7.1 and GPTQModel
  7 (`quantization/config.py`), `checkpoint_format`, and `dynamic`, of whose expressions the first that matches counts.
- awq, its GEMM layout: autoawq 0.2.9, `AwqConfig.to_transformers_dict` (`models/_config.py`); transformers 5.23.0,
  `AwqConfig`; vLLM 0.33.0, `AWQConfig` (`model_executor/layers/quantization/awq.py`).
- mxfp4, the experts of gpt-oss: transformers 5.23.0, `Mxfp4Config`, which says nothing of how they are stored.
- bitsandbytes with NF4, and LLM.int8, which is read only: transformers 5.23.0, `BitsAndBytesConfig.to_dict`
  (`utils/quantization_config.py`).
- fbgemm_fp8 is read only: transformers 5.23.0, `FbgemmFp8Linear` (`integrations/fbgemm_fp8.py`). A weight is stored as
  compressed-tensors stores FP8 with a scale for each channel, which is F32: value = f32(code * weight_scale).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from requant.checkpoint.profiles import AUTO_ROUND, AUTOAWQ, BITSANDBYTES, TRANSFORMERS, CheckpointProfile
from requant.checkpoint.quantization_config.auto_round import FLOAT_PACKINGS, float_format
from requant.checkpoint.quantization_config.members import WHOLE_ROWS, block_size, group_size, member
from requant.checkpoint.scheme import (
    GROUP_OPTION,
    NOT_LINEAR,
    OF_TORCH,
    Members,
    Options,
    Preset,
    Scheme,
    parse_options,
)
from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.compressed_tensors import CHANNEL, FloatQuantized
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.llm_int8 import LlmInt8
from requant.checkpoint.weights.mxfp4 import Mxfp4Experts
from requant.checkpoint.weights.nf4 import Nf4
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, excerpt

Format = TypeVar("Format", bound=WeightFormat)
_GROUP = 128


def _scheme(
    name: str,
    description: str,
    profile: CheckpointProfile,
    weight_format: Format,
    to_config: Callable[[Format, Sequence[str]], Members],
) -> Scheme:
    """Return a scheme. `to_config` makes the members from the format and the modules that are not quantized."""
    return Scheme(
        name,
        description,
        (profile.name,),
        False,
        lambda _: weight_format,
        lambda groups, ignore, left: to_config(weight_format, left),
        NOT_LINEAR,
        OF_TORCH,
    )


def _fp8(scale_dtype: str) -> Preset:
    def scheme(name: str, options: list[str]) -> Scheme:
        parse_options(name, options, ())
        description = f"f8E4M3FN, one {scale_dtype} scale per block of 128 x 128, dynamic 8-bit activations"
        return _scheme(name, description, TRANSFORMERS, FineGrainedFp8(scale_dtype), _fp8_to_config)

    return scheme


def _fp8_to_config(weight_format: FineGrainedFp8, left: Sequence[str]) -> Members:
    members: Members = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [weight_format.height, weight_format.width],
        "modules_to_not_convert": list(left),
    }
    return members if weight_format.scale_dtype == "F32" else {**members, "scale_fmt": "ue8m0"}


def _fp8_from_config(members: Mapping[str, Any]) -> FineGrainedFp8:
    """Return the format. What the scales are is seen from their dtype."""
    height, width = block_size(members, "weight_block_size")
    experts = member(members, "expert_dtype", str) or "fp8"
    if experts not in ("fp8", "fp4"):
        raise CheckpointError(f"expert_dtype is '{excerpt(experts)}'; expected fp8 or fp4", file="config.json")
    return FineGrainedFp8("F32", height, width, ragged=True, with_fp4=experts == "fp4")


_PACKING_OF_VERSION = {1: "auto_round:auto_gptq", 2: "auto_round"}
_GPTQ, _GPTQ_V2, _AWQ = "gptq", "gptq_v2", "awq"
_AUTO_ROUND_PACKINGS = {
    "auto_round:auto_gptq": _GPTQ,
    "auto_round:gptq": _GPTQ,
    "auto_round": _GPTQ_V2,
    "auto_round:gptqmodel": _GPTQ_V2,
    "auto_round:auto_awq": _AWQ,
}
_GPTQ_PACKINGS = {each: each for each in (_GPTQ, _GPTQ_V2)}
_PLAIN_BITS = 16
"""The `bits` in `extra_config` of a module that is not quantized."""


def _gptq(bits: int) -> Preset:
    def scheme(name: str, options: list[str]) -> Scheme:
        stated = parse_options(name, options, (GROUP_OPTION, "channel", "asymmetric"))
        symmetric = not stated.asymmetric
        weight_format = Gptq(bits, symmetric, _group(stated), version=1 if symmetric else 2)
        # vLLM 0.33, `INCConfig`: SUPPORTED_FORMATS has version 1 alone.
        with_zero_points = "" if symmetric else ", with zero points, which transformers loads and vLLM does not"
        return _scheme(
            name,
            f"{bits}-bit integers in the layout of GPTQ, one f16 scale per {_shared(weight_format)}{with_zero_points}",
            AUTO_ROUND,
            weight_format,
            _gptq_to_config,
        )

    return scheme


def _gptq_to_config(weight_format: Gptq, left: Sequence[str]) -> Members:
    members: Members = {
        "quant_method": "auto-round",
        "packing_format": _PACKING_OF_VERSION[weight_format.version],
        "bits": weight_format.bits,
        "group_size": weight_format.group or WHOLE_ROWS,
        "sym": weight_format.symmetric,
        "data_type": "int",
        "iters": 0,
        "autoround_version": AUTO_ROUND.version,
    }
    plain = {module: {"bits": _PLAIN_BITS, "data_type": "float"} for module in left}
    return {**members, "extra_config": plain} if plain else members


def _auto_round_from_config(members: Mapping[str, Any]) -> WeightFormat:
    if members.get("rotation_config"):
        raise CheckpointError("the weights are rotated (rotation_config), which cannot be undone")
    return float_format(members) if members.get("packing_format") in FLOAT_PACKINGS else _gptq_from_config(members)


def _gptq_from_config(members: Mapping[str, Any]) -> WeightFormat:
    bits, stated_group = members.get("bits"), members.get("group_size", _GROUP)
    if isinstance(bits, bool) or not isinstance(bits, int):
        raise CheckpointError(f"bits is {excerpt(str(bits))}; expected an integer")
    group = group_size(stated_group)
    if members.get("quant_method") == "gptq":
        stated, known = _first_stated(members, ("checkpoint_format", "format"), _GPTQ), _GPTQ_PACKINGS
        if member(members, "is_marlin_format", bool):
            stated = "marlin"
    else:
        stated, known = members.get("packing_format"), _AUTO_ROUND_PACKINGS
    if not isinstance(stated, str) or stated not in known:
        others = () if known is _GPTQ_PACKINGS else FLOAT_PACKINGS
        raise CheckpointError(
            f"weights packed as '{excerpt(str(stated))}' are not supported; expected {', '.join((*known, *others))}"
        )
    if known[stated] == _AWQ:
        if bits != _AWQ_BITS:
            raise CheckpointError(f"AWQ weights of {bits} bits are not supported; expected {_AWQ_BITS}")
        return Awq(group)
    symmetric = member(members, "sym", bool) is not False
    ordered = member(members, "desc_act", bool) is True
    return Gptq(bits, symmetric, group, version=1 if known[stated] == _GPTQ else 2, has_g_idx=ordered)


def _first_stated(members: Mapping[str, Any], names: Sequence[str], otherwise: str) -> Any:
    """Return the first member that is there and not null."""
    return next((members[name] for name in names if members.get(name) is not None), otherwise)


def _awq(name: str, options: list[str]) -> Scheme:
    weight_format = Awq(_group(parse_options(name, options, (GROUP_OPTION, "channel"))))
    return _scheme(
        name,
        f"{_AWQ_BITS}-bit integers in the layout of AWQ's GEMM kernels, one f16 scale per {_shared(weight_format)}, "
        "without AWQ's search",
        AUTOAWQ,
        weight_format,
        _awq_to_config,
    )


_AWQ_BITS = 4


def _awq_to_config(weight_format: Awq, left: Sequence[str]) -> Members:
    return {
        "quant_method": "awq",
        "version": "gemm",
        "bits": _AWQ_BITS,
        "group_size": weight_format.group or WHOLE_ROWS,
        "zero_point": True,
        "modules_to_not_convert": list(left),
    }


def _awq_from_config(members: Mapping[str, Any]) -> Awq:
    version = str(_first_stated(members, ("version", "checkpoint_format", "format"), "gemm")).lower()
    bits, group = members.get("bits", members.get("w_bit")), members.get("group_size", members.get("q_group_size"))
    if version != "gemm" or bits != _AWQ_BITS or member(members, "zero_point", bool) is False:
        raise CheckpointError(
            f"AWQ weights of version '{excerpt(version)}', {excerpt(str(bits))} bits, zero_point "
            f"{members.get('zero_point')} are not supported; expected gemm, 4 bits, true"
        )
    if (order := members.get("pack_method", "reorder")) != "reorder":
        raise CheckpointError(f"AWQ weights with pack_method '{excerpt(str(order))}' (Quark) are not supported")
    return Awq(group_size(group))


def _group(stated: Options) -> int | None:
    """Return the columns that share a scale, None for whole rows."""
    return None if stated.granularity == "channel" else stated.group or _GROUP


def _shared(weight_format: Gptq | Awq) -> str:
    return f"group of {weight_format.group}" if weight_format.group else "row"


def _nf4(name: str, options: list[str]) -> Scheme:
    parse_options(name, options, ())
    description = "16 quantiles of a normal distribution, one f32 per block of 64 elements"
    return _scheme(name, description, BITSANDBYTES, Nf4(), _nf4_to_config)


def _nf4_to_config(weight_format: Nf4, left: Sequence[str]) -> Members:
    return {
        "quant_method": "bitsandbytes",
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


def _bitsandbytes_from_config(members: Mapping[str, Any]) -> WeightFormat:
    kind = members.get("bnb_4bit_quant_type")
    of_8, of_4 = (members.get(f"load_in_{bits}bit", members.get(f"_load_in_{bits}bit")) is True for bits in (8, 4))
    if of_8 and not of_4:
        return LlmInt8()
    if of_8 or not of_4 or kind != "nf4":
        raise CheckpointError(
            f"bitsandbytes weights with load_in_4bit {of_4}, load_in_8bit {of_8} and bnb_4bit_quant_type "
            f"'{excerpt(str(kind))}' are not supported; expected load_in_8bit true, or load_in_4bit true and nf4"
        )
    if members.get("bnb_4bit_quant_storage", "uint8") != "uint8":
        raise CheckpointError("bnb_4bit_quant_storage is not uint8; expected codes stored as bytes")
    return Nf4()


OF_OPENAI: Mapping[str, Any] = {"quant_method": "mxfp4", "layout": "openai"}
"""What is not said of OpenAI's own files of gpt-oss, whose config.json has no quantization_config."""


def _mxfp4_from_config(members: Mapping[str, Any]) -> Mxfp4Experts:
    return Mxfp4Experts(transposed=members.get("layout") != OF_OPENAI["layout"])


PRESETS: Mapping[str, Preset] = {
    "FINE_GRAINED_FP8": _fp8("F32"),
    "FINE_GRAINED_FP8_UE8M0": _fp8("F8_E8M0"),
    **{f"GPTQ_W{bits}A16": _gptq(bits) for bits in (8, 4, 2)},
    "AWQ": _awq,
    "NF4": _nf4,
}
"""The schemes by name, without options."""

METHODS: Mapping[str, Callable[[Mapping[str, Any]], WeightFormat]] = {
    "fp8": _fp8_from_config,
    "awq": _awq_from_config,
    "bitsandbytes": _bitsandbytes_from_config,
    "fbgemm_fp8": lambda _: FloatQuantized(CHANNEL, rounds=True),
    "mxfp4": _mxfp4_from_config,
    "gptq": _gptq_from_config,
    "auto-round": _auto_round_from_config,
}
"""By `quant_method`: returns how weights are stored. Raises CheckpointError for what is not supported."""


def formats_of_modules(members: Mapping[str, Any]) -> Iterator[tuple[str, WeightFormat]]:
    """Yield the modules for which `extra_config` states formats of their own (auto-round). Raises CheckpointError."""
    from_config = METHODS[members["quant_method"]]
    if from_config not in (_gptq_from_config, _auto_round_from_config):
        return
    extra = member(members, "extra_config", dict) or {}
    own = {module: member(extra, module, dict, "quantization_config.extra_config") or {} for module in extra}
    for module, each in own.items():
        if each.get("bits") != _PLAIN_BITS:
            yield module, from_config({**members, **each})


def formats_of_expressions(members: Mapping[str, Any]) -> Iterator[tuple[str, WeightFormat | None]]:
    """Yield the expressions of `dynamic` (GPTQModel) with formats, None for modules that are not quantized.

    They match at the start of names, and follow `+:` or nothing, or `-:` for modules that are left. Raises
    CheckpointError.
    """
    place = "quantization_config.dynamic"
    if members["quant_method"] != "gptq":
        return
    stated = member(members, "dynamic", dict) or {}
    for text in stated:
        own = member(stated, text, dict, place) or {}
        expression = text[2:] if text.startswith(("+:", "-:")) else text
        yield f"re:{expression}", None if text.startswith("-:") else _gptq_from_config({**members, **own})
