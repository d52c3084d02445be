"""A scheme: a weight format for each profile, and its entry in config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.profiles import CHECKPOINT_PROFILES
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import ParameterError, UnknownNameError, excerpt
from requant.errors.names import entry_named

Members = dict[str, Any]
_MAX_DIGITS = 6
MakeConfig = Callable[[Sequence[str], Sequence[str], Sequence[str]], Members]
"""Returns the member `quantization_config` for targets, ignore and the modules that are not quantized."""


@dataclass(frozen=True)
class Scheme:
    """How weights are quantized and stored, and the entry for that in config.json.

    `name`: with its options. `profiles`: the names of those that it can be computed by, the default first. `fused`:
    whether the weights of a fused set (q/k/v_proj, gate/up_proj) share a scale. `always_ignored`: more entries of
    `ignore`, for modules that its loaders never take quantized. `metadata`: that of the files' headers.
    """

    name: str
    description: str
    profiles: tuple[str, ...]
    fused: bool
    make_format: Callable[[str], WeightFormat]
    make_config: MakeConfig
    always_ignored: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None

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
        return self.make_config(targets, ignore, left)


OF_TORCH = {"format": "pt"}
"""The metadata of files that transformers writes, and once would not load without."""

NOT_LINEAR = (r"re:(.*\.)?(\w*embed\w*|wte|wpe|lm_head|gate|router|shared_expert_gate)$",)
"""An entry of `ignore`: embeddings, the layer that makes the logits, and the routers of mixtures of experts, of which
vLLM and transformers build no quantized form from their own formats."""


def options_of(name: str, options: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Return the values of options by name: `group=32`, `asymmetric`. Raises UnknownNameError for others,
    ParameterError for one that is given twice."""
    found: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in known or (key == "group") != bool(value):
            shown = [f"{each}=SIZE" if each == "group" else each for each in known]
            listed = f"available: {', '.join(shown)}" if known else "it has none"
            raise UnknownNameError(f"scheme {excerpt(name)}: invalid option '{excerpt(option)}'; {listed}")
        if key in found:
            raise ParameterError(f"scheme {excerpt(name)}: option {key} is given twice")
        found[key] = value
    return found


def group_size(name: str, text: str) -> int:
    """Return a number of columns that is stated as an option. Raises ParameterError."""
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS or int(text) == 0:
        raise ParameterError(f"scheme {excerpt(name)}: the group size is '{excerpt(text)}', not a positive integer")
    return int(text)


def group_of(name: str, options: Mapping[str, str], otherwise: int) -> int | None:
    """Return the group size that `group` and `channel` state, None for whole rows. Raises ParameterError."""
    if "channel" in options:
        if "group" in options:
            raise ParameterError(f"scheme {excerpt(name)}: options group and channel exclude each other")
        return None
    return group_size(name, options["group"]) if "group" in options else otherwise


Preset = Callable[[str, list[str]], Scheme]
"""From the full name and its options to the scheme. Raises UnknownNameError for an option that it does not have,
ParameterError for options that are wrong otherwise."""
