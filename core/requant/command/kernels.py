"""The kernels of a command: chosen before they are imported, and compiled side by side when the cache has none."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from requant.errors import StorageError
from requant.kernels.jit.cache_directory import CacheDirectoryError

if TYPE_CHECKING:
    from requant.kernels.jit.jit import Kernel


def choose_kernels() -> None:
    """Read machine code from the image's kernels, if there are any. Call it before kernels are imported.

    Raise StorageError, naming the variable, for a directory in which others could have put their own machine code.
    """
    from requant.kernels.jit.environment import read_environment

    try:
        read_environment()
    except CacheDirectoryError as error:
        raise StorageError(str(error)) from error


def compile_missing(report: Callable[[int, int], None], kernels: Sequence[Kernel] | None = None) -> None:
    """Compile kernels, in processes side by side, unless all are in the cache.

    `kernels`: None for those of all imported modules. `report` is called with the number of ready kernels and the
    total. Those in the cache are loaded when first called.
    """
    from requant.kernels.jit.compilation import start_compilation
    from requant.kernels.jit.jit import all_kernels

    wanted = all_kernels() if kernels is None else kernels
    if not all(each.is_cached() for each in wanted):
        start_compilation(os.cpu_count() or 1, wanted).finish(report)
