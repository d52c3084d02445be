"""The `.tensor2` overloads of quantized_decomposed: scale, zero point and bounds are tensors of one element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from requant.errors import RequantError, TypeFitError
from requant.operators.description import Operand, Operator, OperatorCall, Run, Work
from requant.operators.torch.quantize import (
    DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR,
    DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR,
)

_NAMES = ("quant_min", "quant_max")
_BOUNDS = tuple(
    Operand(name=name, description=f"{text} One number, of any shape.", types={"i32": 1, "i64": 1})
    for name, text in zip(_NAMES, ("The lowest quantized value.", "The highest quantized value."), strict=True)
)


def _with_attributes(operator: Operator) -> Callable[[OperatorCall], Run | Work]:
    """Return the plan of an operator whose bounds are attributes, for a call whose bounds are operands."""

    def plan_call(call: OperatorCall) -> Run | Work:
        bounds = {}
        for name in _NAMES:
            given = call.inputs[name]
            if given.data.size != 1:
                raise TypeFitError(
                    f"{name} has one element; this has shape {list(given.shape)}", pointer=f"/inputs/{name}"
                )
            bounds[name] = int(given.data[0])
        try:
            return operator.plan(replace(call, attributes={**call.attributes, **bounds}))
        except RequantError as error:
            if error.pointer in {f"/attributes/{name}" for name in _NAMES}:
                error.pointer = error.pointer.replace("/attributes", "/inputs")
            raise

    return plan_call


def _overload(operator: Operator) -> Operator:
    example = operator.example
    bounds = {name: {"type": "tensor<i64>", "values": [example["attributes"][name]]} for name in _NAMES}
    kept = {name: value for name, value in example["attributes"].items() if name not in _NAMES}
    return replace(
        operator,
        name=f"{operator.name}2",
        summary=f"{operator.summary.removesuffix('.')}, and so the bounds.",
        inputs=(*operator.inputs, *_BOUNDS),
        attributes=tuple(each for each in operator.attributes if each.name not in _NAMES),
        plan=_with_attributes(operator),
        example={"inputs": {**example["inputs"], **bounds}, "attributes": kept},
    )


QUANTIZE_PER_TENSOR_TENSOR2 = _overload(DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR)
DEQUANTIZE_PER_TENSOR_TENSOR2 = _overload(DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR)
