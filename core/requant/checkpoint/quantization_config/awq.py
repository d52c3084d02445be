"""`quant_method` awq: AWQ's GEMM layout.

Source: autoawq 0.2.9, `AwqConfig.to_transformers_dict` (`models/_config.py`); transformers 5.23.0, `AwqConfig`; vLLM
0.33.0, `AWQConfig` (`model_executor/layers/quantization/awq.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from requant.checkpoint.profiles import AUTOAWQ
from requant.checkpoint.quantization_config.members import member
from requant.checkpoint.scheme import NOT_LINEAR, OF_TORCH, Members, Scheme, group_of, options_of
from requant.checkpoint.weights.awq import Awq
from requant.errors import CheckpointError, excerpt

METHOD = "awq"
_WHOLE_ROWS = -1
_BITS = 4


def _scheme(name: str, options: list[str]) -> Scheme:
    weight_format = Awq(group_of(name, options_of(name, options, ("group", "channel")), 128))

    def config(targets: Sequence[str], ignore: Sequence[str], left: Sequence[str]) -> Members:
        return {
            "quant_method": METHOD,
            "version": "gemm",
            "bits": _BITS,
            "group_size": weight_format.group or _WHOLE_ROWS,
            "zero_point": True,
            "modules_to_not_convert": list(left),
        }

    shared = f"group of {weight_format.group}" if weight_format.group else "row"
    return Scheme(
        name,
        f"4-bit integers in the layout of AWQ's GEMM kernels, one f16 scale per {shared}, without AWQ's search",
        (AUTOAWQ.name,),
        False,
        lambda profile: weight_format,
        config,
        NOT_LINEAR,
        OF_TORCH,
    )


PRESETS = {"AWQ": _scheme}


def stored_format(members: Mapping[str, Any]) -> Awq:
    """Return how weights are stored. Raises CheckpointError for unsupported formats."""
    version = str(members.get("version", members.get("format", "gemm"))).lower()
    bits, group = members.get("bits", members.get("w_bit")), members.get("group_size", members.get("q_group_size"))
    if version != "gemm" or bits != _BITS or member(members, "zero_point", bool) is False:
        raise CheckpointError(
            f"AWQ weights of version '{excerpt(version)}', {excerpt(str(bits))} bits, zero_point "
            f"{members.get('zero_point')} are not supported; expected gemm, 4 bits, true"
        )
    if isinstance(group, bool) or not isinstance(group, int) or (group < 1 and group != _WHOLE_ROWS):
        raise CheckpointError(f"group_size is {excerpt(str(group))}; expected a positive integer, or -1")
    return Awq(None if group == _WHOLE_ROWS else group)
