"""What the environment says of machine code: where baked kernels are, and where compiled ones are kept."""

from __future__ import annotations

import os
from pathlib import Path

from requant.kernels.jit import baked
from requant.kernels.jit.cache_directory import CACHE_VARIABLE, CacheDirectoryError, cache_directory, named_directory
from requant.kernels.jit.sources import FOLDER

BAKED_VARIABLE = "REQUANT_BAKED_KERNELS"
"""The environment variable that names the directory of baked kernels. The container image sets it.
Without it, those that came with the package are used, if any did."""


def read_environment() -> None:
    """Use the kernels that `REQUANT_BAKED_KERNELS` names, and check the directory that `NUMBA_CACHE_DIR` names, with
    the folder for these kernels in it.

    Call it before kernels are imported. Raise CacheDirectoryError, naming the variable, for a directory in which others
    could have put their own machine code.
    """
    variable = BAKED_VARIABLE
    try:
        if directory := os.environ.get(BAKED_VARIABLE):
            baked.use_baked(Path(directory))
        variable = CACHE_VARIABLE
        if named_directory() is not None and baked.in_use is None:
            cache_directory(FOLDER)
    except CacheDirectoryError as error:
        raise CacheDirectoryError(f"{variable}: {error}") from error
