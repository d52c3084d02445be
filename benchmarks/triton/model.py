"""Triton's model: the arithmetic of `benchmarks.http.case`, as one writes it with numba. It runs in Triton's Python."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

_SCALE, _ZERO_POINT = np.float32(0.05), np.float32(3)
_LOWEST, _HIGHEST = np.float32(-128), np.float32(127)


@numba.njit("void(float32[::1], int8[::1])", nogil=True)
def _quantize(source: NDArray[Any], target: NDArray[Any]) -> None:
    for index in range(source.size):
        stored = np.rint(source[index] / _SCALE) + _ZERO_POINT
        target[index] = np.int8(min(max(stored, _LOWEST), _HIGHEST))


class TritonPythonModel:
    """f32 in, i8 out: divided by the scale, rounded to nearest even, saturated."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        responses = []
        for request in requests:
            source = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            target = np.empty(source.shape, np.int8)
            _quantize(source, target)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", target)]))
        return responses
