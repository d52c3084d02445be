"""`quant_method` auto-round and gptq: the GPTQ layout.

Source: auto-round 0.15.1, `_build_quantization_config` (`compressors/model_free.py`) and the formats that its loaders
take (`inference/backend.py`): auto_round:auto_gptq has zero points of version 1, auto_round of version 2. Asymmetric
codes are written in version 2, which transformers loads; auto-round itself writes them in version 1 and names version
2, and what it writes is read wrongly. `gptq` is read only: AutoGPTQ and GPTQModel, `checkpoint_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from requant.checkpoint.profiles import AUTO_ROUND
from requant.checkpoint.quantization_config.members import member
from requant.checkpoint.scheme import NOT_LINEAR, OF_TORCH, Members, Scheme, group_of, options_of
from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, excerpt

_PACKING = {1: "auto_round:auto_gptq", 2: "auto_round"}
_WHOLE_ROWS = -1
_PLAIN_BITS = 16


def _scheme(bits: int) -> Callable[[str, list[str]], Scheme]:
    def scheme(name: str, options: list[str]) -> Scheme:
        chosen = options_of(name, options, ("group", "channel", "asymmetric"))
        symmetric = "asymmetric" not in chosen
        weight_format = Gptq(bits, symmetric, group_of(name, chosen, 128), version=1 if symmetric else 2)

        def config(targets: Sequence[str], ignore: Sequence[str], left: Sequence[str]) -> Members:
            members: Members = {
                "quant_method": "auto-round",
                "packing_format": _PACKING[weight_format.version],
                "bits": bits,
                "group_size": weight_format.group or _WHOLE_ROWS,
                "sym": symmetric,
                "data_type": "int",
                "iters": 0,
                "autoround_version": AUTO_ROUND.version,
            }
            plain = {module: {"bits": _PLAIN_BITS, "data_type": "float"} for module in left}
            return {**members, "extra_config": plain} if plain else members

        shared = f"group of {weight_format.group}" if weight_format.group else "row"
        # vLLM 0.33, `INCConfig`: SUPPORTED_FORMATS has version 1 alone.
        with_zero_points = "" if symmetric else ", with zero points, which transformers loads and vLLM does not"
        return Scheme(
            name,
            f"{bits}-bit integers in the layout of GPTQ, one f16 scale per {shared}{with_zero_points}",
            (AUTO_ROUND.name,),
            False,
            lambda profile: weight_format,
            config,
            NOT_LINEAR,
            OF_TORCH,
        )

    return scheme


PRESETS = {f"GPTQ_W{bits}A16": _scheme(bits) for bits in (8, 4, 2)}


def stored_formats(members: Mapping[str, Any]) -> tuple[dict[str, WeightFormat], WeightFormat]:
    """Return how weights are stored, for the modules that config.json names and for all others.

    Raises CheckpointError for what is not read.
    """
    extra = member(members, "extra_config", dict) or {}
    own = {module: member(extra, module, dict, "quantization_config.extra_config") or {} for module in extra}
    found = {
        module: _stored_format({**members, **each}) for module, each in own.items() if each.get("bits") != _PLAIN_BITS
    }
    return found, _stored_format(members)


def _stored_format(members: Mapping[str, Any]) -> WeightFormat:
    bits, group = members.get("bits"), members.get("group_size", 128)
    if isinstance(bits, bool) or not isinstance(bits, int):
        raise CheckpointError(f"bits is {excerpt(str(bits))}; expected an integer")
    if isinstance(group, bool) or not isinstance(group, int) or (group < 1 and group != _WHOLE_ROWS):
        raise CheckpointError(f"group_size is {excerpt(str(group))}; expected a positive integer, or -1")
    group = None if group == _WHOLE_ROWS else group
    packing = _packing(members)
    if packing == "awq":
        return Awq(group)
    symmetric = member(members, "sym", bool) is not False
    return Gptq(bits, symmetric, group, version=1 if packing == "gptq" else 2)


def _packing(members: Mapping[str, Any]) -> str:
    """Return the layout: gptq, gptq_v2 or awq."""
    if members.get("quant_method") == "gptq":
        stated, known = members.get("checkpoint_format", members.get("format", "gptq")), _OF_GPTQ
    else:
        stated, known = members.get("packing_format"), _OF_AUTO_ROUND
    if not isinstance(stated, str) or stated not in known:
        raise CheckpointError(
            f"weights packed as '{excerpt(str(stated))}' are not supported; expected {', '.join(known)}"
        )
    return known[stated]


_OF_GPTQ = {"gptq": "gptq", "gptq_v2": "gptq_v2"}
_OF_AUTO_ROUND = {
    "auto_round:auto_gptq": "gptq",
    "auto_round:gptq": "gptq",
    "auto_round": "gptq_v2",
    "auto_round:gptqmodel": "gptq_v2",
    "auto_round:auto_awq": "awq",
}
METHODS = ("gptq", "auto-round")
