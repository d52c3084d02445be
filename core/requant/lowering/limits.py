"""What a module may cost. The service fills it from its settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModuleLimits:
    """Limits of one request: characters and operations of a module, elements of its constants; bytes and products of an
    evaluation."""

    characters: int = 1 << 20
    operations: int = 10_000
    nesting: int = 64
    constant_elements: int = 1 << 20
    evaluation_bytes: int = 256 << 20
    evaluation_products: int = 1 << 28
