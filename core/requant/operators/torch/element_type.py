"""torch.ops.quantized_decomposed.convert_element_type.no_fuse: a cast that optimizers leave alone.

Floats are rounded to nearest even: to f16 and bf16 from f32, to which wider numbers are rounded first. Floats become
integers towards zero; integers wrap to narrower ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from requant.description import Array, TensorValue
from requant.errors import TensorDataError
from requant.formats.elements import FloatElement
from requant.mlir.types import TensorType
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Run
from requant.operators.element_names import element_named
from requant.operators.torch.parameters import DTYPES, REALS, SOURCE, VERSIONS, dtype_attribute
from requant.plan.float_arrays import narrowed, widen

_ELEMENTS: Mapping[str, str] = {
    **REALS,
    "float64": "f64",
    **{name: DTYPES[name] for name in ("uint8", "int8", "int16", "int32")},
    "int64": "i64",
}
_TYPES = dict.fromkeys(_ELEMENTS.values(), 1)


def _plan(call: OperatorCall) -> Run:
    tensor = call.inputs["input"]
    element, source = element_named(_ELEMENTS[call.text("dtype")]), tensor.type.element
    target = TensorType(tensor.shape, element)

    def run() -> Outputs:
        numbers = widen(tensor.data, source) if isinstance(source, FloatElement) else tensor.data
        if isinstance(element, FloatElement):
            return {"output": TensorValue(target, _as_float(numbers, element))}
        if isinstance(source, FloatElement):
            numbers = np.trunc(numbers)
            # Both ends are powers of two, which every float has.
            wrong = ~((numbers >= float(element.minimum)) & (numbers < float(element.maximum + 1)))
            if wrong.any():
                raise TensorDataError(
                    f"element {int(np.argmax(wrong))} is none that {call.text('dtype')} holds", pointer="/inputs/input"
                )
        return {"output": TensorValue(target, numbers.astype(element.dtype))}

    return run


def _as_float(numbers: Array, element: FloatElement) -> Array:
    if element.name == "f64":
        return numbers.astype(np.float64)
    with np.errstate(all="ignore"):
        return narrowed(numbers.astype(np.float32), element)


CONVERT_ELEMENT_TYPE = Operator(
    system="torch",
    name="quantized_decomposed.convert_element_type.no_fuse",
    summary="Convert to another element type.",
    source=SOURCE,
    inputs=(Operand(name="input", description="The tensor to convert.", types=_TYPES),),
    outputs=(Operand(name="output", description="The converted tensor.", types=_TYPES),),
    attributes=(dtype_attribute(tuple(_ELEMENTS), "TorchNumberDtype"),),
    implementations=VERSIONS,
    plan=_plan,
    example={
        "inputs": {"input": {"type": "tensor<3xf32>", "values": [0.3, -1.75, 100.0]}},
        "attributes": {"dtype": "int8"},
    },
    deviations=("A float outside the range of the integer type is an error; torch's result depends on the processor.",),
)
