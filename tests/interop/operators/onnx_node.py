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

PROTO = {name: number for number, name in TENSOR_PROTO.items()} | {"ui1": onnx.TensorProto.BOOL}


@dataclass
class Node:
    """One node with its inputs by the operator's names, those that are absent left out.

    In a domain other than ONNX's the checker knows no operator, and is not asked. Inputs that the operator does not
    have here are the first.
    """

    operator: str
    opset: int
    inputs: dict[str, Array]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.domain or 'onnx'}.{self.operator}"

    @property
    def model(self) -> Any:
        """The model, its inputs with their shapes."""
        output = onnx.helper.make_empty_tensor_value_info("y")
        slots = [slot.name for slot in OPERATORS[self.full_name].inputs]
        slots = [name for name in self.inputs if name not in slots] + slots
        names = [name if name in self.inputs else "" for name in slots]
        while not names[-1]:
            names.pop()
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(self.operator, names, ["y"], domain=self.domain, **self.attributes)],
            "g",
            [
                onnx.helper.make_tensor_value_info(name, PROTO[NAMES[array.dtype]], array.shape)
                for name, array in self.inputs.items()
            ],
            [output],
        )
        domains = [onnx.helper.make_opsetid("", self.opset)]
        if self.domain:
            domains.append(onnx.helper.make_opsetid(self.domain, 1))
        model = onnx.helper.make_model(graph, opset_imports=domains, ir_version=10)
        if self.domain:
            return model
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True)
        onnx.checker.check_model(inferred)
        return inferred

    def __str__(self) -> str:
        inputs = {name: f"{NAMES[array.dtype]}{list(array.shape)}" for name, array in self.inputs.items()}
        return f"{self.operator}-{self.opset} {inputs} {self.attributes}"

    def ours(self, implementation: str) -> Array:
        operator = OPERATORS[self.full_name]
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
