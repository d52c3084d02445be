"""Operands of u8 and i8 for which onnxruntime's sums of products are exact.

Where an x86 processor has no VNNI, it adds two products in 16 bits (vpmaddubsw), which saturates with i8 of more than 7
bits: "When and why do I need to try U8U8" in its documentation of quantization.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_features
from numpy.typing import NDArray

Array = NDArray[Any]


def _has_vnni() -> bool:
    features = get_host_cpu_features()
    return bool(features.get("avx512vnni") or features.get("avxvnni"))


SATURATES = platform.machine() in ("x86_64", "AMD64") and not _has_vnni()
"""Whether sums of products with i8 of more than 7 bits saturate on this machine."""


def exact_together(a: Array, b: Array) -> tuple[Array, Array]:
    """Return both operands, of which one of i8 beside one of u8 is halved where sums would saturate."""
    if SATURATES and {a.dtype, b.dtype} == {np.dtype(np.uint8), np.dtype(np.int8)}:
        # Of an array without dimensions a shift is no array.
        return (np.asarray(a >> 1), b) if a.dtype == np.int8 else (a, np.asarray(b >> 1))
    return a, b
