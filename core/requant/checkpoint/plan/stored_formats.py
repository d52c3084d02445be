"""How the weights of a quantized checkpoint are stored, according to its config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from requant.checkpoint.name_patterns import ShellPatterns, check_linear
from requant.checkpoint.quantization_config import compressed_tensors, methods, model_optimizer
from requant.checkpoint.selection import ALL, Selection
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
    named: Mapping[str, WeightFormat | None]
    """By the names of modules. They go before the groups."""
    excluded: ShellPatterns | None = None
    """What has none. They go before the names."""

    def of(self, module: str) -> WeightFormat | None:
        """Return how a module's weight is stored, None if config.json does not describe it."""
        if self.excluded is not None and self.excluded.match(module):
            return None
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
    method = quantization.get("quant_method", compressed_tensors.METHOD if "config_groups" in quantization else None)
    known = (compressed_tensors.METHOD, *methods.METHODS, *model_optimizer.METHODS)
    if not isinstance(method, str) or method not in known:
        raise CheckpointError(
            f"quant_method '{excerpt(str(method))}' is not supported; expected one of {', '.join(known)}"
        )
    try:
        if method == compressed_tensors.METHOD:
            return StoredFormats(method, _compressed_tensors(quantization), {})
        if method in model_optimizer.METHODS:
            return _model_optimizer(quantization, modules)
        return StoredFormats(method, *_other_method(method, quantization, modules))
    except ParameterError as error:
        # A pattern: it was not given by the caller.
        raise CheckpointError(f"quantization_config: {error.detail}") from None


def _compressed_tensors(quantization: Members) -> Groups:
    named: list[tuple[Selection, WeightFormat]] = []
    for_all: list[tuple[Selection, WeightFormat]] = []
    for stated, weight_format in compressed_tensors.formats_of_groups(quantization):
        targets = stated or (ALL,)
        names = tuple(target for target in targets if not _is_class(target))
        if names:
            named.append((_of_modules(names), weight_format))
        if len(names) < len(targets):
            for_all.append((_EVERY, weight_format))
    return named + for_all


def _other_method(
    method: str, quantization: Members, modules: Collection[str]
) -> tuple[Groups, Mapping[str, WeightFormat]]:
    """Names of modules are auto-round's, 0.15.1, `_expand_regex_config` (`inference/utils.py`): what names no module is
    searched for."""
    named = dict(methods.formats_of_modules(quantization))
    every = methods.METHODS[method](quantization)
    searched = [
        (_of_modules((f"re:.*(?:{text})",)), weight_format)
        for text, weight_format in named.items()
        if text not in modules
    ]
    return [*searched, (_EVERY, every)], named


def _model_optimizer(quantization: Members, modules: Collection[str]) -> StoredFormats:
    stated = model_optimizer.formats_from_config(quantization)
    named = {}
    for module in modules if stated.layers else ():
        above = module
        while above and above not in stated.layers:
            above = above.rpartition(".")[0]
        if above:
            named[module] = stated.layers[above]
    every = () if stated.every is None else ((_EVERY, stated.every),)
    return StoredFormats(model_optimizer.METHOD, every, named, ShellPatterns(stated.excluded))


def _of_modules(patterns: tuple[str, ...]) -> Selection:
    selection = Selection(patterns, ())
    check_linear(patterns)
    return selection


def _is_class(target: str) -> bool:
    """Return whether an entry of `targets` is the class of modules rather than the name of one."""
    return not target.startswith("re:") and target[:1].isupper() and "." not in target


_EVERY = Selection((ALL,), ())
