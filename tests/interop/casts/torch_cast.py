"""Casts by Tensor.to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]

NAMES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f32": "float32",
    "f64": "float64",
}


def run(data: Array, source: str, target: str) -> Array:
    """Cast; in and out as the integers of the same width, because numpy has no such types."""
    given = torch.from_numpy(np.ascontiguousarray(data).view(f"i{data.itemsize}")).view(getattr(torch, NAMES[source]))
    found = given.to(getattr(torch, NAMES[target]))
    width = found.element_size()
    return np.asarray(found.view(getattr(torch, f"int{8 * width}")).numpy().view(f"u{width}"))
