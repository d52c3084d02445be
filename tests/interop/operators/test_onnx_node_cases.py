"""onnx's own backend test cases of the operators, every one, through HTTP.

Each model runs in the ReferenceEvaluator with the operators replaced by calls of the service, so that cases of several
nodes (the expanded ones) run too.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import httpx
import numpy as np
import pytest

from requant.operators.registry import OPERATORS
from tests.interop.onnxruntime_version import IMPLEMENTATION
from tests.interop.operators.typed_arrays import as_json, from_json, same

onnx: Any = pytest.importorskip("onnx")
reference: Any = pytest.importorskip("onnx.reference")
op_run: Any = pytest.importorskip("onnx.reference.op_run")

pytestmark = pytest.mark.interop

HERE = tuple(operator.name for operator in OPERATORS.values() if operator.system == "onnx")
EXPECTED = 45
"""Cases of onnx 1.23.2: more are welcome, fewer are a mistake."""


@cache
def cases() -> dict[str, Any]:
    """Those with one of the operators in the model; Cast is another test's."""
    loader: Any = pytest.importorskip("onnx.backend.test.loader")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    return {case.name: case for case in found if {node.op_type for node in case.model.graph.node} & set(HERE)}


def as_array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def over_http(client: httpx.Client, implementation: str, called: list[str]) -> list[Any]:
    """Operators of the reference evaluator that ask the service."""

    def made(name: str) -> Any:
        operator = OPERATORS[f"onnx.{name}"]

        class Remote(op_run.OpRun):  # type: ignore[misc]
            op_domain = ""

            def _run(self, *arrays: Any, **ignored: Any) -> Any:
                given = zip(operator.inputs, arrays, strict=False)
                attributes = {each.name: onnx.helper.get_attribute_value(each) for each in self.onnx_node.attribute}
                request = {
                    "opset": self.run_params["opsets"][""],
                    "implementation": implementation,
                    "inputs": {slot.name: as_json(np.asarray(a)) for slot, a in given if a is not None},
                    "attributes": {
                        key: value.decode() if isinstance(value, bytes) else value for key, value in attributes.items()
                    },
                }
                reply = client.post(f"/v1/onnx/{name}", json=request)
                assert reply.status_code == 200, reply.text
                called.append(name)
                outputs = reply.json()["outputs"]
                return tuple(from_json(outputs[slot.name]) for slot in operator.outputs)

        Remote.__name__ = name
        return Remote

    return [made(name) for name in HERE]


@pytest.mark.parametrize("implementation", [IMPLEMENTATION, "reference"])
def test_every_node_case(client: httpx.Client, implementation: str) -> None:
    different = []
    calls: list[str] = []
    for name, case in cases().items():
        called: list[str] = []
        run = reference.ReferenceEvaluator(case.model, new_ops=over_http(client, implementation, called))
        for inputs, expected in case.data_sets:
            names = [value.name for value in case.model.graph.input]
            outputs = run.run(None, dict(zip(names, map(as_array, inputs), strict=True)))
            if not all(same(np.asarray(a), as_array(b)) for a, b in zip(outputs, expected, strict=True)):
                different.append((name, outputs, expected))
        assert called, name
        calls += called
    print({name: calls.count(name) for name in HERE}, f"{len(cases())} cases, {implementation}")  # noqa: T201
    assert not different
    assert len(cases()) >= EXPECTED
    assert set(calls) == set(HERE)
