"""Every stage of an integer operation, as an array with its type. The stages of an addition are those of its
arithmetic (`requant.integer.add`); a product has these:

    accumulator                     sum a*b of stored integers
    lhs_zero_point_correction       -za * sum b
    rhs_zero_point_correction       -zb * sum a
    zero_points_correction          K * za * zb
    corrected                       the sum of these four: sum (a - za) * (b - zb)
    bias, biased                    what is added to each column, and the sum
    scaled                          the product with the factor, rounded; with zero points that are added before
                                    rounding not rounded yet, and a float
    after_zero_point                rounded, with the zero point of the output; shown within i32
    after_clamp                     the output

All of them have the order of the output. Sums that the accumulator does not hold are shown as it keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.scaling import plan_scaling
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.integer.accumulation import DTYPES, Zeros
from requant.integer.add import AddPlan
from requant.integer.output import OutputStage
from requant.integer.product import ProductPlan
from requant.kernels.convert.requantize.rules import FloatRule
from requant.mlir.types import TensorType
from requant.plan.operands import StoredOperand, integer_operand, static_shape
from requant.schemes import Float, Multiplier, Scheme

Array = NDArray[Any]

_INT32 = IntegerElement(32)
_ELEMENTS: dict[str, IntegerElement | FloatElement] = {
    "int32": _INT32,
    "int64": IntegerElement(64),
    "float16": FLOATS["f16"],
    "float32": FLOATS["f32"],
    "float64": FLOATS["f64"],
}

STAGES_OF_SUMS = 5
"""How many stages sum all products, or the numbers of as many."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One named stage: a tensor of plain numbers, or the output."""

    name: str
    tensor: TensorType
    elements: Array


@dataclass(frozen=True, slots=True)
class Trace:
    """The stages in their order, and the multipliers: of a product one, or one for each column; of an addition those of
    lhs, rhs and the sum, where it has them.
    """

    stages: tuple[Stage, ...]
    multipliers: tuple[Multiplier, ...]


def trace_product(plan: ProductPlan, lhs: Array, rhs: Array, bias: Array | None, output: Array) -> Trace:
    """Return the stages of a product whose `output` is known. The arrays are those of `ProductPlan.run`."""
    accumulation = plan.accumulation
    added = plan.check(lhs, rhs, bias)
    dtype = DTYPES[accumulation.accumulator]
    element = IntegerElement(dtype.itemsize * 8)
    stages: list[Stage] = []

    def show(name: str, numbers: Array) -> None:
        # int64 to int32 is modulo 2^32, as the accumulator is.
        shown = np.broadcast_to(numbers, accumulation.shape).astype(dtype)
        shape, ordered = _in_order(plan, shown)
        stages.append(Stage(name, TensorType(shape, element), ordered))

    def raw(zeros: Zeros, bias: Array) -> Array:
        accumulators = np.zeros(accumulation.elements, dtype)
        if accumulation.elements:
            for start, sums in accumulation.raw_blocks(lhs, rhs, bias.astype(dtype), zeros, dtype):
                accumulators[start : start + sums.size] = sums
        return accumulators.reshape(accumulation.shape)

    none = np.zeros(accumulation.columns, np.int64)
    own = Zeros(accumulation.lhs.zero_points, accumulation.rhs.zero_points)
    show("accumulator", raw(Zeros(*(np.zeros_like(each) for each in own)), none))
    za, zb = accumulation.spread_zeros()
    show("lhs_zero_point_correction", -za * accumulation.sums_of_columns(rhs))
    show("rhs_zero_point_correction", -zb * accumulation.sums_of_rows(lhs))
    show("zero_points_correction", accumulation.depth * za * zb)
    show("corrected", raw(own, none))
    if added is not None:
        show("bias", added)
        show("biased", accumulation.run(lhs, rhs, added).reshape(accumulation.shape))
    if plan.stage is not None and accumulation.elements:
        sums = accumulation.run(lhs, rhs, added)
        stages.extend(_scaled(plan, plan.stage, sums))
    stages.append(Stage("after_clamp", plan.output_type, output))
    return Trace(tuple(stages), () if plan.stage is None else plan.stage.multipliers)


def trace_addition(plan: AddPlan, lhs: Array, rhs: Array, output: Array) -> Trace:
    """Return the stages of an addition whose `output` is known. The arrays are those of `AddPlan.run`."""
    stages = [
        Stage(name, TensorType(plan.shape, _ELEMENTS[elements.dtype.name]), elements)
        for name, elements in plan.stages(lhs, rhs).items()
    ]
    stages.append(Stage("after_clamp", plan.output_type, output))
    return Trace(tuple(stages), tuple(plan.arithmetic.multipliers))


def _in_order(plan: ProductPlan, numbers: Array) -> tuple[tuple[int, ...], Array]:
    shape = static_shape(plan.output_type)
    return shape, np.ascontiguousarray(numbers.reshape(plan.accumulation.shape).transpose(plan.order)).ravel()


def _scaled(plan: ProductPlan, stage: OutputStage, sums: Array) -> list[Stage]:
    """Return the stages between the sums and the clamp, where there are multipliers."""
    if stage.scheme is None:
        return []
    source = integer_operand(TensorType(plan.accumulation.shape, IntegerElement(sums.itemsize * 8)), "sums")
    wide = integer_operand(TensorType(plan.accumulation.shape, _INT32), "output")
    with_zeros = replace(wide, zero_points=stage.target.zero_points, blocks=stage.target.blocks)
    without = replace(with_zeros, zero_points=(0,) * len(stage.target.zero_points))

    def converted(scheme: Scheme, target: StoredOperand) -> Array:
        scaling = plan_scaling(
            scheme,
            source,
            target,
            stage.granularity,
            stage.multipliers,
            profile=plan.profile,
            exact=stage.factors,
        )
        numbers = np.empty(sums.size, np.int32)
        scaling.step(sums, numbers, 0, scaling.new_counts())
        return numbers

    rule = stage.scheme.stage.rule if isinstance(stage.scheme.stage, Float) else None
    if rule in (FloatRule.F32_OFFSET, FloatRule.F64_EVEN_OFFSET):
        kind = np.float32 if rule is FloatRule.F32_OFFSET else np.float64
        channels = stage.granularity.channels.as_runs()
        index = np.arange(sums.size)
        place = (
            index // channels.group % channels.groups * channels.channels + index // channels.run % channels.channels
        )
        factors = channels.lay_out(np.array(stage.factors), "<f8")[place].astype(np.float32)
        real = sums.astype(kind) * factors.astype(kind)
        shape, ordered = _in_order(plan, real)
        scaled = Stage("scaled", TensorType(shape, FLOATS["f32" if kind is np.float32 else "f64"]), ordered)
    else:
        shape, ordered = _in_order(plan, converted(stage.scheme, without))
        scaled = Stage("scaled", TensorType(shape, _INT32), ordered)
    shape, ordered = _in_order(plan, converted(stage.scheme, with_zeros))
    return [scaled, Stage("after_zero_point", TensorType(shape, _INT32), ordered)]
