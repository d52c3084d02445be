"""Modules of requests, read within the stated limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.errors import LimitError, at
from service.runtime.settings import Settings

if TYPE_CHECKING:
    from core.lowering.module import Module


def read(text: str, settings: Settings, pointer: str) -> Module:
    """Read the module in the field at `pointer`. Raises what `core.lowering.module.read_module` does."""
    from core.lowering.limits import ModuleLimits
    from core.lowering.module import read_module

    limit = settings.max_module_bytes
    with at(pointer):
        if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
            raise LimitError(f"the module has more than {limit} bytes", limit=limit)
        limits = ModuleLimits(
            characters=limit,
            operations=settings.max_module_operations,
            constant_elements=settings.max_module_constants,
            evaluation_bytes=settings.max_evaluation_bytes,
            evaluation_products=settings.max_evaluation_products,
        )
        return read_module(text, limits)
