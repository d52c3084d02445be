"""Weights that loaders fuse into one matrix, and that therefore need one scheme, and with NVFP4 one global scale.

With NVFP4 llm-compressor brings a set together in one shard, that of its first member, and gives it one global scale.
The names for which it does the one and the other are not the same: it brings `feed_forward.gate_proj` and `up_proj`
together and lets each keep its own scale, and it gives `cross_attn.q_proj`, `k_proj` and `v_proj` one scale only where
they are in one shard already.

Source: llm-compressor 0.14, `entrypoints/model_free/microscale.py` and `helpers.py`. There, members of one shard are
paired in the order of their names; here, by their parent. These differ where a shard holds parts of sets that are not
brought together, for which llm-compressor fails or takes members of two parents for a set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_WEIGHT = ".weight"


@dataclass(frozen=True, slots=True)
class _Kind:
    """`members`: the last parts of the modules' names, the first first. `moved`, `sharing`: for what stands before.

    `moved` matches `<parent>.`, `sharing` the parent with whatever stands before the member's name.
    """

    members: tuple[str, ...]
    moved: re.Pattern[str]
    sharing: re.Pattern[str]


_KINDS = (
    _Kind(
        ("q_proj", "k_proj", "v_proj"),
        re.compile(r".+\.(?:attn|attention|self_attn|self_attention)\."),
        re.compile(r".*(?:attn|attention)\."),
    ),
    _Kind(
        ("wq_a", "wkv_a_with_mqa"),
        re.compile(r".+\.(?:attn|attention|self_attn)\."),
        re.compile(r".*(?:attn|attention)\."),
    ),
    _Kind(("gate_proj", "up_proj"), re.compile(r".+\.(?:mlp|feed_forward)\."), re.compile(r".*mlp\.")),
    _Kind(("w1", "w3"), re.compile(r".+\."), re.compile(r".*")),
)


@dataclass(frozen=True, slots=True)
class FusedSet:
    """The weights of one parent that are fused, by the names of their tensors, the first first.

    `moved`: whether llm-compressor brings them into the shard of the first. `sharing`: whether it gives those in one
    shard one global scale, if all are there. `complete`: whether all members are in the checkpoint.
    """

    weights: tuple[str, ...]
    moved: bool
    sharing: bool
    complete: bool

    @property
    def name(self) -> str:
        """The modules, written once: `model.layers.0.mlp.gate_proj/up_proj`."""
        first, *others = (weight.removesuffix(_WEIGHT) for weight in self.weights)
        return "/".join([first, *(other.rpartition(".")[2] for other in others)])


def fused_sets(tensors: Iterable[str]) -> list[FusedSet]:
    """Return the sets among tensors, in the order of their first members."""
    found: dict[tuple[int, str], dict[str, str]] = {}
    for name in tensors:
        if not name.endswith(_WEIGHT):
            continue
        module = name.removesuffix(_WEIGHT)
        for number, kind in enumerate(_KINDS):
            for member in kind.members:
                if module.endswith(member):
                    found.setdefault((number, module.removesuffix(member)), {})[member] = name
    sets = []
    for (number, before), weights in found.items():
        kind = _KINDS[number]
        moved, sharing = kind.moved.fullmatch(before), kind.sharing.fullmatch(before)
        a_parent = not before or before.endswith(".")
        if (a_parent or sharing) and len(weights) > 1:
            ordered = tuple(weights[member] for member in kind.members if member in weights)
            whole = len(weights) == len(kind.members)
            sets.append(FusedSet(ordered, moved is not None and kind.members[0] in weights, sharing is not None, whole))
    return sets
