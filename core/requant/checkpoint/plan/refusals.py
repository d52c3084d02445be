"""All reasons why a checkpoint cannot be converted, each with what to do instead, collected so that they can be fixed
together, and how messages name tensors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from requant.errors import DETAIL_LIMIT, CheckpointError, RequantError, excerpt

_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")


# What bitsandbytes stores beside a weight has names below that of the weight.
_OF_WEIGHT = re.compile(r"(?s:(.*))\.(weight\.(?:absmax|quant_map|nested_\w+|quant_state\.bitsandbytes__\w+))$")
# gpt-oss has two such tensors in place of one of several experts.
_OF_EXPERTS = re.compile(r"(?s:(.*(?:gate_up_proj|down_proj)))_(blocks|scales)$")


def parameter_of(name: str) -> tuple[str, str]:
    """Return the module and the parameter of a tensor: `a.b` and `weight_scale` of `a.b.weight_scale`."""
    if below := _OF_WEIGHT.match(name) or _OF_EXPERTS.match(name):
        return below[1], below[2]
    module, _, parameter = name.rpartition(".")
    return module, parameter


def without_numbers(name: str) -> str:
    """Return a name with `*` for each part that is a number: `model.layers.*.mlp.gate`."""
    return _NUMBER.sub("*", name)


def abbreviate(names: Collection[str], maximum: int = 3) -> str:
    """Return the first names, those that differ in numbers only as one, and how many there are."""
    patterns = list(dict.fromkeys(without_numbers(name) for name in names))
    if len(names) == 1:
        return excerpt(next(iter(names)))
    shown = ", ".join(excerpt(pattern) for pattern in patterns[:maximum])
    return f"{shown}{', ...' if len(patterns) > maximum else ''} ({len(names)})"


def ignore_patterns_for(modules: Iterable[str]) -> str:
    """Return entries of `ignore` that cover modules, by the last parts of their names."""
    lasts = list(dict.fromkeys(module.rpartition(".")[2] for module in modules))
    shown = ", ".join(f'"re:(.*\\.)?{re.escape(excerpt(last))}$"' for last in lasts[:6])
    return f"{shown}, ..." if len(lasts) > 6 else shown


OF_OUTPUT = "rename the tensor, or split the source's file with transformers (save_pretrained, max_shard_size)"
"""What to do about an output whose header cannot be written."""
BELOW = ""
"""In the place of what to do: it is in `advice`, once for all of a kind."""
MAX_SHOWN = 12
# More than can be shown: what follows is only counted.
_MAX_KINDS = 100
# For the first line, the last one and the ends of lines.
_ROOM_AROUND = 100


@dataclass(slots=True)
class _Kind:
    """Problems that differ in the numbers of their tensors alone: the first one, and how many there are."""

    first: CheckpointError
    count: int = 1


@dataclass(slots=True)
class Refusals:
    """The problems found so far. `advice`: what to do about them, shown below the list."""

    count: int = 0
    advice: list[str] = field(default_factory=list)
    _kinds: dict[tuple[str | None, str | None, str], _Kind] = field(default_factory=dict)

    def add(self, detail: str, instead: str, *, file: str | None = None, tensor: str | None = None) -> None:
        """Note a reason, and what to do instead."""
        self.count += 1
        if instead:
            detail = f"{detail}: {instead}"
        key = (file, tensor and without_numbers(tensor), detail)
        if (kind := self._kinds.get(key)) is not None:
            kind.count += 1
        elif len(self._kinds) < _MAX_KINDS:
            self._kinds[key] = _Kind(CheckpointError(detail, file=file, tensor=tensor))

    def add_error(
        self, error: RequantError, instead: str, *, file: str | None = None, tensor: str | None = None
    ) -> None:
        """Note an error that was raised, as one about a file and a tensor, and what to do instead."""
        self.add(error.detail, instead, file=file, tensor=tensor)

    def raise_any(self) -> None:
        """Raise CheckpointError if anything was noted: how much there is, and the first `MAX_SHOWN` kinds.

        Problems of one kind differ in the numbers of their tensors alone: those of the layers of a model.
        """
        if not self.count:
            return
        kinds = list(self._kinds.values())
        if self.count == 1:
            lines = [_line(kinds[0])]
        else:
            lines = [f"{self.count} problems:", *_fitting(kinds, self.count, sum(map(len, self.advice)))]
        first = kinds[0].first
        raise CheckpointError("\n".join([*lines, *self.advice]), file=first.file, tensor=first.tensor)


def _fitting(kinds: list[_Kind], count: int, others: int) -> list[str]:
    """Return the lines about the first kinds, each whole, that leave room in a message for `others` characters more.

    `count`: of all problems, those of further kinds included.
    """
    shown: list[str] = []
    room = DETAIL_LIMIT - others - _ROOM_AROUND
    for at, kind in enumerate(kinds):
        line = f"- {_line(kind)}"
        room -= len(line) + 1
        if at and (at == MAX_SHOWN or room < 0):
            return [*shown, f"- and {count} more"]
        shown.append(line)
        count -= kind.count
    return shown


def _line(kind: _Kind) -> str:
    first = kind.first
    place = [excerpt(name) for name in (first.file, first.tensor) if name]
    others = f" (and {kind.count - 1} like it)" if kind.count > 1 else ""
    return f"{', '.join(place)}{others}: {first.detail}" if place else first.detail
