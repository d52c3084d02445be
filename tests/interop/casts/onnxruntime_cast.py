"""Cast of onnxruntime's CPU provider, by address."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from requant.profiles import Rounding
from tests.interop.casts.cast_data import RESULTS, ROUND_MODES, WIDE
from tests.interop.onnx_nodes import ELEMENT_TYPES, cast_node

Array = NDArray[Any]


@cache
def session(source: str, target: str, saturate: bool | None, round_mode: str | None) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    model = cast_node(source, target, saturate, round_mode).SerializeToString()
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(data: Array, source: str, target: str, saturate: bool | None = None, rounding: Rounding | None = None) -> Array:
    """Cast by address, because numpy has no such types."""
    started = session(source, target, saturate, None if rounding is None else ROUND_MODES[rounding])
    binding = started.io_binding()
    binding.bind_input("x", "cpu", 0, ELEMENT_TYPES[source], [data.size], data.ctypes.data)
    width = np.dtype(RESULTS[target]).itemsize if target in WIDE else 1
    found = np.empty(data.size, f"u{width}")
    binding.bind_output("y", "cpu", 0, ELEMENT_TYPES[target], [data.size], found.ctypes.data)
    started.run_with_iobinding(binding)
    return found
