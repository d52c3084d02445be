"""How the weights of a quantized checkpoint are stored, according to its config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from requant.checkpoint.name_patterns import NamePatterns, ShellPatterns, check_linear
from requant.checkpoint.quantization_config import compressed_tensors, methods, model_optimizer, quark, torchao
from requant.checkpoint.selection import ALL, Role, role_of
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, ParameterError, excerpt

Members = Mapping[str, Any]
Formats = Sequence[tuple[str, WeightFormat | None]]
"""By a name of a module, or `re:` and an expression, in the order in which they count. None: not quantized."""


@dataclass(frozen=True, slots=True)
class StoredFormats:
    """The formats of a checkpoint. `name`: of the method, for messages.

    `patterns`, `formats`: by the modules for which they are stated, of which the first counts. `embeddings`: of modules
    that are named like one. `every`: of all others. `excluded`: what has none, before all these.
    """

    name: str
    patterns: NamePatterns
    formats: Sequence[WeightFormat | None]
    embeddings: WeightFormat | None
    every: WeightFormat | None
    excluded: ShellPatterns | None = None

    def of(self, module: str) -> WeightFormat | None:
        """Return how a module's weight is stored, None if config.json does not describe it."""
        if self.excluded is not None and self.excluded.match(module):
            return None
        number = self.patterns.first(module)
        if number is not None:
            return self.formats[number]
        if self.embeddings is not None and role_of(module) is Role.EMBEDDING:
            return self.embeddings
        return self.every


def stored_formats(quantization: Members, modules: Collection[str], metadata: torchao.Metadata = ()) -> StoredFormats:
    """Return the formats that `quantization_config` states. Raises CheckpointError for unsupported ones.

    `modules`: those of the checkpoint. `metadata`: of its files, in which torchao states them.
    """
    method = quantization.get("quant_method", compressed_tensors.METHOD if "config_groups" in quantization else None)
    known = (compressed_tensors.METHOD, *methods.METHODS, quark.METHOD, torchao.METHOD, *model_optimizer.METHODS)
    if not isinstance(method, str) or method not in known:
        raise CheckpointError(
            f"quant_method '{excerpt(str(method))}' is not supported; expected one of {', '.join(known)}"
        )
    try:
        if method == compressed_tensors.METHOD:
            return _compressed_tensors(quantization)
        if method == quark.METHOD:
            quark.check(quantization)
            stated = list(quark.formats_of_patterns(quantization))
            return _stored_formats(method, stated, quark.format_of_others(quantization))
        if method == torchao.METHOD:
            return _stored_formats(method, list(torchao.formats_of_metadata(metadata)), None)
        if method in model_optimizer.METHODS:
            return _model_optimizer(quantization, modules)
        return _other_method(method, quantization, modules)
    except ParameterError as error:
        # A pattern: it was not given by the caller.
        raise CheckpointError(f"quantization_config: {error.detail}") from None


def _stored_formats(
    method: str, stated: Formats, every: WeightFormat | None, embeddings: WeightFormat | None = None
) -> StoredFormats:
    patterns = [pattern for pattern, _ in stated]
    check_linear(patterns)
    return StoredFormats(method, NamePatterns(patterns), [each for _, each in stated], embeddings, every)


_EMBEDDING = "Embedding"


def _compressed_tensors(quantization: Members) -> StoredFormats:
    """Names count before expressions, and those before classes; the first by the alphabet, not by the order of groups.

    Source: compressed-tensors 0.20.0, `match_targets` (`utils/match.py`) and `apply_quantization_config`
    (`quantization/lifecycle/apply.py`). A target that two groups have is that of the second.
    """
    by_target: dict[str, WeightFormat] = {}
    for targets, weight_format in compressed_tensors.formats_of_groups(quantization):
        by_target |= dict.fromkeys(targets or (ALL,), weight_format)
    ordered = sorted(by_target.items(), key=lambda each: ("re:" in each[0], each[0]))
    classes = {target: weight_format for target, weight_format in ordered if _is_class(target)}
    embeddings = classes.pop(_EMBEDDING, None)
    # Of the classes of modules only these two are known by a name. Without `Linear` another stands for all.
    every = classes.get(ALL, next(iter(classes.values()), None))
    named = [each for each in ordered if not _is_class(each[0])]
    return _stored_formats(compressed_tensors.METHOD, named, every, embeddings)


def _other_method(method: str, quantization: Members, modules: Collection[str]) -> StoredFormats:
    """Names of modules are auto-round's, 0.15.1, `_expand_regex_config` (`inference/utils.py`): what names no module is
    searched for."""
    named = dict(methods.formats_of_modules(quantization))
    every = methods.METHODS[method](quantization)
    names = [(name, weight_format) for name, weight_format in named.items() if name in modules]
    searched = [(f"re:.*(?:{text})", weight_format) for text, weight_format in named.items() if text not in modules]
    return _stored_formats(method, [*names, *searched, *methods.formats_of_expressions(quantization)], every)


def _model_optimizer(quantization: Members, modules: Collection[str]) -> StoredFormats:
    stated = model_optimizer.formats_from_config(quantization)
    named = []
    for module in modules if stated.layers else ():
        above = module
        while above and above not in stated.layers:
            above = above.rpartition(".")[0]
        if above:
            named.append((module, stated.layers[above]))
    formats = _stored_formats(model_optimizer.METHOD, named, stated.every)
    return replace(formats, excluded=ShellPatterns(stated.excluded))


def _is_class(target: str) -> bool:
    """Return whether an entry of `targets` is the class of modules rather than the name of one."""
    return not target.startswith("re:") and target[:1].isupper() and "." not in target
