"""All operators by their full names."""

from __future__ import annotations

from collections.abc import Mapping

from requant.errors.names import entry_named
from requant.operators import litert, mlir, onednn, onnx, onnxruntime, qonnx, stablehlo, torch, tosa
from requant.operators.description import Operator

_SYSTEMS = (onnx, onnxruntime, qonnx, onednn, stablehlo, mlir, litert, torch, tosa)
OPERATORS: Mapping[str, Operator] = {
    operator.full_name: operator for system in _SYSTEMS for operator in system.OPERATORS
}


def operator_named(name: str) -> Operator:
    """Return the operator of a full name, such as onnx.QuantizeLinear, or raise UnknownNameError listing them."""
    return entry_named(OPERATORS, name, "operator")
