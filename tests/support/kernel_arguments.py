"""Kernels that check their arguments: machine code takes any array, and reads what is behind one of another layout.

Numba itself refuses an array of another layout only where it chooses between signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import as_dtype

from requant.kernels.jit.jit import Kernel


def check_kernel_arguments() -> None:
    """Let every kernel of this process raise TypeError for an array that its signature does not have."""
    compile_, call = Kernel.compile, "_call"

    def compiled(kernel: Kernel) -> None:
        compile_(kernel)
        if len(kernel._signatures) == 1 and not hasattr(getattr(kernel, call), "checks"):
            setattr(kernel, call, _checking(kernel, getattr(kernel, call)))

    Kernel.compile = compiled  # type: ignore[assignment, method-assign]


def _checking(kernel: Kernel, run: Callable[..., Any]) -> Callable[..., Any]:
    (signature,) = kernel._signatures
    count = len(signature.args)
    # numba's dtype takes longer to look up than a small kernel takes.
    arrays = [
        (place, expected, as_dtype(expected.dtype).itemsize)
        for place, expected in enumerate(signature.args)
        if isinstance(expected, types.Array)
    ]

    def checked(*arguments: Any) -> Any:
        if len(arguments) != count:
            raise TypeError(f"{kernel.name}: {len(arguments)} arguments; it takes {count}")
        for place, expected, itemsize in arrays:
            given = arguments[place]
            if not _fits(expected, itemsize, given):
                described = f"{given.dtype} of shape {given.shape}, strides {given.strides}"
                raise TypeError(f"{kernel.name}: argument {place} is {described}; it takes {expected}")
        return run(*arguments)

    checked.checks = True  # type: ignore[attr-defined]
    return checked


def _fits(expected: types.Array, itemsize: int, given: np.ndarray[Any, Any]) -> bool:
    return (
        given.ndim == expected.ndim
        and given.flags.c_contiguous
        and given.dtype.itemsize == itemsize
        and (given.flags.writeable or not expected.mutable)
    )
