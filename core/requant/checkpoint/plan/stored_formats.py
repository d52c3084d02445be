"""How the weights of a quantized checkpoint are stored, according to its config.json.

Sources: compressed-tensors 0.20.0, `QuantizationConfig` (`quantization/quant_config.py`); transformers 5.23,
`utils/quantization_config.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.name_patterns import check_linear
from requant.checkpoint.quantization_config import awq, fine_grained_fp8, gptq, nf4
from requant.checkpoint.quantization_config.block_sizes import check_block
from requant.checkpoint.quantization_config.members import member, strings
from requant.checkpoint.selection import ALL, Selection
from requant.checkpoint.weights.compressed_tensors.float8 import FloatQuantized
from requant.checkpoint.weights.compressed_tensors.grouping import CHANNEL, TENSOR, Grouping, blocks_of, groups_of
from requant.checkpoint.weights.compressed_tensors.integers import IntegerWeight, IntQuantized, PackQuantized
from requant.checkpoint.weights.compressed_tensors.mx import MxWeight
from requant.checkpoint.weights.compressed_tensors.nvfp4 import Nvfp4Weight
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, ParameterError, excerpt

Members = Mapping[str, Any]
Groups = Sequence[tuple[Selection, WeightFormat]]


@dataclass(frozen=True, slots=True)
class StoredFormats:
    """The formats of a checkpoint. `name`: of the method, for messages."""

    name: str
    groups: Groups
    """By the modules for which they are stated; the last is for all others if it is for `Linear`."""
    named: Mapping[str, WeightFormat]
    """By the names of modules. They go before the groups."""

    def of(self, module: str) -> WeightFormat | None:
        """Return how a module's weight is stored, None if config.json does not describe it."""
        if module in self.named:
            return self.named[module]
        for selection, weight_format in self.groups:
            if selection.skip_reason(f"{module}.weight") is None:
                return weight_format
        return None


def stored_formats(quantization: Members, modules: Collection[str]) -> StoredFormats:
    """Return the formats that `quantization_config` states. Raises CheckpointError for unsupported ones.

    `modules`: those of the checkpoint.
    """
    method = quantization.get("quant_method", "compressed-tensors" if "config_groups" in quantization else None)
    if not isinstance(method, str) or method not in _METHODS:
        raise CheckpointError(
            f"quant_method '{excerpt(str(method))}' is not supported; expected one of {', '.join(_METHODS)}"
        )
    try:
        return StoredFormats(method, *_METHODS[method](quantization, modules))
    except ParameterError as error:
        # A pattern: it was not given by the caller.
        raise CheckpointError(f"quantization_config: {error.detail}") from None


def _compressed_tensors(quantization: Members) -> Groups:
    transforms = member(quantization, "transform_config", dict) or {}
    if transforms.get("config_groups"):
        raise CheckpointError("the weights are rotated (transform_config), which cannot be undone")
    groups = member(quantization, "config_groups", dict)
    if not groups:
        raise CheckpointError("quantization_config has no config_groups, which define how the weights are stored")
    named: list[tuple[Selection, WeightFormat]] = []
    for_all: list[tuple[Selection, WeightFormat]] = []
    for name in groups:
        group = member(groups, name, dict, "quantization_config.config_groups") or {}
        place = f"quantization_config.config_groups.{excerpt(name)}"
        weights = member(group, "weights", dict, place)
        if weights is None:
            continue
        layout = member(group, "format", str, place) or member(quantization, "format", str)
        weight_format = _compressed_tensors_format(str(layout), weights, f"{place}.weights")
        targets = strings(group, "targets", place) or (ALL,)
        names = tuple(target for target in targets if not _is_class(target))
        if names:
            named.append((_of_modules(names), weight_format))
        if len(names) < len(targets):
            for_all.append((Selection((ALL,), ()), weight_format))
    return named + for_all


def _gptq(quantization: Members, modules: Collection[str]) -> tuple[Groups, Mapping[str, WeightFormat]]:
    """As auto-round 0.15.1, `_expand_regex_config` (`inference/utils.py`): what names no module is searched for."""
    named, every = gptq.stored_formats(quantization)
    searched = [
        (_of_modules((f"re:.*(?:{text})",)), weight_format)
        for text, weight_format in named.items()
        if text not in modules
    ]
    return [*searched, (_EVERY, every)], named


def _of_modules(patterns: tuple[str, ...]) -> Selection:
    selection = Selection(patterns, ())
    check_linear(patterns)
    return selection


def _is_class(target: str) -> bool:
    """Return whether an entry of `targets` is the class of modules rather than the name of one."""
    return not target.startswith("re:") and target[:1].isupper() and "." not in target


def _compressed_tensors_format(layout: str, weights: Members, place: str) -> WeightFormat:
    if weights.get("actorder") in ("group", "activation"):
        raise CheckpointError("groups ordered by activations (actorder, weight_g_idx) are not supported")
    bits, kind = member(weights, "num_bits", int, place), member(weights, "type", str, place)
    symmetric = member(weights, "symmetric", bool, place) is not False
    if layout not in _LAYOUTS or kind is None or kind not in _LAYOUTS[layout]:
        raise CheckpointError(
            f"format '{excerpt(layout)}' with weights of type '{excerpt(str(kind))}' is not supported; expected one of "
            f"{', '.join(_LAYOUTS)}, with a type that it can hold"
        )
    if bits is None or not 1 <= bits <= 8:
        raise CheckpointError(f"num_bits is {bits}; expected 1 to 8")
    return _LAYOUTS[layout][kind](bits, symmetric, _grouping(weights, place))


def _grouping(weights: Members, place: str) -> Grouping:
    size = member(weights, "group_size", int, place)
    strategy = member(weights, "strategy", str, place) or ("channel" if size == -1 else "tensor")
    if strategy == "tensor":
        return TENSOR
    if strategy == "channel":
        return CHANNEL
    if strategy in ("group", "tensor_group"):
        if size is None or size < 1:
            raise CheckpointError(f"{place}.group_size is {size}; expected a positive integer")
        return groups_of(size)
    if strategy == "block":
        block: Any = weights.get("block_structure")
        check_block(block, "block_structure")
        return blocks_of(*block)
    raise CheckpointError(
        f"strategy '{excerpt(str(strategy))}' is not supported; expected tensor, channel, group or block"
    )


def _integers(kind: type[IntegerWeight]) -> Callable[[int, bool, Grouping], WeightFormat]:
    return lambda bits, symmetric, grouping: kind(grouping, _ROUNDS, symmetric, bits)


def _floats(
    bits: int, make: Callable[[Grouping], WeightFormat], expected: Grouping | None = None
) -> Callable[[int, bool, Grouping], WeightFormat]:
    def made(stated: int, symmetric: bool, grouping: Grouping) -> WeightFormat:
        if stated != bits or not symmetric or grouping != (expected or grouping):
            raise CheckpointError(
                f"{stated}-bit floats{'' if symmetric else ' with zero points'} with strategy {grouping.strategy} and "
                "this group or block size are not supported"
            )
        return make(grouping)

    return made


_EVERY = Selection((ALL,), ())
# The profile matters for quantizing alone.
_ROUNDS = True
_FLOAT8 = _floats(8, lambda grouping: FloatQuantized(grouping, _ROUNDS))
_LAYOUTS: Mapping[str, Mapping[str, Callable[[int, bool, Grouping], WeightFormat]]] = {
    "int-quantized": {"int": _integers(IntQuantized)},
    "pack-quantized": {"int": _integers(PackQuantized)},
    "float-quantized": {"float": _FLOAT8},
    "naive-quantized": {"int": _integers(IntQuantized), "float": _FLOAT8},
    "nvfp4-pack-quantized": {"float": _floats(4, lambda _: Nvfp4Weight(), groups_of(16))},
    "mxfp4-pack-quantized": {"float": _floats(4, lambda _: MxWeight(4, _ROUNDS), groups_of(32))},
    "mxfp8-quantized": {"float": _floats(8, lambda _: MxWeight(8, _ROUNDS), groups_of(32))},
}
_METHODS: Mapping[str, Callable[[Members, Collection[str]], tuple[Groups, Mapping[str, WeightFormat]]]] = {
    "compressed-tensors": lambda quantization, _: (_compressed_tensors(quantization), {}),
    fine_grained_fp8.METHOD: lambda quantization, _: ([(_EVERY, fine_grained_fp8.stored_format(quantization))], {}),
    awq.METHOD: lambda quantization, _: ([(_EVERY, awq.stored_format(quantization))], {}),
    nf4.METHOD: lambda quantization, _: ([(_EVERY, nf4.stored_format(quantization))], {}),
    **dict.fromkeys(gptq.METHODS, _gptq),
}
