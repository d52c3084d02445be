"""Make every kernel ready, so that no request waits for a compiler."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import core.kernels
from core.kernels.jit.jit import came_from_cache, compile_kernels, recompile_kernels

__all__ = ["came_from_cache", "compile_kernels", "recompile_kernels"]

# All of them, for the kernels in them, which register themselves.
for _module in pkgutil.walk_packages(core.kernels.__path__, "core.kernels."):
    import_module(_module.name)
