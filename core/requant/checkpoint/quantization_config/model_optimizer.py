"""`quant_method` modelopt, NVIDIA ModelOpt: how the weights of its exported checkpoints are stored.

Its members are in config.json, or in `hf_quant_config.json` alone, below `quantization`. Its `config_groups` are made
for readers of compressed-tensors, but are not what those take; `quant_algo` says what is stored. Names in the list of
excluded modules have the wildcards of a shell; with MIXED_PRECISION, `quantized_layers` has an entry for each module,
or for one above it.

Source: nvidia-modelopt 0.47.0, `process_layer_quant_config` (`torch/export/quant_utils.py`) and
`convert_hf_quant_config_format` (`torch/export/convert_hf_config.py`); vLLM 0.33.0, `ModelOptQuantConfigBase`
(`model_executor/layers/quantization/modelopt.py`), which takes names of algorithms in any case and looks at exclusions
first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.profiles import MODEL_OPTIMIZER
from requant.checkpoint.quantization_config.members import MAX_ROWS, member, strings
from requant.checkpoint.scheme import NOT_LINEAR, OF_TORCH, Members, Preset, Scheme, parse_options
from requant.checkpoint.weights.compressed_tensors import CHANNEL, TENSOR, Grouping
from requant.checkpoint.weights.model_optimizer import FloatGroups, Fp8, Int4RowPairs, Int8, ModelOptimizerWeight
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, excerpt

METHOD = "modelopt"
METHODS = (METHOD, "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed")
"""Names of `quant_method`: the one that it writes, and those that vLLM knows besides."""
FILE = "hf_quant_config.json"
NESTED = "quantization"
"""The member that has all others in FILE."""

_MIXED = "MIXED_PRECISION"


def _fp8(grouping: Grouping) -> WeightFormat:
    return Fp8(grouping, rounds=False)


_INTEGERS = Int8(CHANNEL, rounds=True)
_Layout = Callable[[int | None], WeightFormat]
"""Returns how weights are stored. The argument: `group_size`, None where it is not stated."""


def _blocks(size: int | None) -> WeightFormat:
    return _fp8(Grouping(size or 128, size or 128))


def _nvfp4(size: int | None) -> WeightFormat:
    return FloatGroups(4, size, "F8_E4M3")


def _mxfp4(size: int | None) -> WeightFormat:
    return FloatGroups(4, size, "U8")


_LAYOUTS: Mapping[str, _Layout] = {
    "FP8": lambda _: _fp8(TENSOR),
    "FP8_PER_CHANNEL_PER_TOKEN": lambda _: _fp8(CHANNEL),
    "FP8_PB_WO": _blocks,
    "FP8_PB_REAL": _blocks,
    "FP8_BLOCK_SCALES": _blocks,
    "NVFP4": _nvfp4,
    "W4A16_NVFP4": _nvfp4,
    "W4A8_NVFP4_FP8": _nvfp4,
    "NVFP4_AWQ": _nvfp4,
    "MXFP8": lambda size: FloatGroups(8, size, "U8"),
    "MXFP4": _mxfp4,
    "W4A8_MXFP4_FP8": _mxfp4,
    "W8A16": lambda _: _INTEGERS,
    "W8A8_SQ_PER_CHANNEL": lambda _: _INTEGERS,
    "W4A16_AWQ": Int4RowPairs,
}
_NOT_READ: Mapping[str, str] = {
    "W4A8_AWQ": "its 4-bit integers are rounded to FP8 by a second scale when the model runs, which is not computed "
    "here; export the model as W4A16_AWQ",
    "NVFP4_SVD": "a part of each weight is a product of two matrices (svdquant_lora_a, svdquant_lora_b), which is not "
    "read; export the model as NVFP4",
}


@dataclass(frozen=True)
class StatedFormats:
    """The formats of the modules. `every`: of those that are not among `layers`, None for plain ones.

    `layers`: by the name of a module, of it and all below it. `excluded`: names with wildcards, which go before both.
    """

    every: WeightFormat | None
    layers: Mapping[str, WeightFormat | None]
    excluded: tuple[str, ...]


def formats_from_config(members: Mapping[str, Any]) -> StatedFormats:
    """Return what a quantization_config states. Raises CheckpointError for what is not supported."""
    if NESTED not in members:
        return _formats(members, "quantization_config")
    try:
        return _formats(member(members, NESTED, dict) or {}, NESTED)
    except CheckpointError as error:
        raise CheckpointError(error.detail, file=FILE) from None


def _formats(members: Mapping[str, Any], place: str) -> StatedFormats:
    excluded = strings(members, "ignore" if "ignore" in members else "exclude_modules", place)
    if str(members.get("kv_cache_quant_algo", members.get("kv_cache_scheme"))).upper() == "NVFP4_AFFINE":
        raise CheckpointError(
            "the cache of keys and values has a bias (NVFP4_AFFINE: k_bias, v_bias), which a plain model has not: "
            "export the model with another kv_cache_quant_algo"
        )
    if _algorithm(members, place) != _MIXED:
        return StatedFormats(_format(members, place), {}, excluded)
    layers = member(members, "quantized_layers", dict, place)
    if not layers:
        raise CheckpointError(
            f"{place}.quantized_layers is missing or empty; {_MIXED} has the format of each module there"
        )
    where = f"{place}.quantized_layers"
    stated = {name: _format(member(layers, name, dict, where) or {}, f"{where}.{excerpt(name)}") for name in layers}
    return StatedFormats(None, stated, excluded)


def _algorithm(members: Mapping[str, Any], place: str) -> str | None:
    stated = member(members, "quant_algo", str, place)
    return None if stated is None or stated.upper() == "NONE" else stated.upper()


def _format(members: Mapping[str, Any], place: str) -> WeightFormat | None:
    """Return the format that `quant_algo` names, None where it is null: then the weights are plain."""
    algorithm, size = _algorithm(members, place), member(members, "group_size", int, place)
    if algorithm is None:
        return None
    if algorithm in _NOT_READ:
        raise CheckpointError(f"{place}.quant_algo {algorithm} is not read: {_NOT_READ[algorithm]}")
    if algorithm not in _LAYOUTS:
        raise CheckpointError(
            f"{place}.quant_algo is '{excerpt(algorithm)}'; expected one of {', '.join((*_LAYOUTS, _MIXED))}"
        )
    # 0 is written where there are no groups.
    if size is not None and (size % 2 or not 0 <= size <= MAX_ROWS):
        raise CheckpointError(f"{place}.group_size is {size}; expected an even number of at most {MAX_ROWS}")
    return ModelOptimizerWeight(_LAYOUTS[algorithm](size or None))


_PRODUCER = {"name": METHOD, "version": MODEL_OPTIMIZER.version}


def _preset(algorithm: str, description: str, *, group: int | None = None, fused: bool = False) -> Preset:
    """Return a scheme of ModelOpt that needs no data: activations are not quantized, or when the model runs."""

    def stated(left: Sequence[str]) -> Members:
        size = {} if group is None else {"group_size": group}
        return {"quant_algo": algorithm, "kv_cache_quant_algo": None, **size, "exclude_modules": sorted(left)}

    def config(groups: Sequence[Members], ignore: Sequence[str], left: Sequence[str]) -> Members:
        members: Members = {
            "ignore": sorted(left),
            "quant_algo": algorithm,
            "producer": _PRODUCER,
            "quant_method": METHOD,
        }
        if group is not None:
            weights = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": group}
            members["config_groups"] = {"group_0": {"weights": weights, "targets": ["Linear"]}}
        return members

    def files(left: Sequence[str]) -> Mapping[str, bytes]:
        return {FILE: json.dumps({"producer": _PRODUCER, NESTED: stated(left)}, indent=4).encode()}

    def scheme(name: str, options: list[str]) -> Scheme:
        parse_options(name, options, ())
        form = ModelOptimizerWeight(_LAYOUTS[algorithm.upper()](group))
        profiles = (MODEL_OPTIMIZER.name,)
        return Scheme(
            name,
            description,
            profiles,
            fused,
            lambda _: form,
            config,
            always_ignored=NOT_LINEAR,
            metadata=OF_TORCH,
            make_files=files,
        )

    return scheme


PRESETS: Mapping[str, Preset] = {
    "MODELOPT_FP8_PER_CHANNEL_PER_TOKEN": _preset(
        "FP8_PER_CHANNEL_PER_TOKEN", "f8E4M3FN, one f32 scale for each channel; activations: FP8, dynamic"
    ),
    "MODELOPT_FP8_PB_WO": _preset(
        "fp8_pb_wo", "f8E4M3FN, one f32 scale for each block of 128 x 128; activations: FP8, dynamic"
    ),
    "MODELOPT_W4A16_NVFP4": _preset(
        "W4A16_NVFP4",
        "f4E2M1FN, one f8E4M3FN scale for each group of 16, one f32 scale for each fused set of weights",
        group=16,
        fused=True,
    ),
}
"""The schemes by name, without options. Others of ModelOpt need data for the scales of activations."""
