"""Functions of vectors of int64, called from Python with one number for all elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.signature import I64, In, Out
from requant.kernels.simd.memory import load, store
from requant.kernels.simd.vector import LANES


@cache
def _kernel(function: Callable[..., Any], arguments: int) -> Kernel:
    if arguments == 1:

        @kernel()
        def call(a: In[I64], result: Out[I64]) -> None:
            store(result, 0, function(load(a, 0)))

    elif arguments == 2:

        @kernel()
        def call(a: In[I64], b: In[I64], result: Out[I64]) -> None:
            store(result, 0, function(load(a, 0), load(b, 0)))

    else:

        @kernel()
        def call(a: In[I64], b: In[I64], c: In[I64], result: Out[I64]) -> None:
            store(result, 0, function(load(a, 0), load(b, 0), load(c, 0)))

    return call


def of_lanes(function: Callable[..., Any], *numbers: int) -> int:
    """Return what `function` makes of vectors of these numbers: the same in all elements."""
    result = np.zeros(LANES, np.int64)
    _kernel(function, len(numbers))(*(np.full(LANES, number, np.int64) for number in numbers), result)
    (found,) = set(result.tolist())
    return int(found)
