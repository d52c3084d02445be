"""LiteRT (ai-edge-litert): one-operator models in the default interpreter, which gives 8 bits to XNNPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from benchmarks.kernels.conversion import Conversion
from benchmarks.kernels.peers import Array, Peer, as_bytes
from benchmarks.kernels.requantization import Requantization
from tests.interop.litert_models import DEFAULT, DEQUANTIZE, QUANTIZE, Operand, one_operator


def _peer(model: bytes, source: Array, threads: int) -> Peer:
    interpreter: Any = Interpreter(model_content=model, experimental_op_resolver_type=DEFAULT, num_threads=threads)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, source)
    return Peer(interpreter.invoke, lambda: as_bytes(interpreter.get_tensor(1)))


def convert(conversion: Conversion | Requantization, size: int, source: Array, threads: int = 1) -> Peer:
    """QUANTIZE from f32 or between integers, or DEQUANTIZE to f32, per tensor."""
    if isinstance(conversion, Requantization):
        given, wanted = (
            Operand(side.storage, np.array(side.scale), np.array(side.zero_point))
            for side in (conversion.given, conversion.wanted)
        )
        return _peer(one_operator(QUANTIZE, source.shape, given, wanted), source, threads)
    scales, zero_points = conversion.parameters(size)
    stored, real = Operand(conversion.storage, scales, zero_points), Operand("f32")
    if conversion.quantizes:
        return _peer(one_operator(QUANTIZE, (size,), real, stored), source, threads)
    return _peer(one_operator(DEQUANTIZE, (size,), stored, real), source, threads)
