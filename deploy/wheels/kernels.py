"""What `make wheels` adds to the build of a wheel: compiled kernels, and the tag of the platform that they are for.

Hatchling runs it in each build (pyproject.toml). Without REQUANT_WHEEL_KERNELS it does nothing: the wheel is for every
platform, and its kernels are compiled by their first use.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The C library that numba's own wheels ask for at least; kernels ask for none.
_PLATFORM = "manylinux_2_17"


class PlatformWheel(BuildHookInterface[Any]):
    """Adds the kernels in the directory that REQUANT_WHEEL_KERNELS names. It is named after the machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Machine code belongs to a version of Python, as the wrappers do that Python calls."""
        if kernels := os.environ.get("REQUANT_WHEEL_KERNELS"):
            python = f"cp{sys.version_info.major}{sys.version_info.minor}"
            build_data["pure_python"] = False
            build_data["tag"] = f"{python}-{python}-{_PLATFORM}_{Path(kernels).name}"
            build_data["force_include"][kernels] = "requant/machine_code"
