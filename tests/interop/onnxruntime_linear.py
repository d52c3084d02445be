"""QuantizeLinear and DequantizeLinear of onnxruntime's CPU provider.

Tensors go in and out by address, so that packed integers and small floats are compared as the bytes that they are.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from tests.interop.onnx_nodes import ELEMENT_TYPES, one_node
from tests.interop.onnxruntime_version import PROFILE
from tests.interop.quantized_case import Case

Array = NDArray[Any]


def packed(array: Array, bits: int) -> Array:
    """Bytes of an array as ONNX stores them: below 8 bits the first element in the lowest bits."""
    flat = array.ravel()
    if bits >= 8:
        return np.ascontiguousarray(flat).view(np.uint8)
    each = 8 // bits
    fields = np.zeros(-(-flat.size // each) * each, np.uint8)
    fields[: flat.size] = flat.astype(np.uint8) & ((1 << bits) - 1)
    shifted = fields.reshape(-1, each) << (np.arange(each, dtype=np.uint8) * bits)
    return np.asarray(np.bitwise_or.reduce(shifted, axis=1))


def unpacked(data: Array, case: Case, bits: int) -> Array:
    """The opposite, in our dtype."""
    if bits >= 8:
        return data.view(case.dtype).reshape(case.shape)
    each = 8 // bits
    fields = (data[:, None] >> (np.arange(each, dtype=np.uint8) * bits)) & ((1 << bits) - 1)
    flat = fields.ravel()[: prod(case.shape)]
    if case.storage[0] == "i":
        shift = 8 - bits
        flat = (flat << shift).view(np.int8) >> shift
    return flat.astype(case.dtype).reshape(case.shape)


@cache
def session(model: Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(operator: str, case: Case, source: Array, *, saturate: bool = True) -> Array:
    """Run the node on one case."""
    quantizes = operator == "QuantizeLinear"
    # Since 1.32 the opset decides in which type f16 is divided; tests/interop/operators has the older ones.
    opset = 25 if case.storage[1:] == "2" or PROFILE == "onnx_1_32" else 21
    model = one_node(operator, case.storage, case.expressed, len(case.shape), case.axis, case.block, opset, saturate)
    bits = 8 if case.storage.startswith("f8") else int(case.storage[1:])
    real = np.dtype(np.float16 if case.expressed == "f16" else np.float32)
    inputs = {
        "x": (packed(source, real.itemsize * 8 if quantizes else bits), case.shape),
        "s": (case.scales.astype(real).ravel(), case.scales.shape),
        "z": (packed(case.zero_points.astype(case.dtype), bits), case.scales.shape),
    }
    stored, expressed = ELEMENT_TYPES[case.storage], ELEMENT_TYPES[case.expressed]
    types = {"x": expressed if quantizes else stored, "s": expressed, "z": stored}
    started = session(model.SerializeToString())
    binding = started.io_binding()
    for name, (array, shape) in inputs.items():
        binding.bind_input(name, "cpu", 0, types[name], list(shape), array.ctypes.data)
    size = prod(case.shape)
    output = np.empty(-(-size * bits // 8) if quantizes else size * real.itemsize, np.uint8)
    binding.bind_output("y", "cpu", 0, stored if quantizes else expressed, list(case.shape), output.ctypes.data)
    started.run_with_iobinding(binding)
    return unpacked(output, case, bits) if quantizes else output.view(real).reshape(case.shape)
