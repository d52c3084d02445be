"""Known answers of the types of GGUF files whose scales are searched: the bytes of blocks, and their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf.tensor_types import TENSOR_TYPES, read_elements, write_elements
from requant.self_test.known_calls import KnownCall, reals

Array = NDArray[Any]

# Of 256 elements; whole vectors of them.
_BLOCKS = 16


def numbers() -> Array:
    """Return f32 values, a row for each block."""
    return np.resize(reals(), (_BLOCKS, 256)).astype("<f4")


def importance() -> Array:
    """Return the importance of the 256 columns."""
    return np.square(np.arange(256, dtype="<f4") % np.float32(37))


def _written(name: str, of_columns: Array | None) -> Iterable[Array]:
    stored = write_elements(numbers().reshape(-1), TENSOR_TYPES[name], importance=of_columns)
    yield stored
    yield read_elements(stored, TENSOR_TYPES[name])


KNOWN_GGUF = (
    KnownCall("GGUF Q3_K", lambda: _written("Q3_K", None), "fc975561da438abf"),
    KnownCall("GGUF Q4_K", lambda: _written("Q4_K", None), "e3272188da8b415f"),
    KnownCall("GGUF Q6_K", lambda: _written("Q6_K", None), "27e56adc73438542"),
    KnownCall("GGUF IQ4_XS", lambda: _written("IQ4_XS", None), "42ba8610e3e4bbca"),
    KnownCall("GGUF Q3_K by importance", lambda: _written("Q3_K", importance()), "a8c167d927c19611"),
    KnownCall("GGUF Q4_K by importance", lambda: _written("Q4_K", importance()), "6da8da03e47c6f41"),
)
