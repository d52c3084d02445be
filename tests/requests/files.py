"""Arrays as `.npy` files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray


def npy(array: NDArray[Any]) -> bytes:
    """An array as a `.npy` file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
