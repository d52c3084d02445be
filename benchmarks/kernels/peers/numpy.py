"""The arithmetic of the profile `onnx` in numpy, as one writes it without a library for it."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from benchmarks.kernels.conversion import Conversion
from benchmarks.kernels.peers import Array, Peer, as_bytes


def convert(conversion: Conversion, size: int, source: Array, threads: int = 1) -> Peer:
    """clip(rint(x / s) + z), (q - z) * s; to small floats by way of ml_dtypes."""
    scales, zero_points = conversion.parameters(size)
    shape = conversion.shape(size)
    along = [1] * len(shape)
    if scales.ndim:
        along[conversion.axis or 0] = -1
    scale = scales.astype(np.float32).reshape(along)
    zero = zero_points.reshape(along)
    tensor = source.reshape(shape)
    lowest, highest = conversion.bounds

    def quantize() -> Array:
        steps = np.rint(tensor.astype(np.float32, copy=False) / scale) + zero.astype(np.float32)
        stored: Array = np.clip(steps, lowest, highest).astype(conversion.stored_dtype)
        return stored

    def cast() -> Array:
        stored: Array = np.clip(tensor / scale, lowest, highest).astype(ml_dtypes.float8_e4m3fn)
        return stored

    def dequantize() -> Array:
        real: Array = (tensor.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale
        return real

    call = dequantize if not conversion.quantizes else cast if conversion.storage.startswith("f") else quantize
    return Peer(call, lambda: as_bytes(call()))
