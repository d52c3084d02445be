"""Scales of activations that were found with data, and are given: their names and numbers.

    X.input_scale         of the inputs of the linear module X, where they are FP8 with one scale:
                          largest magnitude / 448
    X.input_global_scale  likewise, where they are NVFP4: 448 * 6 / largest magnitude
    X.k_scale, X.v_scale  of what the attention module X keeps of keys and values, in FP8: largest magnitude / 448

Source: compressed-tensors 0.20.0, `initialize_qparams` (`quantization/lifecycle/initialize.py`) and `generate_gparam`
(`quantization/utils/helpers.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights.floats import bits_of, values

INPUT_SCALE, INPUT_GLOBAL_SCALE = "input_scale", "input_global_scale"
OF_INPUTS = (INPUT_SCALE, INPUT_GLOBAL_SCALE)
OF_KV_CACHE = ("k_scale", "v_scale")

Scales = tuple[tuple[str, float], ...]
"""Names and numbers, in the order of the names."""


def in_order(scales: Mapping[str, float]) -> Scales:
    """Return scales in the order of their names. An integer that f64 does not reach is infinite."""
    return tuple((name, _as_float(number)) for name, number in sorted(scales.items()))


def bytes_of(number: float, dtype: str) -> bytes:
    """Return a number as it is stored: rounded to f32, then to BF16, F16 or F32, to the nearest, ties to even."""
    with np.errstate(over="ignore", under="ignore"):
        in_f32 = np.array([number], np.float64).astype("<f4")
        # By numpy: a kernel for it might be the only one that has to be compiled.
        return in_f32.astype("<f2").tobytes() if dtype == "F16" else bits_of(in_f32, dtype).tobytes()


def number_of(data: bytes, dtype: str) -> float:
    """Return the number that BF16, F16 or F32 stand for."""
    if dtype == "F16":
        return float(np.frombuffer(data, "<f2")[0])
    return float(values(np.frombuffer(data, DTYPES[dtype].array), dtype)[0])


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf
