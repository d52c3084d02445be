"""One ONNX node: as a checked model, in the reference evaluator, and as this project computes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import reference

from requant.operators.checks import checked_call
from requant.operators.onnx.operands import TENSOR_PROTO
from requant.operators.registry import OPERATORS
from tests.interop.operators.typed_arrays import NAMES, Array, array_of, operand

ort: Any = pytest.importorskip("onnxruntime")

PROTO = {name: number for number, name in TENSOR_PROTO.items()}


@dataclass
class Node:
    """One node with its inputs by the operator's names, those that are absent left out."""

    operator: str
    opset: int
    inputs: dict[str, Array]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Any:
        """The model, its inputs with their shapes."""
        output = onnx.helper.make_empty_tensor_value_info("y")
        slots = OPERATORS[f"onnx.{self.operator}"].inputs
        names = [slot.name if slot.name in self.inputs else "" for slot in slots]
        while not names[-1]:
            names.pop()
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(self.operator, names, ["y"], **self.attributes)],
            "g",
            [
                onnx.helper.make_tensor_value_info(name, PROTO[NAMES[array.dtype]], array.shape)
                for name, array in self.inputs.items()
            ],
            [output],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True)
        onnx.checker.check_model(inferred)
        return inferred

    def __str__(self) -> str:
        inputs = {name: f"{NAMES[array.dtype]}{list(array.shape)}" for name, array in self.inputs.items()}
        return f"{self.operator}-{self.opset} {inputs} {self.attributes}"

    def ours(self, implementation: str) -> Array:
        operator = OPERATORS[f"onnx.{self.operator}"]
        inputs = {name: operand(array) for name, array in self.inputs.items()}
        call = checked_call(operator, self.opset, implementation, inputs, self.attributes)
        return array_of(next(iter(operator.work_of(call).run().values())))


def by_reference(node: Node, model: Any) -> Array | None:
    try:
        with np.errstate(all="ignore"):
            (found,) = reference.ReferenceEvaluator(model).run(None, node.inputs)
    except Exception:  # whatever it does not have, it says in its own ways
        return None
    return np.asarray(found)


@cache
def session_options() -> Any:
    made = ort.SessionOptions()
    made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    made.log_severity_level = 4
    return made
