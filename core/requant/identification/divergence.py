"""Where a candidate diverges: the first step of an element at which two explanations differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import flat_bits
from requant.convert.explain.explanation import Step, StepKind, parameter_index
from requant.convert.explain.requantize import plan_explainer
from requant.convert.explain.working import Working
from requant.description import Array, OperationCall, PlannedWork
from requant.errors import RequantError
from requant.errors.cancellation import LateError
from requant.identification.candidates import Candidate, options_for
from requant.identification.separation import one_channel
from requant.integer.add import AddPlan
from requant.integer.product import ProductPlan
from requant.mlir.types import TensorType, Type, UniformPerAxisType, UniformSubChannelType
from requant.plan.operands import static_shape

_AnyType = TypeVar("_AnyType", bound=Type)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A step of one candidate, and that of another in its place; None where it has no further step."""

    step: Step | None
    other: Step | None


def first_divergence(call: ArrayCall, index: int, candidate: Candidate, other: Candidate) -> Divergence | None:
    """Return the first step at which an element is computed otherwise, or None where no explanation tells."""
    try:
        steps, others = (steps_of_element(call, index, each) for each in (candidate, other))
    except (RequantError, LateError):
        return None
    for position in range(max(len(steps), len(others))):
        one = steps[position] if position < len(steps) else None
        two = others[position] if position < len(others) else None
        if one is None or two is None or (one.symbol, one.value) != (two.symbol, two.value):
            return Divergence(one, two)
    return None


def steps_of_element(call: ArrayCall, index: int, candidate: Candidate) -> Sequence[Step]:
    """Return the steps of one element of a conversion, of the output stage of a product, or of a sum; else none."""
    if call.operation.explainer is None:
        work = call.planned(options_for(candidate, call))
        match work.arithmetic:
            case ProductPlan() as product:
                return _steps_of_product(call, work, product, index)
            case AddPlan() as addition:
                return _steps_of_sum(call, work, addition, index)
        return ()
    options: Mapping[str, Any] = {**call.operation.defaults, **call.options, **options_for(candidate, call)}
    source, target = call.types["input"], options["output_type"]
    output = target.element if isinstance(target, TensorType) else target
    if any(isinstance(each, UniformSubChannelType) for each in (source.element, output)):
        return ()
    if call.numbers:
        # Multipliers are those of the whole tensor.
        explainer = call.operation.explainer(OperationCall(call.types, options, call.numbers))
        whole = flat_bits(call.arrays["input"], explainer.plan.input_dtype, source.element, "input")
        return tuple(explainer.element(index, whole).steps)
    place = np.unravel_index(index, static_shape(source))
    one = OperationCall(
        {"input": TensorType((1, 1), _at(source.element, place))},
        {**options, "output_type": None if output is None else _at(output, place)},
    )
    explainer = call.operation.explainer(one)
    value: Array = np.ascontiguousarray(call.arrays["input"]).reshape(-1)[index : index + 1]
    stored = flat_bits(value, explainer.plan.input_dtype, source.element, "input")
    steps: Sequence[Step] = explainer.element(0, stored).steps
    return steps


def _steps_of_product(call: ArrayCall, work: PlannedWork, plan: ProductPlan, index: int) -> Sequence[Step]:
    """Return the steps from a sum with its bias to an element of the output; none where sums are the output."""
    stage, shape = plan.stage, plan.accumulation.shape
    if stage is None:
        return ()
    stored = [flat_bits(call.arrays[name], each.dtype, each.type.element, name) for name, each in work.operands.items()]
    lhs, rhs, *bias = stored
    sums = plan.accumulation.run(lhs, rhs, plan.check(lhs, rhs, bias[0] if bias else None))
    # The dimensions of the output are those of the sums in another order.
    place = np.zeros(len(shape), np.int64)
    place[list(plan.order)] = np.unravel_index(index, static_shape(plan.output_type))
    position = int(np.ravel_multi_index(list(place), shape))
    block = parameter_index(shape, stage.granularity.blocks, position)
    explainer = plan_explainer(stage.of_block(block, plan.elements))
    return explainer.element(position, sums.reshape(-1)).steps


_OF_SIDE: Mapping[str, tuple[StepKind, str]] = {
    "shifted": (StepKind.SHIFT_LEFT, "({side} - z_{side}) * 2^n"),
    "scaled": (StepKind.MULTIPLY, "round(f_{side} * ({side} - z_{side}))"),
    "real": (StepKind.CONVERT, "s_{side} * ({side} - z_{side})"),
}
_OF_SUM: Mapping[str, tuple[StepKind, str]] = {
    "sum": (StepKind.ADD, "lhs_scaled + rhs_scaled"),
    "real_sum": (StepKind.ADD, "lhs_real + rhs_real"),
    "scaled": (StepKind.SHIFT_RIGHT, "round(f * sum)"),
    "after_zero_point": (StepKind.ADD_ZERO_POINT, "scaled + z"),
    "after_clamp": (StepKind.CLAMP, "min(max(y, lowest), highest)"),
}


def _steps_of_sum(call: ArrayCall, work: PlannedWork, plan: AddPlan, index: int) -> Sequence[Step]:
    """Return the stages of one sum, as the trace of an addition names them."""
    elements = []
    for side, operand in (("lhs", plan.lhs), ("rhs", plan.rhs)):
        stored = flat_bits(call.arrays[side], work.operands[side].dtype, operand.tensor.element, side)
        places = np.broadcast_to(np.arange(stored.size).reshape(static_shape(operand.tensor)), plan.shape)
        elements.append(stored[places.reshape(-1)[index : index + 1]])
    target = np.empty(1, plan.output_dtype)
    lhs, rhs = elements
    stages = plan.arithmetic.step(lhs, rhs, target, index, plan.arithmetic.new_counts())
    working = Working()
    for name, value in {**stages, "after_clamp": target}.items():
        side, _, stage = name.partition("_")
        if side in ("lhs", "rhs"):
            kind, formula = _OF_SIDE[stage]
            formula = formula.format(side=side)
        else:
            kind, formula = _OF_SUM[name]
        number = value[0]
        if value.dtype.kind == "f":
            working.text(kind, name, formula, str(number), plan.output.expressed.name)
        else:
            working.integer(kind, name, formula, int(number))
    return working.steps


def _at(element: _AnyType, place: Sequence[np.intp]) -> _AnyType:
    """Return a type with the parameters of the element at a place alone."""
    return one_channel(element, int(place[element.axis])) if isinstance(element, UniformPerAxisType) else element
