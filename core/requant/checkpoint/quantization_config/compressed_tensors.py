"""`quant_method` compressed-tensors: its schemes by its names, and its members of config.json, written and read.

Source: compressed-tensors 0.20.0, `PRESET_SCHEMES` (`quantization/quant_scheme.py`), `QuantizationConfig` and
`QuantizationArgs` (`quantization/quant_config.py`, `quant_args.py`). FP8A16 is not among its names: FP8 weights whose
activations stay as they are. Its FP8 and NVFP4 quantize activations by scales that are found with data
(`requant.checkpoint.given_scales`); the weights are those of FP8_DYNAMIC:tensor and NVFP4A16. The member
`kv_cache_scheme` is that which llm-compressor 0.14 writes for FP8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.given_scales import INPUT_GLOBAL_SCALE, INPUT_SCALE
from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU, COMPRESSED_TENSORS_CUDA
from requant.checkpoint.quantization_config.members import block_size, member, strings
from requant.checkpoint.scheme import (
    GROUP_OPTION,
    MSE_OPTION,
    OF_TORCH,
    RULE_OPTION,
    Members,
    Preset,
    Scheme,
    parse_options,
)
from requant.checkpoint.weights.block_rules import FOUR_OVER_SIX_RULES, MX_RULES, FourOverSixWeight, MxRuleWeight
from requant.checkpoint.weights.block_scaled import MxWeight, Nvfp4Weight
from requant.checkpoint.weights.compressed_tensors import (
    CHANNEL,
    TENSOR,
    FloatQuantized,
    Grouping,
    IntQuantized,
    PackQuantized,
    groups_of,
)
from requant.checkpoint.weights.search import EXPANDED_MSE, MSE, Search
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.convert.blocks.mx import MxRule
from requant.convert.blocks.nvfp4 import Nvfp4Rule
from requant.errors import CheckpointError, ParameterError, excerpt
from requant.errors.names import entry_named

METHOD = "compressed-tensors"


@dataclass(frozen=True)
class _Weights:
    """The member `weights` of a group of modules. `kind`: `int` or `float`. `ordered`: groups by activations.
    `search`: of scales, None without. `rule`: whose scales those of blocks are, None for the library's.
    """

    bits: int
    kind: str
    grouping: Grouping
    symmetric: bool = True
    ordered: bool = False
    search: Search | None = None
    rule: MxRule | Nvfp4Rule | None = None


@dataclass(frozen=True)
class _Layout:
    """How a `format` holds codes of a kind.

    `make`: the weight format, from the member `weights`, and whether each step is rounded as in the profile of the CPU.
    `bits`, `grouping`: the only ones, None for any. `scale_dtype`, `strategy`: what config.json states of them, None
    for nothing and for the strategy of the grouping.
    """

    make: Callable[[_Weights, bool], WeightFormat]
    bits: int | None = None
    grouping: Grouping | None = None
    scale_dtype: str | None = None
    strategy: str | None = None


_INT_QUANTIZED = _Layout(
    lambda of, rounds: IntQuantized(of.grouping, rounds, of.symmetric, of.bits, of.ordered, search=of.search)
)
_PACK_QUANTIZED = _Layout(
    lambda of, rounds: PackQuantized(of.grouping, rounds, of.symmetric, of.bits, of.ordered, search=of.search)
)
_FLOAT_QUANTIZED = _Layout(lambda of, rounds: FloatQuantized(of.grouping, rounds, search=of.search), 8)


def _nvfp4_weight(of: _Weights, rounds: bool) -> WeightFormat:
    return FourOverSixWeight(rule=of.rule) if isinstance(of.rule, Nvfp4Rule) else Nvfp4Weight(of.search)


def _mx_weight(of: _Weights, rounds: bool) -> WeightFormat:
    if isinstance(of.rule, MxRule):
        return MxRuleWeight(of.bits, rounds, rule=of.rule)
    return MxWeight(of.bits, rounds, search=of.search)


_NVFP4 = _Layout(_nvfp4_weight, 4, groups_of(16), "torch.float8_e4m3fn", "tensor_group")
_MXFP4, _MXFP6, _MXFP8 = (_Layout(_mx_weight, bits, groups_of(32), "torch.uint8") for bits in (4, 6, 8))
_LAYOUTS: Mapping[str, Mapping[str, _Layout]] = {
    "int-quantized": {"int": _INT_QUANTIZED},
    "pack-quantized": {"int": _PACK_QUANTIZED},
    "float-quantized": {"float": _FLOAT_QUANTIZED},
    # The name of both where activations stay as they are.
    "naive-quantized": {"int": _INT_QUANTIZED, "float": _FLOAT_QUANTIZED},
    "nvfp4-pack-quantized": {"float": _NVFP4},
    "mxfp4-pack-quantized": {"float": _MXFP4},
    "mxfp6-pack-quantized": {"float": _MXFP6},
    "mxfp8-quantized": {"float": _MXFP8},
}
"""By `format` and the `type` of the weights."""


def _to_config(layout: str, weights: _Weights) -> Members:
    """Return the member `weights`."""
    stated = _LAYOUTS[layout][weights.kind]
    members = _arguments(weights.bits, weights.kind, weights.grouping.strategy, symmetric=weights.symmetric)
    if weights.grouping.strategy == "group":
        members["group_size"] = weights.grouping.width
    if weights.grouping.strategy == "block":
        members["block_structure"] = [weights.grouping.height, weights.grouping.width]
    if stated.scale_dtype is not None:
        members["scale_dtype"] = stated.scale_dtype
    if stated.strategy is not None:
        members["strategy"] = stated.strategy
    if weights.search is not None:
        members |= weights.search.to_config()
    return members


def _from_config(layout: str, members: Mapping[str, Any], place: str) -> WeightFormat:
    """Return the format that the member `weights` at `place` states. Raises CheckpointError."""
    bits, kind = member(members, "num_bits", int, place), _lowered(members, "type", place)
    symmetric = member(members, "symmetric", bool, place) is not False
    if layout not in _LAYOUTS or kind is None or kind not in _LAYOUTS[layout]:
        raise CheckpointError(
            f"format '{excerpt(layout)}' with weights of type '{excerpt(str(kind))}' is not supported; expected one of "
            f"{', '.join(_LAYOUTS)}, with a type that it can hold"
        )
    if bits is None or not 1 <= bits <= 8:
        raise CheckpointError(f"num_bits is {bits}; expected 1 to 8")
    grouping, known = _grouping_from_config(members, place), _LAYOUTS[layout][kind]
    if known.bits is not None and (bits != known.bits or not symmetric or grouping != (known.grouping or grouping)):
        raise CheckpointError(
            f"{bits}-bit floats{'' if symmetric else ' with zero points'} with strategy {grouping.strategy} and "
            "this group or block size are not supported"
        )
    ordered = _is_ordered(members, place)
    if ordered and (kind != "int" or grouping.strategy != "group"):
        raise CheckpointError(f"{place}.actorder orders groups, and these weights are no integers in groups")
    # The profile matters for quantizing alone.
    return known.make(_Weights(bits, kind, grouping, symmetric, ordered), True)


def _lowered(members: Mapping[str, Any], name: str, place: str) -> str | None:
    """Return a name, which the library takes in any case."""
    stated = member(members, name, str, place)
    return None if stated is None else stated.lower()


_ORDERS = {"group": True, "dynamic": True, "weight": False, "static": False}


def _is_ordered(members: Mapping[str, Any], place: str) -> bool:
    """Return whether groups are ordered by activations, as 0.19 and before wrote them. `weight` stores nothing."""
    stated = members.get("actorder")
    if stated is None or isinstance(stated, bool):
        return bool(stated)
    if not isinstance(stated, str) or stated.lower() not in _ORDERS:
        raise CheckpointError(
            f"{place}.actorder is {excerpt(str(stated))}; expected one of {', '.join(_ORDERS)}", file="config.json"
        )
    return _ORDERS[stated.lower()]


def _grouping_from_config(members: Mapping[str, Any], place: str) -> Grouping:
    size = member(members, "group_size", int, place)
    strategy = _lowered(members, "strategy", place)
    if strategy is None:
        strategy = "tensor" if size is None else "channel" if size == -1 else "group"
    if strategy == "tensor":
        return TENSOR
    if strategy == "channel":
        return CHANNEL
    if strategy in ("group", "tensor_group"):
        if size is None or size < 1:
            raise CheckpointError(f"{place}.group_size is {size}; expected a positive integer")
        return groups_of(size)
    if strategy == "block":
        return Grouping(*block_size(members, "block_structure"))
    raise CheckpointError(
        f"strategy '{excerpt(str(strategy))}' is not supported; expected tensor, channel, group or block"
    )


def _arguments(bits: int, kind: str, strategy: str, *, symmetric: bool = True, dynamic: bool | str = False) -> Members:
    return {
        "num_bits": bits,
        "type": kind,
        "symmetric": symmetric,
        "group_size": None,
        "strategy": strategy,
        "dynamic": dynamic,
    }


def _dynamic(bits: int, kind: str, group: int | None = None, *, scale_dtype: str | None = None) -> Members:
    """Return what is said of activations whose scales, one for a token or for `group` of its elements, are computed
    while the model runs."""
    members = _arguments(bits, kind, "token" if group is None else "group", dynamic=True)
    members["group_size"] = group
    return members if scale_dtype is None else {**members, "scale_dtype": scale_dtype}


_OBSERVER = {"observer": "static_minmax"}
_FP8_INPUTS: Members = {**_arguments(8, "float", "tensor"), **_OBSERVER}
_NVFP4_INPUTS: Members = {
    **_arguments(4, "float", "tensor_group", dynamic="local"),
    **_OBSERVER,
    "group_size": 16,
    "scale_dtype": "torch.float8_e4m3fn",
}


def with_kv_cache(members: Members) -> Members:
    """Return the member `quantization_config` of a model that keeps keys and values in FP8, by scales that it has."""
    return {**members, "kv_cache_scheme": _arguments(8, "float", "tensor")}


def formats_of_groups(members: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], WeightFormat]]:
    """Yield the targets and the format of each group of modules whose weights are quantized; no targets are all.

    Raises CheckpointError for what is not supported.
    """
    transforms = member(members, "transform_config", dict) or {}
    if transforms.get("config_groups"):
        raise CheckpointError("the weights are rotated (transform_config), which cannot be undone")
    groups = member(members, "config_groups", dict)
    if not groups:
        raise CheckpointError("quantization_config has no config_groups, which define how the weights are stored")
    for name in groups:
        group = member(groups, name, dict, "quantization_config.config_groups") or {}
        place = f"quantization_config.config_groups.{excerpt(name)}"
        stated = member(group, "weights", dict, place)
        if stated is not None:
            layout = member(group, "format", str, place) or member(members, "format", str)
            weight_format = _from_config(str(layout), stated, f"{place}.weights")
            yield strings(group, "targets", place), weight_format


def targets_and_ignore(members: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the targets of all groups of modules, and the entries of `ignore`. Raises CheckpointError."""
    groups = member(members, "config_groups", dict) or {}
    place = "quantization_config.config_groups"
    targets = tuple(
        each
        for name in groups
        for each in strings(member(groups, name, dict, place) or {}, "targets", f"{place}.{excerpt(name)}")
    )
    return targets, strings(members, "ignore")


def _scheme(
    name: str,
    description: str,
    layout: str,
    weights: _Weights,
    *,
    activations: Members | None = None,
    fused: bool = False,
    input_scale: str | None = None,
) -> Scheme:
    def weight_format(profile: str) -> WeightFormat:
        return _LAYOUTS[layout][weights.kind].make(weights, profile == COMPRESSED_TENSORS_CPU.name)

    group = {
        "weights": _to_config(layout, weights),
        "input_activations": activations,
        "output_activations": None,
        "format": layout,
    }
    profiles: tuple[str, ...] = (COMPRESSED_TENSORS_CPU.name, COMPRESSED_TENSORS_CUDA.name)
    if weights.search is not None:
        # On a GPU the library searches with sums in another order.
        profiles = (COMPRESSED_TENSORS_CPU.name,)
        description = f"{description}; scales of least squared error"
    if weights.rule is not None:
        # No step of them is rounded to the dtype of the weight, on a GPU or not.
        profiles = (COMPRESSED_TENSORS_CPU.name,)
        description = f"{description}; scales by the rule {weights.rule}"
    # Of models that were loaded to find scales, transformers writes the files.
    metadata = None if input_scale is None else OF_TORCH
    return Scheme(
        name,
        description,
        profiles,
        fused,
        weight_format,
        _quantization_config,
        metadata=metadata,
        group=group,
        input_scale=input_scale,
    )


_MIXED = "mixed-precision"


def _quantization_config(groups: Sequence[Members], ignore: Sequence[str], left: Sequence[str]) -> Members:
    """Return the member `quantization_config`. The names of groups keep their order where members are sorted."""
    digits = len(str(len(groups) - 1))
    layouts = {group["format"] for group in groups}
    return {
        "config_groups": {f"group_{number:0{digits}}": group for number, group in enumerate(groups)},
        "quant_method": METHOD,
        "kv_cache_scheme": None,
        "format": _MIXED if len(layouts) > 1 else groups[0]["format"],
        "quantization_status": "compressed",
        "global_compression_ratio": None,
        "ignore": list(ignore),
        "transform_config": {},
        "version": COMPRESSED_TENSORS_CPU.version,
    }


_INTEGER_ACTIVATIONS = "; activations: {}-bit integers, one scale for each token, dynamic"


def _integers(bits: int, grouping: Grouping, *, symmetric: bool = True, activations: int | str | None = None) -> Preset:
    """`activations`: the bits of their integers, FP8, or None where they stay as they are."""

    def scheme(name: str, options: list[str]) -> Scheme:
        chosen, is_symmetric, search = _options(name, options, grouping, symmetric)
        with_zero_points = "" if is_symmetric else " and zero point"
        of_inputs, members = "", None
        if activations == _FP8:
            of_inputs, members = "; activations: FP8, one scale for each token, dynamic", _dynamic(8, "float")
        elif isinstance(activations, int):
            of_inputs, members = _INTEGER_ACTIVATIONS.format(activations), _dynamic(activations, "int")
        return _scheme(
            name,
            f"{bits}-bit integers, one scale{with_zero_points} for each {_sharing(chosen)}{of_inputs}",
            "pack-quantized" if members is None else "int-quantized",
            _Weights(bits, "int", chosen, is_symmetric, search=search),
            activations=members,
        )

    return scheme


_FP8 = "FP8"


def _float8_given(name: str, options: list[str]) -> Scheme:
    parse_options(name, options, ())
    return _scheme(
        name,
        "FP8 (f8E4M3FN), one scale for each tensor; activations: FP8, one given scale for each module",
        "float-quantized",
        _Weights(8, "float", TENSOR),
        activations=_FP8_INPUTS,
        input_scale=INPUT_SCALE,
    )


def _float8(grouping: Grouping, activations: Members | None) -> Preset:
    def scheme(name: str, options: list[str]) -> Scheme:
        chosen, symmetric, search = _options(name, options, grouping, True)
        if not symmetric or chosen.strategy == "group" or (chosen != grouping and grouping.strategy == "block"):
            fitting = MSE_OPTION if grouping.strategy == "block" else f"channel, tensor, {MSE_OPTION}"
            raise ParameterError(f"scheme {excerpt(name)}: the option does not fit FP8; available: {fitting}")
        of_inputs = "" if activations is None else "; activations: FP8, dynamic"
        return _scheme(
            name,
            f"FP8 (f8E4M3FN), one scale for each {_sharing(chosen)}{of_inputs}",
            "naive-quantized" if activations is None else "float-quantized",
            _Weights(8, "float", chosen, search=search),
            activations=activations,
        )

    return scheme


def _block_scaled(
    layout: str,
    description: str,
    *,
    fused: bool = False,
    activations: Members | None = None,
    of_inputs: str = "",
    search: Search = MSE,
    input_scale: str | None = None,
) -> Preset:
    def scheme(name: str, options: list[str]) -> Scheme:
        stated = parse_options(name, options, (MSE_OPTION, RULE_OPTION))
        rules: Mapping[str, MxRule | Nvfp4Rule] = FOUR_OVER_SIX_RULES if fused else MX_RULES
        rule = None if stated.rule is None else entry_named(rules, stated.rule, "rule")
        known = _LAYOUTS[layout]["float"]
        assert known.bits is not None
        assert known.grouping is not None
        weights = _Weights(known.bits, "float", known.grouping, search=search if stated.mse else None, rule=rule)
        return _scheme(
            name,
            description + of_inputs,
            layout,
            weights,
            activations=activations,
            fused=fused,
            input_scale=input_scale,
        )

    return scheme


def _mx(bits: int, *, activations: int | None = None) -> Preset:
    """`activations`: the bits of theirs, None where they stay as they are."""
    layout = "mxfp8-quantized" if bits == 8 else f"mxfp{bits}-pack-quantized"
    members = None if activations is None else _dynamic(activations, "float", 32, scale_dtype="torch.uint8")
    of_inputs = "" if activations is None else f"; activations: MXFP{activations}, dynamic"
    return _block_scaled(layout, _MX_WEIGHTS[bits], activations=members, of_inputs=of_inputs)


_MX_WEIGHTS = {
    bits: f"{element}, one power of two for each group of 32"
    for bits, element in ((4, "f4E2M1FN"), (6, "f6E2M3FN"), (8, "f8E4M3FN"))
}


def _sharing(grouping: Grouping) -> str:
    if grouping.strategy == "group":
        return f"group of {grouping.width}"
    if grouping.strategy == "block":
        return f"block of {grouping.height} x {grouping.width}"
    return grouping.strategy


def _options(
    name: str, options: list[str], grouping: Grouping, symmetric: bool
) -> tuple[Grouping, bool, Search | None]:
    """Return the granularity of the scales, whether the codes are symmetric, and how scales are searched. Raises
    UnknownNameError, ParameterError."""
    stated = parse_options(name, options, (GROUP_OPTION, "channel", "tensor", "asymmetric", MSE_OPTION))
    if stated.granularity:
        grouping = groups_of(stated.group) if stated.group else CHANNEL if stated.granularity == "channel" else TENSOR
    symmetric = symmetric and not stated.asymmetric
    if not symmetric and grouping == TENSOR:
        raise ParameterError(f"scheme {excerpt(name)}: one scale for the tensor has no zero point")
    if stated.mse and grouping == TENSOR:
        raise ParameterError(
            f"scheme {excerpt(name)}: one scale for the tensor is not searched; choose channels, groups or blocks"
        )
    return grouping, symmetric, MSE if stated.mse else None


_NVFP4_WEIGHTS = "f4E2M1FN, one f8E4M3FN scale for each group of 16, one f32 scale for each fused set of weights"
_GROUPS = groups_of(128)
_W8A8 = _integers(8, CHANNEL, activations=8)
PRESETS: Mapping[str, Preset] = {
    "W8A8": _W8A8,
    "INT8": _W8A8,
    **{f"W{bits}A16": _integers(bits, _GROUPS) for bits in (8, 7, 6, 5, 4, 3, 2)},
    "W4A16_ASYM": _integers(4, _GROUPS, symmetric=False),
    **{f"W{bits}A8": _integers(bits, _GROUPS, activations=8) for bits in (7, 6, 5, 4, 3, 2)},
    **{f"W{bits}A4": _integers(bits, _GROUPS, activations=4) for bits in (4, 3, 2)},
    "W4AFP8": _integers(4, _GROUPS, activations=_FP8),
    "FP8_DYNAMIC": _float8(CHANNEL, _dynamic(8, "float")),
    "FP8_BLOCK": _float8(Grouping(128, 128), _dynamic(8, "float", 128)),
    "FP8A16": _float8(CHANNEL, None),
    "NVFP4A16": _block_scaled(
        "nvfp4-pack-quantized",
        _NVFP4_WEIGHTS,
        fused=True,
        search=EXPANDED_MSE,
    ),
    "MXFP4A16": _mx(4),
    "MXFP4": _mx(4, activations=4),
    "MXFP4XFP8": _block_scaled(
        "mxfp4-pack-quantized",
        _MX_WEIGHTS[4],
        activations=_dynamic(8, "float", 128),
        of_inputs="; activations: FP8, one scale for each 128 elements, dynamic",
    ),
    "MXFP6A16": _mx(6),
    "MXFP6A8": _mx(6, activations=8),
    "MXFP8A16": _mx(8),
    "MXFP8": _mx(8, activations=8),
}
"""The schemes that need no data, by name, without options."""
GIVEN_PRESETS: Mapping[str, Preset] = {
    "FP8": _float8_given,
    "NVFP4": _block_scaled(
        "nvfp4-pack-quantized",
        _NVFP4_WEIGHTS,
        fused=True,
        activations=_NVFP4_INPUTS,
        of_inputs="; activations: NVFP4, one given f32 scale for each module",
        search=EXPANDED_MSE,
        input_scale=INPUT_GLOBAL_SCALE,
    ),
}
"""Those with scales of activations that are found with data, and given."""
