"""Names of tensors: of which module they are, and of many, told briefly."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from requant.errors import excerpt

_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")


# What bitsandbytes stores beside a weight has names below that of the weight.
_OF_WEIGHT = re.compile(r"(?s:(.*))\.(weight\.(?:absmax|quant_map|nested_\w+|quant_state\.bitsandbytes__\w+))$")


def parameter_of(name: str) -> tuple[str, str]:
    """Return the module and the parameter of a tensor: `a.b` and `weight_scale` of `a.b.weight_scale`."""
    if below := _OF_WEIGHT.match(name):
        return below[1], below[2]
    module, _, parameter = name.rpartition(".")
    return module, parameter


def without_numbers(name: str) -> str:
    """Return a name with `*` for each part that is a number: `model.layers.*.mlp.gate`."""
    return _NUMBER.sub("*", name)


def some(names: Collection[str], most: int = 3) -> str:
    """Return the first names, those that differ in numbers only as one, and how many there are."""
    patterns = list(dict.fromkeys(without_numbers(name) for name in names))
    if len(names) == 1:
        return excerpt(next(iter(names)))
    shown = ", ".join(excerpt(pattern) for pattern in patterns[:most])
    return f"{shown}{', ...' if len(patterns) > most else ''} ({len(names)})"


def ignoring(modules: Iterable[str]) -> str:
    """Return entries of `ignore` that cover modules, by the last parts of their names."""
    lasts = list(dict.fromkeys(module.rpartition(".")[2] for module in modules))
    shown = ", ".join(f'"re:(.*\\.)?{re.escape(excerpt(last))}$"' for last in lasts[:6])
    return f"{shown}, ..." if len(lasts) > 6 else shown
