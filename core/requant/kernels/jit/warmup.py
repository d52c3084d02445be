"""Import every module with kernels; kernels register themselves.

`python -m requant.kernels.jit.warmup` compiles what is not in the cache, and reports its progress.
"""

from __future__ import annotations

import os
import pkgutil
from importlib import import_module

import requant.kernels
from requant.kernels.jit.compilation import compile_kernels, load_kernels, reporting, start_compilation
from requant.kernels.jit.jit import recompile_kernels

__all__ = ["compile_kernels", "load_kernels", "recompile_kernels", "start_compilation"]

for _module in pkgutil.walk_packages(requant.kernels.__path__, "requant.kernels."):
    # Without the programs among them.
    if not _module.name.startswith("requant.kernels.jit."):
        import_module(_module.name)

if __name__ == "__main__":
    if not start_compilation(os.cpu_count() or 1).complete:
        compile_kernels(reporting("Compiling kernels"))
