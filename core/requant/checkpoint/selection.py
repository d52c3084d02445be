"""Selects the tensors of a checkpoint that are quantized.

Source: compressed-tensors 0.20.0, `match_quantizable_tensors` and `match_name` (`utils/match.py`), as llm-compressor
0.14 calls them.

By default `ignore` has the modules that loaders expect to be plain. They are recognized by the parts of their names, as
the recipes of llm-compressor and the models of transformers and vLLM call them. A module whose name is not known counts
as a linear layer of the language model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from requant.checkpoint.name_patterns import NamePatterns
from requant.errors import ParameterError, excerpt
from requant.errors.cancellation import check_cancelled

DEFAULT_ENTRY = "default"
"""As an entry of `ignore`: the entries that `default_entries` returns for the modules of the model."""

DEFAULT_IGNORE = (DEFAULT_ENTRY,)


class Role(StrEnum):
    """The role of a module that is usually left as it is."""

    TOWER = "vision and audio towers"
    EMBEDDING = "embeddings"
    HEAD = "output layers"
    ROUTER = "expert routers"
    NORM = "norms"
    CONVOLUTION = "convolutions"


_ANYWHERE = {
    Role.TOWER: r"visual\w*|vision\w*|vit_\w+|vpm|img_processor|image_(?:encoder|model|tower|proj\w*)|audio\w*|"
    r"speech\w*|(?:multi_?modal|mm|modality)_proj\w*|patch_merger|resampler|connector",
    Role.HEAD: r"lm_heads?|embed_out",
    Role.EMBEDDING: r"embeddings?|embed_\w+|\w+_(?:embed|embedding|embeddings|embedder)",
    Role.ROUTER: r"router",
}
"""A module has the role if one part of its name is such."""

_LAST = {
    Role.EMBEDDING: r"\w*embed\w*|wte|wpe|shared|relative_attention_bias",
    Role.HEAD: r"head|score|classifier|qa_outputs|output_layer",
    Role.ROUTER: r"gate|wg|shared_experts?_gate",
    Role.NORM: r"\w*norm[0-9]*|norm_\w+|ln[0-9]*|ln_\w+|bn[0-9]*",
    Role.CONVOLUTION: r"\w*conv(?:[0-9]\w*)?",
}
"""Or if the last part is such."""

_WHOLE = {
    Role.HEAD: r"(?:\w+\.)?(?:output|proj_out)",
    Role.TOWER: r"mlp1\.[0-9]+",
}
"""Or if the name is such."""


MAX_CHARACTERS = 1024
"""Longer names have no role: a client-supplied one could make `re` go back often."""


def _compiled(patterns: dict[Role, str]) -> list[tuple[Role, re.Pattern[str]]]:
    return [(role, re.compile(pattern, re.IGNORECASE)) for role, pattern in patterns.items()]


_PATTERNS_ANYWHERE, _PATTERNS_LAST, _PATTERNS_WHOLE = map(_compiled, (_ANYWHERE, _LAST, _WHOLE))


def role_of(module: str) -> Role | None:
    """Return the role of a module by its name; None for a linear layer to quantize."""
    role_and_entry = _role_and_entry(module)
    return None if role_and_entry is None else role_and_entry[0]


def default_entries(modules: Iterable[str]) -> tuple[str, ...]:
    """Return entries of `ignore` for the modules that have a role, by role and name.

    Each is a pattern for one part of a name, `re:.*\\bembed_tokens$`, so that it also matches where a loader puts
    another prefix before the name. Modules in towers have that of the tower, `re:.*\\bvisual\\b`.
    """
    roles = list(Role)
    pairs = {pair for pair in map(_role_and_entry, modules) if pair is not None}
    return tuple(entry for _, entry in sorted(pairs, key=lambda pair: (roles.index(pair[0]), pair[1])))


def _role_and_entry(module: str) -> tuple[Role, str] | None:
    if len(module) > MAX_CHARACTERS:
        return None
    parts = module.split(".")
    for role, pattern in _PATTERNS_ANYWHERE:
        for part in parts:
            if pattern.fullmatch(part):
                return role, f"re:.*\\b{part}$" if part is parts[-1] else f"re:.*\\b{part}\\b"
    for role, pattern in _PATTERNS_LAST:
        if pattern.fullmatch(parts[-1]):
            return role, f"re:.*\\b{parts[-1]}$"
    for role, pattern in _PATTERNS_WHOLE:
        if pattern.fullmatch(module):
            return role, module
    return None


ALL = "Linear"
"""As an entry of `targets`: every weight. Modules have no classes in a checkpoint."""


class SkipReason(StrEnum):
    """Why a tensor is not quantized."""

    NOT_A_WEIGHT = "not named .weight"
    NORM = "of a module whose name ends in norm"
    NOT_TARGETED = "not in targets"
    IGNORED = "in ignore"


class Selection:
    """The choice that `targets` and `ignore` make."""

    def __init__(self, targets: Sequence[str], ignore: Sequence[str]) -> None:
        self._order = {entry: number for number, entry in reversed([*enumerate(targets or (ALL,))])}
        self._targets = _Patterns([text for text in targets if text != ALL], "targets")
        self._ignore = _Patterns(ignore, "ignore")

    def target_of(self, module: str) -> str | None:
        """Return the first entry of `targets` that means a module, None where none does."""
        named = self._targets.first(module)
        if ALL not in self._order:
            return named
        return ALL if named is None or self._order[ALL] < self._order[named] else named

    def skip_reason(self, tensor: str) -> SkipReason | None:
        """Return why a tensor is not quantized; None if it is."""
        module, _, parameter = tensor.rpartition(".")
        if parameter != "weight" or not module:
            return SkipReason.NOT_A_WEIGHT
        targeted = self.target_of(module) is not None
        ignored = self._ignore.first(module) is not None
        if module.endswith("norm"):
            return SkipReason.NORM
        if not targeted:
            return SkipReason.NOT_TARGETED
        return SkipReason.IGNORED if ignored else None

    @property
    def without_match(self) -> set[str]:
        """The entries that no module of all those asked for so far matches."""
        return (self._targets.without_match - self._ignore.matched) | (
            self._ignore.without_match - self._targets.matched
        )


def with_default_entries(
    ignore: Sequence[str], targets: Sequence[str], always: Sequence[str], tensors: Iterable[str]
) -> tuple[str, ...]:
    """Return `ignore` with the entries that `default` stands for in its place at the end, if it is among them.

    Those are only for modules that would be quantized without them: by `targets`, the other entries, and `always`.
    """
    stated = tuple(entry for entry in ignore if entry != DEFAULT_ENTRY)
    if len(stated) == len(ignore):
        return stated
    selection = Selection(targets, (*stated, *always))
    modules = (name.removesuffix(".weight") for name in tensors if name.endswith(".weight"))
    chosen = (each for each in modules if role_of(each) is not None and selection.skip_reason(f"{each}.weight") is None)
    return (*stated, *default_entries(chosen))


class _Patterns:
    """The entries of one list. `matched`, `without_match`: those that were the first to match a module, and others."""

    def __init__(self, texts: Sequence[str], where: str) -> None:
        self._texts = tuple(dict.fromkeys(texts))
        self.without_match = {text for text in self._texts if not _single(text, where).match(_HEAD)}
        self.matched = set(self._texts) - self.without_match
        self._patterns = NamePatterns(self._texts)
        self._known: dict[str, str | None] = {}

    def first(self, module: str) -> str | None:
        """Return the first of the entries that means a module, None where none does."""
        if not self._texts:
            return None
        if module not in self._known:
            number = self._patterns.first(module)
            entry = self._known[module] = None if number is None else self._texts[number]
            if entry is not None:
                self.without_match.discard(entry)
                self.matched.add(entry)
        return self._known[module]


# An entry for an output layer is right for models that tie it to the embeddings and store none, too.
_HEAD = "lm_head"


def _single(text: str, where: str) -> NamePatterns:
    check_cancelled()
    try:
        text.encode()
        return NamePatterns((text,))
    except UnicodeEncodeError:
        raise ParameterError(f"{where}: '{excerpt(text)}' is not UTF-8, and names of modules are") from None
    except ParameterError as error:
        raise ParameterError(f"{where}: '{excerpt(text)}': {error.detail}") from None
