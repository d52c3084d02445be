"""Every kernel, imported: what is defined registers itself."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import core.kernels
from core.kernels.jit.compilation import compile_kernels, start_compilation
from core.kernels.jit.jit import came_from_cache, recompile_kernels

__all__ = ["came_from_cache", "compile_kernels", "recompile_kernels", "start_compilation"]

for _module in pkgutil.walk_packages(core.kernels.__path__, "core.kernels."):
    # Programs are run, not imported.
    if not _module.name.startswith("core.kernels.jit."):
        import_module(_module.name)
