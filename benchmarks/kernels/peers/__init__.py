"""The other libraries, each as something to call on warm data, with the result that the call leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Peer(NamedTuple):
    """`call` does the conversion; `result` returns the bytes of what the last call made."""

    call: Callable[[], object]
    result: Callable[[], Array]


def as_bytes(array: Array) -> Array:
    """The bytes of an array, flat."""
    return np.ascontiguousarray(array).ravel().view(np.uint8)
