"""onnxruntime: QuantizeLinear and DequantizeLinear of the CPU provider, inputs and output bound by address."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

from benchmarks.kernels.conversion import BLOCK, Conversion, Granularity
from benchmarks.kernels.peers import Array, Peer
from tests.interop.onnx_nodes import ELEMENT_TYPES, one_node

_OPSET = 21


def _session(conversion: Conversion, rank: int, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that spin while they wait would take the CPU from whoever is timed next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    axis = None if conversion.axis is None else conversion.axis % rank
    block = BLOCK if conversion.granularity is Granularity.BLOCKS else None
    operator = "QuantizeLinear" if conversion.quantizes else "DequantizeLinear"
    model = one_node(operator, conversion.storage, conversion.expressed, rank, axis, block, _OPSET)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def bound(conversion: Conversion, size: int, source: Array, threads: int = 1) -> Peer:
    """`run_with_iobinding` into memory that is allocated once."""
    shape = list(conversion.shape(size))
    session = _session(conversion, len(shape), threads)
    scales, zero_points = conversion.parameters(size)
    stored, real = ELEMENT_TYPES[conversion.storage], ELEMENT_TYPES[conversion.expressed]
    nibbles = conversion.storage in ("i4", "u4")
    zeros = zero_points.astype(conversion.stored_dtype).ravel()
    inputs: dict[str, tuple[int, Array, list[int]]] = {
        "x": (real if conversion.quantizes else stored, source, shape),
        "s": (real, scales.astype(conversion.real_dtype), list(scales.shape)),
        "z": (stored, pack_nibbles(zeros) if nibbles else zeros, list(scales.shape)),
    }
    if nibbles and not conversion.quantizes:
        inputs["x"] = (stored, pack_nibbles(source), shape)
    binding = session.io_binding()
    for name, (kind, array, dimensions) in inputs.items():
        binding.bind_input(name, "cpu", 0, kind, dimensions, array.ctypes.data)
    count = conversion.elements(size)
    if conversion.quantizes:
        bits = 4 if nibbles else conversion.stored_dtype.itemsize * 8
        output = np.empty(-(-count * bits // 8), np.uint8)
        binding.bind_output("y", "cpu", 0, stored, shape, output.ctypes.data)
    else:
        output = np.empty(count * conversion.real_dtype.itemsize, np.uint8)
        binding.bind_output("y", "cpu", 0, real, shape, output.ctypes.data)

    def call(kept: object = inputs) -> None:
        session.run_with_iobinding(binding)

    return Peer(call, lambda: output)


def pack_nibbles(stored: Array) -> Array:
    """Two 4-bit numbers to a byte, the first in the low half."""
    nibbles = np.zeros(-(-stored.size // 2) * 2, np.uint8)
    nibbles[: stored.size] = stored.view(np.uint8) & 15
    packed: Array = nibbles[::2] | (nibbles[1::2] << 4)
    return packed
