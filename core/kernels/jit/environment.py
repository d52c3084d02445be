"""What the environment says of machine code: where baked kernels are, and where compiled ones are kept."""

from __future__ import annotations

import os
from pathlib import Path

from core.kernels.jit.baked import use_baked
from core.kernels.jit.cache_directory import CACHE_VARIABLE, CacheDirectoryError, named_directory

BAKED_VARIABLE = "REQUANT_BAKED_KERNELS"
"""The environment variable that names the directory of baked kernels. The container image sets it."""


def read_environment() -> None:
    """Use the kernels that `REQUANT_BAKED_KERNELS` names, and check the directory that `NUMBA_CACHE_DIR` names.

    Call it before numba is imported. Raise CacheDirectoryError, naming the variable, for a directory in which others
    could have put their own machine code.
    """
    variable = BAKED_VARIABLE
    try:
        if baked := os.environ.get(BAKED_VARIABLE):
            use_baked(Path(baked))
        variable = CACHE_VARIABLE
        named_directory()
    except CacheDirectoryError as error:
        raise CacheDirectoryError(f"{variable}: {error}") from error
