"""Selects the tensors of a checkpoint that are quantized.

Source: compressed-tensors 0.20.0, `match_quantizable_tensors` and `match_name` (`utils/match.py`), as llm-compressor
0.14 calls them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from requant.checkpoint.selection import DEFAULT_ENTRY, NamePatterns, default_entries, role_of
from requant.errors import ParameterError, excerpt
from requant.errors.cancellation import check_cancelled

ALL = "Linear"
"""As an entry of `targets`: every weight. Modules have no classes in a checkpoint."""


class Kept(StrEnum):
    """Why a tensor is not quantized."""

    NOT_A_WEIGHT = "not named .weight"
    NORM = "of a module whose name ends in norm"
    NOT_TARGETED = "not in targets"
    IGNORED = "in ignore"


class Selection:
    """The choice that `targets` and `ignore` make."""

    def __init__(self, targets: Sequence[str], ignore: Sequence[str]) -> None:
        self._everything = not targets or ALL in targets
        self._targets = _Patterns([text for text in targets if text != ALL], "targets")
        self._ignore = _Patterns(ignore, "ignore")

    def kept(self, tensor: str) -> Kept | None:
        """Return why a tensor is not quantized; None if it is."""
        module, _, parameter = tensor.rpartition(".")
        if parameter != "weight" or not module:
            return Kept.NOT_A_WEIGHT
        targeted = self._targets.match(module) or self._everything
        ignored = self._ignore.match(module)
        if module.endswith("norm"):
            return Kept.NORM
        if not targeted:
            return Kept.NOT_TARGETED
        return Kept.IGNORED if ignored else None

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
    found = (each for each in modules if role_of(each) is not None and selection.kept(f"{each}.weight") is None)
    return (*stated, *default_entries(found))


class _Patterns:
    """The entries of one list. `matched`, `without_match`: those that were the first to match a module, and others."""

    def __init__(self, texts: Sequence[str], where: str) -> None:
        self._texts = tuple(dict.fromkeys(texts))
        self.without_match = {text for text in self._texts if not _single(text, where).match(_HEAD)}
        self.matched = set(self._texts) - self.without_match
        self._patterns = NamePatterns(self._texts)
        self._known: dict[str, bool] = {}

    def match(self, module: str) -> bool:
        """Return whether one of the entries means a module."""
        if not self._texts:
            return False
        known = self._known.get(module)
        if known is None:
            found = self._patterns.first(module)
            known = self._known[module] = found is not None
            if found is not None:
                self.without_match.discard(self._texts[found])
                self.matched.add(self._texts[found])
        return known


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
