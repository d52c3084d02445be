"""A scheme: a weight format for each profile, and its entry in config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from requant.checkpoint.profiles import CHECKPOINT_PROFILES
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import ParameterError, UnknownNameError, excerpt
from requant.errors.names import entry_named, not_among

Members = dict[str, Any]
_MAX_GROUP = 1 << 20
GROUP_OPTION = "group=SIZE"
MSE_OPTION = "mse"
RULE_OPTION = "rule=RULE"
_RULE = "rule="
MakeConfig = Callable[[Sequence[Members], Sequence[str], Sequence[str]], Members]
"""Returns the member `quantization_config` for groups of modules, ignore and the modules that are not quantized."""

MakeFiles = Callable[[Sequence[str]], Mapping[str, bytes]]
"""Returns small files by name, for the modules that are not quantized."""


@dataclass(frozen=True)
class Scheme:
    """How weights are quantized and stored, and the entry for that in config.json.

    `name`: with its options. `profiles`: the names of those that it can be computed by, the default first. `fused`:
    whether the weights of a fused set (q/k/v_proj, gate/up_proj) share a scale. `always_ignored`: more entries of
    `ignore`, for modules that its loaders never take quantized. `metadata`: that of the files' headers. `group`: what
    config.json says of a group of modules, without its targets; None where it cannot say it of a part of the modules.
    `input_scale`: the parameter that a module has for its inputs, which is found with data; None for none.
    `make_files`: what its loaders look for beside config.json.
    """

    name: str
    description: str
    profiles: tuple[str, ...]
    fused: bool
    make_format: Callable[[str], WeightFormat]
    make_config: MakeConfig
    always_ignored: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None
    group: Mapping[str, Any] | None = None
    make_files: MakeFiles | None = None
    input_scale: str | None = None

    def format(self, profile: str) -> WeightFormat:
        """Return the weight format by a profile. Raises UnknownNameError, or ParameterError if it is for others."""
        entry_named(CHECKPOINT_PROFILES, profile, "checkpoint profile")
        if profile not in self.profiles:
            raise ParameterError(
                f"scheme {self.name} is not defined by profile {profile}; available: {', '.join(self.profiles)}"
            )
        return self.make_format(profile)

    def quantization_config(self, targets: Sequence[str], ignore: Sequence[str], left: Sequence[str] = ()) -> Members:
        """Return the member `quantization_config` of config.json.

        `left`: the names of all modules with a weight of two dimensions that is not quantized.
        """
        return quantization_config(((self, targets),), ignore, left)

    def settings(self, left: Sequence[str]) -> Mapping[str, bytes]:
        """Return the files that say besides how weights are quantized, by name."""
        return {} if self.make_files is None else self.make_files(left)


def quantization_config(
    groups: Sequence[tuple[Scheme, Sequence[str]]], ignore: Sequence[str], left: Sequence[str] = ()
) -> Members:
    """Return the member `quantization_config` of config.json for schemes, each with its targets.

    There is one scheme, or each of them has a `group`. `left`: as for one.
    """
    stated = [{**(scheme.group or {}), "targets": list(targets)} for scheme, targets in groups]
    return groups[0][0].make_config(stated, ignore, left)


OF_TORCH = {"format": "pt"}
"""The metadata of files that transformers writes, and once would not load without."""

NOT_LINEAR = (r"re:(.*\.)?(\w*embed\w*|wte|wpe|lm_head|gate|router|shared_expert_gate)$",)
"""An entry of `ignore`: embeddings, the layer that makes the logits, and the routers of mixtures of experts, of which
vLLM and transformers build no quantized form from their own formats."""


class Options(NamedTuple):
    """What the options after a scheme's name say.

    `granularity`: what shares a scale, `group`, `channel` or `tensor`, None where it is not stated. `group`: the
    columns of a group, None where that is not the granularity. `mse`: whether scales are searched. `rule`: whose scales
    those of blocks are, None for those of the scheme's library.
    """

    granularity: str | None = None
    group: int | None = None
    asymmetric: bool = False
    mse: bool = False
    rule: str | None = None


def parse_options(name: str, options: Sequence[str], known: Sequence[str]) -> Options:
    """Return what the options of a scheme say. `name`: with them. `known`: `group=SIZE`, `channel`, `tensor`,
    `asymmetric`, `mse`, `rule=RULE`, those that the scheme has.

    Raises UnknownNameError for others, ParameterError for a group size that is none, for an option that is given twice,
    for two granularities, and for scales that are searched by a rule.
    """
    where = f"scheme {excerpt(name)}"
    rules = [option for option in options if option.startswith(_RULE)]
    granularities = [option for option in options if option not in ("asymmetric", MSE_OPTION, *rules)]
    for option in options:
        general = GROUP_OPTION if option.startswith("group=") else RULE_OPTION if option in rules else option
        if general not in known:
            fault = not_among("scheme option", option, known) if known else "not an option; there are none"
            raise UnknownNameError(f"{where}: '{excerpt(option)}' is {fault}")
    if len(set(options)) < len(options):
        twice = next(option for option in options if options.count(option) > 1)
        raise ParameterError(f"{where}: option {excerpt(twice)} is given twice")
    if len(granularities) > 1:
        listed = " and ".join(map(excerpt, granularities[:2]))
        raise ParameterError(f"{where}: options {listed} exclude each other")
    if len(rules) > 1 or (rules and MSE_OPTION in options):
        raise ParameterError(f"{where}: scales are those of one rule, or searched (mse); choose one")
    granularity, equals, size = "".join(granularities).partition("=")
    group = _group_size(where, size) if equals else None
    rule = rules[0].removeprefix(_RULE) if rules else None
    return Options(granularity or None, group, "asymmetric" in options, MSE_OPTION in options, rule)


def _group_size(where: str, text: str) -> int:
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
    if not 1 <= size <= _MAX_GROUP:
        raise ParameterError(f"{where}: the group size is '{excerpt(text)}', not an integer from 1 to {_MAX_GROUP}")
    return size


Preset = Callable[[str, list[str]], Scheme]
"""From the full name and its options to the scheme. Raises UnknownNameError for an option that it does not have,
ParameterError for options that are wrong otherwise."""
