"""What ONNX's two QLinear products share: integers only, and an output with one scale and one zero point."""

from __future__ import annotations

import numpy as np

from requant.description import TensorValue
from requant.errors import TypeFitError, UnsupportedError
from requant.formats.elements import FLOATS, IntegerElement
from requant.mlir.types import ElementType
from requant.operators.description import OperatorCall
from requant.operators.element_names import type_key
from requant.operators.separate_parameters import Granularity, quantized_type, reals_of


def single(call: OperatorCall, name: str) -> TensorValue:
    """Return an operand that has one element, or raise TypeFitError."""
    given = call.inputs[name]
    if given.shape not in ((), (1,)):
        raise TypeFitError(f"{name} has one element; this has shape {list(given.shape)}", pointer=f"/inputs/{name}")
    return given


def integers_of(call: OperatorCall, name: str) -> IntegerElement:
    """Return the element type of an operand of integers, or raise UnsupportedError for the floats that the text has."""
    element = call.inputs[name].type.element
    if not isinstance(element, IntegerElement):
        raise UnsupportedError(
            f"{name} is of {type_key(element)}, for which no reference result exists: onnxruntime has no kernel, and "
            "the reference evaluator truncates the operands to integers and has no such output",
            pointer=f"/inputs/{name}",
        )
    return element


def output_element(call: OperatorCall, element: IntegerElement) -> ElementType:
    """Return the quantized element type of y, whose storage is `element`: y_scale and y_zero_point."""
    scale, zero_point = single(call, "y_scale"), single(call, "y_zero_point")
    zeros = zero_point.data.astype(np.int64)
    return quantized_type((1,), Granularity(), element, FLOATS["f32"], reals_of(scale), zeros).element
