"""Operators called in the process, with numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.description import TensorValue, Value
from requant.mlir import parse_type, print_type
from requant.mlir.types import TensorType
from requant.operators.checks import checked_call
from requant.operators.element_names import container
from requant.operators.registry import operator_named

Array = NDArray[Any]


def tensor(element: str, values: Any) -> TensorValue:
    """A tensor of an element type, from an array or nested lists of what is kept: codes of small floats."""
    array = np.asarray(values)
    type_ = parse_type(f"tensor<{''.join(f'{size}x' for size in array.shape)}{element}>")
    assert isinstance(type_, TensorType)
    dtype = container(type_.element)
    assert dtype is not None
    return TensorValue(type_, np.ascontiguousarray(array.astype(dtype)).reshape(-1))


def run(
    name: str,
    inputs: dict[str, TensorValue],
    attributes: Mapping[str, Value] | None = None,
    *,
    opset: int | None = None,
    implementation: str = "",
) -> dict[str, Array]:
    """The outputs, in their shapes, as they are kept."""
    call = checked_call(operator_named(name), opset, implementation, inputs, attributes or {})
    outputs = operator_named(name).work_of(call).run()
    return {key: each.data.reshape(each.shape) for key, each in outputs.items()}


def output_types(
    name: str, inputs: dict[str, TensorValue], attributes: Mapping[str, Value] | None = None, **options: Any
) -> dict[str, str]:
    """The types of the outputs as text."""
    call = checked_call(
        operator_named(name), options.get("opset"), options.get("implementation", ""), inputs, attributes or {}
    )
    return {key: print_type(each.type) for key, each in operator_named(name).work_of(call).run().items()}
