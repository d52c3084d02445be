"""What `ignore` leaves unquantized unless it is stated: the modules that loaders expect to be plain.

They are recognized by the parts of their names, as the recipes of llm-compressor and the models of transformers and
vLLM call them. A module whose name is not known counts as a linear layer of the language model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

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
    found = _role_and_entry(module)
    return None if found is None else found[0]


def default_entries(modules: Iterable[str]) -> tuple[str, ...]:
    """Return entries of `ignore` for the modules that have a role, by role and name.

    Each is a pattern for one part of a name, `re:.*\\bembed_tokens$`, so that it also matches where a loader puts
    another prefix before the name. Modules in towers have that of the tower, `re:.*\\bvisual\\b`.
    """
    roles = list(Role)
    found = {pair for pair in map(_role_and_entry, modules) if pair is not None}
    return tuple(entry for _, entry in sorted(found, key=lambda pair: (roles.index(pair[0]), pair[1])))


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
