"""The machine that kernels are compiled for: this one, or another whose kernels are compiled here.

Import it before numba where another machine is meant: nothing here imports numba.
"""

from __future__ import annotations

import os
import platform

MACHINE_VARIABLE = "REQUANT_TARGET_MACHINE"
"""The environment variable that names another machine. NUMBA_CPU_NAME and NUMBA_CPU_FEATURES then say which CPU."""

# What Windows and macOS call them.
_NAMES = {"AMD64": "x86_64", "ARM64": "aarch64", "arm64": "aarch64"}


def machine_named(name: str) -> str:
    """Return a machine's name as Linux and LLVM have it."""
    return _NAMES.get(name, name)


HOST_MACHINE = machine_named(platform.machine())
"""The architecture that this process runs on, such as `x86_64`."""

TARGET_MACHINE = machine_named(os.environ.get(MACHINE_VARIABLE) or HOST_MACHINE)
"""The architecture that kernels are compiled for: `x86_64` or `aarch64`, or one of which nothing is known here."""

CROSS_COMPILES = TARGET_MACHINE != HOST_MACHINE
"""Whether what is compiled here runs elsewhere."""
