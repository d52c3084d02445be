"""QuantizeLinear and DequantizeLinear of ONNX's reference evaluator."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import reference

from tests.interop.onnx_nodes import one_node
from tests.interop.quantized_case import NUMPY, Case

Array = NDArray[Any]

FLOATS = {
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
}
"""Those that are storage in an MLIR type."""
NARROW = {"i2": ml_dtypes.int2, "u2": ml_dtypes.uint2, "i4": ml_dtypes.int4, "u4": ml_dtypes.uint4}


def onnx_dtype(storage: str) -> np.dtype[Any]:
    return np.dtype(FLOATS.get(storage) or NARROW.get(storage) or f"{storage[0]}{int(storage[1:]) // 8}")


@cache
def evaluator(*node: Any) -> Any:
    return reference.ReferenceEvaluator(one_node(*node))


def run(operator: str, case: Case, source: Array) -> Array:
    node = evaluator(operator, case.storage, case.expressed, len(case.shape), case.axis, case.block, 28)
    stored = onnx_dtype(case.storage)
    points = case.zero_points.astype(np.float32).astype(stored) if case.storage in FLOATS else case.zero_points
    inputs = {"x": source, "s": case.scales.astype(NUMPY[case.expressed]), "z": points.astype(stored)}
    if operator == "DequantizeLinear":
        inputs["x"] = source.view(stored) if case.storage in FLOATS else source.astype(stored)
    with np.errstate(all="ignore"):
        (result,) = node.run(None, inputs)
    if operator == "DequantizeLinear":
        return np.asarray(result)
    assert result.dtype == stored
    return np.asarray(result.view(np.uint8) if case.storage in FLOATS else result.astype(case.dtype))
