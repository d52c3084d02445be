"""`quant_method` quark: how AMD Quark states the formats of modules.

Patterns are those of a shell (`fnmatch`). What matches `exclude` is plain; of `layer_quant_config` the first pattern
that matches counts, then what `layer_type_quant_config` has for `Linear`, then `global_quant_config`.

Source: amd-quark 0.13, `get_layer_quant_config` (`export/main_export/quant_config_parser.py`), `QTensorConfig.to_dict`
(`quantization/config/config.py`), `JsonExporterConfig` (`export/config/config.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from requant.checkpoint.name_patterns import shell_expression
from requant.checkpoint.quantization_config.members import MAX_ROWS, member, strings
from requant.checkpoint.weights.quark import (
    CODES,
    FLOAT_SCALES,
    PER_BLOCK,
    PER_CHANNEL,
    PER_GROUP,
    PER_TENSOR,
    POWERS_OF_TWO,
    TWO_LEVELS,
    QuarkWeight,
)
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, excerpt

METHOD = "quark"

_PLACE = "quantization_config"
_REAL, _REORDER = "real_quantized", "reorder"
_PACK_METHODS = (_REORDER, "order")
_MATRIX = 2
_LINEAR = "Linear"
_SCHEMES = {
    "fp8_e4m3": (PER_TENSOR, PER_CHANNEL, PER_BLOCK),
    "fp8_e5m2": (PER_TENSOR, PER_CHANNEL, PER_BLOCK),
    "fp6_e2m3": (PER_GROUP,),
    "fp6_e3m2": (PER_GROUP,),
    "fp4": (PER_GROUP,),
    **dict.fromkeys(("int8", "uint8", "int4", "uint4"), (PER_TENSOR, PER_CHANNEL, PER_GROUP)),
}
_AXES = {PER_CHANNEL: (0, -2), PER_GROUP: (1, -1)}


def formats_of_patterns(members: Mapping[str, Any]) -> Iterator[tuple[str, WeightFormat | None]]:
    """Yield names of modules, and expressions for names, in the order in which they count; None for plain modules.

    Raises CheckpointError for what is not supported.
    """
    for pattern in strings(members, "exclude"):
        yield shell_expression(pattern), None
    layers = member(members, "layer_quant_config", dict) or {}
    for pattern in layers:
        place = f"{_PLACE}.layer_quant_config"
        yield shell_expression(pattern), _format(members, member(layers, pattern, dict, place) or {}, place)


def format_of_others(members: Mapping[str, Any]) -> WeightFormat | None:
    """Return the format of modules without a pattern, None for plain ones. Raises CheckpointError."""
    by_type = member(members, "layer_type_quant_config", dict) or {}
    place = f"{_PLACE}.layer_type_quant_config"
    own = member(by_type, _LINEAR, dict, place)
    if own is not None:
        return _format(members, own, f"{place}.{_LINEAR}")
    stated = member(members, "global_quant_config", dict)
    return None if stated is None else _format(members, stated, f"{_PLACE}.global_quant_config")


def check(members: Mapping[str, Any]) -> None:
    """Raise CheckpointError for what cannot be made plain by module."""
    for each in member(members, "algo_config", list) or []:
        if not isinstance(each, dict):
            raise CheckpointError(f"{_PLACE}.algo_config has the entry {excerpt(str(each))}; expected objects")
        name = str(each.get("name")).lower()
        online = each.get("r4") is not False or each.get("online_r1_rotation")
        if name in ("rotation", "quarot") and online:
            raise CheckpointError(
                f"algo_config has {name} with rotations of activations (r4, online_r1_rotation), which plain weights "
                "do not have: use the original model"
            )
    export = member(members, "export", dict)
    weight_format = member(export or {}, "weight_format", str, f"{_PLACE}.export") or _REAL
    if weight_format != _REAL:
        raise CheckpointError(
            f"export.weight_format is '{excerpt(weight_format)}', weights before they are quantized; expected {_REAL}"
        )


def _format(members: Mapping[str, Any], layer: Mapping[str, Any], place: str) -> WeightFormat | None:
    """Return the format that a configuration of a layer states, None where its weight stays plain."""
    if layer.get("bias") is not None:
        raise CheckpointError(f"{place}.bias states quantized biases, which are not supported; expected null")
    stated = layer.get("weight")
    if stated is None:
        return None
    levels = stated if isinstance(stated, list) else [stated]
    if not levels or not all(isinstance(each, dict) for each in levels):
        raise CheckpointError(f"{place}.weight is {excerpt(str(stated))}; expected an object or a list of them")
    if len(levels) > 1:
        _check_second_level(levels, f"{place}.weight")
    return _of_level(members, levels[0], f"{place}.weight", two_levels=len(levels) > 1)


def _check_second_level(levels: Sequence[Mapping[str, Any]], place: str) -> None:
    """Raise CheckpointError but for FP4 whose scales are FP8 with one scale for the tensor."""
    second = levels[1]
    stated = (levels[0].get("dtype"), second.get("dtype"), second.get("qscheme"), second.get("is_scale_quant"))
    if len(levels) != _MATRIX or stated != ("fp4", "fp8_e4m3", PER_TENSOR, True):
        kinds = ", ".join(excerpt(str(each.get("dtype"))) for each in levels)
        raise CheckpointError(
            f"{place} has {len(levels)} levels ({kinds}); expected one, or fp4 with scales in fp8_e4m3 per_tensor"
        )


def _of_level(
    members: Mapping[str, Any], level: Mapping[str, Any], place: str, *, two_levels: bool
) -> WeightFormat | None:
    if member(level, "is_dynamic", bool, place):
        return None
    dtype, scheme = member(level, "dtype", str, place), member(level, "qscheme", str, place)
    if dtype is None or scheme is None or dtype not in CODES or scheme not in _SCHEMES[dtype]:
        raise CheckpointError(
            f"{place} has dtype '{excerpt(str(dtype))}' {excerpt(str(scheme))}, which is not supported; expected "
            f"one of {', '.join(CODES)}, floats of fewer than 8 bits {PER_GROUP}"
        )
    axis = member(level, "ch_axis", int, place)
    if scheme in _AXES and axis not in _AXES[scheme]:
        raise CheckpointError(f"{place}.ch_axis is {axis}; expected {_AXES[scheme][0]} for {scheme}")
    zeros = member(level, "zero_point_type", str, place)
    if zeros == "float32":
        raise CheckpointError(f"{place}.zero_point_type is float32; expected integers as zero points")
    export = member(members, "export", dict)
    if export is None and CODES[dtype].table is None and scheme == PER_GROUP:
        raise CheckpointError("quantization_config has no export: what Quark wrote before 1.0 is not supported")
    pack = member(export or {}, "pack_method", str, f"{_PLACE}.export") or _REORDER
    if pack not in _PACK_METHODS:
        raise CheckpointError(f"export.pack_method is '{excerpt(pack)}'; expected one of {', '.join(_PACK_METHODS)}")
    scales = TWO_LEVELS if two_levels else _scales(level, dtype, place)
    return QuarkWeight(
        dtype,
        scheme,
        _block(level, scheme, place),
        scales,
        reordered=pack == _REORDER,
        symmetric=member(level, "symmetric", bool, place) is not False,
        scale_dtype={FLOAT_SCALES: "F32", POWERS_OF_TWO: "U8", TWO_LEVELS: "F8_E4M3"}[scales],
    )


def _scales(level: Mapping[str, Any], dtype: str, place: str) -> str:
    stated = member(level, "scale_format", str, place)
    if stated in (None, "float32", "bfloat16", "float16"):
        return FLOAT_SCALES
    if stated != "e8m0" or CODES[dtype].table is None or CODES[dtype].bits == 8:
        raise CheckpointError(
            f"{place}.scale_format is '{excerpt(str(stated))}' for {dtype}; expected float32, or e8m0 for FP4 and FP6"
        )
    return POWERS_OF_TWO


def _block(level: Mapping[str, Any], scheme: str, place: str) -> tuple[int, int]:
    if scheme == PER_GROUP:
        size = member(level, "group_size", int, place)
        if size is None or size < 1:
            raise CheckpointError(f"{place}.group_size is {size}; expected a positive integer")
        return 1, size
    if scheme != PER_BLOCK:
        return 1, 1
    sizes = member(level, "block_size", list, place) or []
    if len(sizes) != _MATRIX or not all(isinstance(each, int) and each > 0 for each in sizes) or sizes[0] > MAX_ROWS:
        raise CheckpointError(f"{place}.block_size is {excerpt(str(sizes))}; expected two positive integers")
    return sizes[0], sizes[1]
