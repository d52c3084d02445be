"""A product with its bias and output stage: what a profile makes of the sums of two quantized operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import PreconditionError, TensorDataError, UnsupportedError, error_side
from requant.formats.elements import IntegerElement
from requant.formats.rounding import Rounding
from requant.integer.accumulation import DTYPES, STORAGES, Accumulation, Integers
from requant.integer.output import Bias, OutputStage, Side, plan_bias, plan_output
from requant.mlir.printer import print_type
from requant.mlir.types import TensorType, Type
from requant.plan.operands import (
    QuantizedOperand,
    StoredOperand,
    bind,
    integer_operand,
    quantized_operand,
    static_shape,
)
from requant.plan.plan import Report
from requant.profiles import OperationRule
from requant.profiles.rule import DEQUANTIZE, INTEGERS, Accumulator, ProductRule
from requant.schemes import Factor

Array = NDArray[Any]

_EXPRESSED = ("f16", "bf16", "f32", "f64")
OPERANDS = replace(DEQUANTIZE, storages=STORAGES, expressed=_EXPRESSED)
"""Which quantized types operands may have."""
OPERANDS_OF_BATCHES = replace(OPERANDS, granularities=(*OPERANDS.granularities, "sub_channel"))
"""The same, and those whose blocks have one index, or all, of each dimension: parameters for each matrix of a batch."""
_BIASES = replace(DEQUANTIZE, storages=INTEGERS, expressed=_EXPRESSED)


def product_operand(tensor: TensorType, side: str, profile: str, rule: OperationRule = OPERANDS) -> StoredOperand:
    """Take one side apart: quantized as `rule` has it, or plain integers; of 2 to 16 bits."""
    with error_side(side):
        if not isinstance(tensor.element, IntegerElement):
            return quantized_operand(tensor, side, rule, profile)
        operand = integer_operand(tensor, side)
        if operand.storage not in STORAGES:
            raise UnsupportedError(f"the {side} has {operand.storage} elements; products take 2 to 16 bits")
        return operand


def rule_of_sums(
    rule: ProductRule, accumulator: Accumulator, lhs: StoredOperand, rhs: StoredOperand, depth: int | None = None
) -> ProductRule:
    """Return the variant of a rule for the sums of two operands. `depth`: the K of a matmul."""
    undelegated = (
        max(lhs.width, rhs.width) > 8
        or (rhs.storage[0] == "i" and any(rhs.zero_points))
        or (rhs.storage in ("i4", "i2") and not _is_in_whole_bytes(rhs, depth))
    )
    return rule.of_sums(accumulator, undelegated=undelegated, per_axis=len(rhs.zero_points) > 1)


def _is_in_whole_bytes(weights: StoredOperand, depth: int | None) -> bool:
    """Return whether XNNPACK takes weights of less than a byte: in FULLY_CONNECTED alone, whose rows have to end with
    a byte, and those of 2 bits need a scale for each channel.
    """
    if depth is None or (weights.width == 2 and len(weights.zero_points) == 1):
        return False
    return depth * weights.width % 8 == 0


def choose_accumulator(
    lhs: Integers,
    rhs: Integers,
    output: Type,
    bias: TensorType | None,
    requested: Accumulator | None,
    without_bias: Accumulator | None,
) -> Accumulator:
    """Return the accumulator: that of a plain output, the requested one, the bias's, or `without_bias`, by default
    what the operands need.

    Raise UnsupportedError for a plain output of another type, or than the one that is given.
    """
    element = output.element if isinstance(output, TensorType) else output
    if isinstance(element, IntegerElement):
        with error_side("output"):
            if not element.signed or element.width not in (32, 64):
                raise UnsupportedError(
                    f"a plain output is the sums as they are, in i32 or i64; {print_type(element)} is neither"
                )
            kept = Accumulator(f"i{element.width}")
            if requested not in (None, kept):
                raise UnsupportedError(
                    f"the accumulator is {requested}, and the output {kept}; plain outputs are the sums"
                )
        return kept
    if requested is not None:
        return requested
    widest = max(lhs.highest - lhs.lowest, rhs.highest - rhs.lowest)
    if bias is not None and isinstance(bias.element, IntegerElement):
        return Accumulator.I64 if bias.element.width > 32 else Accumulator.I32
    if bias is None and without_bias is not None:
        return without_bias
    return Accumulator.I64 if widest > 255 and bias is None else Accumulator.I32


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductPlan:
    """A product. `output_type` is bound. `order`: the dimension in memory of each dimension of the output."""

    profile: str
    types: tuple[TensorType, TensorType]
    accumulation: Accumulation
    bias: Bias | None
    stage: OutputStage | None
    output_type: TensorType
    output_dtype: np.dtype[Any]
    order: tuple[int, ...]

    @property
    def elements(self) -> int:
        return self.accumulation.elements

    def operand(self, side: str) -> tuple[TensorType, Integers]:
        """Return the type of "lhs", "rhs" or "bias", and its integers."""
        if side == "bias":
            assert self.bias is not None
            return self.bias.tensor, self.bias.integers
        lhs, rhs = self.types
        return (lhs, self.accumulation.lhs) if side == "lhs" else (rhs, self.accumulation.rhs)

    def run(self, lhs: Array, rhs: Array, bias: Array | None, target: Array) -> Report:
        """Compute flat stored integers to `target`, which is flat and of `output_dtype`.

        Raise TensorDataError if the arrays are not those of the types, PreconditionError if the arithmetic is not
        defined for an element.
        """
        added = self.check(lhs, rhs, bias)
        results = target if self._is_in_order else np.empty(self.elements, self.output_dtype)
        try:
            report = self._run(lhs, rhs, added, results)
        except PreconditionError as error:
            self._place(error)
            raise
        if not self._is_in_order:
            shape = static_shape(self.output_type)
            np.copyto(target.reshape(shape), results.reshape(self.accumulation.shape).transpose(self.order))
        return report

    def _run(self, lhs: Array, rhs: Array, added: Array | None, results: Array) -> Report:
        if self.stage is None:
            for start, sums in self.accumulation.blocks(lhs, rhs, added):
                results[start : start + sums.size] = sums
            return Report(self.profile, "none", self.elements, 0, 0, 0)
        counts = self.stage.plan.new_counts()
        for start, sums in self.accumulation.blocks(lhs, rhs, added):
            self.stage.plan.step(sums, results[start : start + sums.size], start, counts)
        return self.stage.plan.report(counts)

    def check(self, lhs: Array, rhs: Array, bias: Array | None) -> Array | None:
        """Check arrays against the types, and return the bias as it is added."""
        with error_side("lhs"):
            self.accumulation.lhs.check(lhs)
        with error_side("rhs"):
            self.accumulation.rhs.check(rhs)
        if (bias is None) is not (self.bias is None):
            raise TensorDataError("give a bias and its type together, or neither")
        if bias is None or self.bias is None:
            return None
        with error_side("bias"):
            self.bias.integers.check(bias)
            return self.bias.added(bias)

    @property
    def _is_in_order(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    def _place(self, error: PreconditionError) -> None:
        """Turn the index of an element in memory to that in the output."""
        if error.index is not None and not self._is_in_order and error.index < self.elements:
            place = np.unravel_index(error.index, self.accumulation.shape)
            moved = [place[axis] for axis in self.order]
            error.index = int(np.ravel_multi_index(moved, static_shape(self.output_type)))


def _scales_of_sums(sides: Sequence[Side], columns: int) -> list[float] | None:
    """Return the scale of the sums of each column, the exact product of two f32, or None where a row has its own."""
    lhs, rhs = (side.operand for side in sides)
    if not isinstance(lhs, QuantizedOperand) or not isinstance(rhs, QuantizedOperand):
        return None
    if len(lhs.scales) != 1 or len(rhs.scales) not in (1, columns):
        return None
    with np.errstate(over="ignore"):
        input_scale = float(np.float32(lhs.scales[0]))
        return [input_scale * float(np.float32(scale)) for scale in rhs.scales]


def plan_product(
    accumulation: Accumulation,
    sides: tuple[Side, Side],
    output: Type,
    bias: TensorType | None,
    rule: ProductRule,
    profile: str,
    scheme: str | None,
    order: tuple[int, ...] | None = None,
    factor: Factor | None = None,
) -> ProductPlan:
    """Plan bias and output stage of an accumulation. See `ProductPlan` for `order`; by default, that of memory."""
    order = tuple(range(len(accumulation.shape))) if order is None else order
    with error_side("output"):
        bound = bind(output, tuple(accumulation.shape[axis] for axis in order))
    biases = replace(_BIASES, rounding=Rounding.NEAREST_AWAY if profile.startswith("litert") else Rounding.NEAREST_EVEN)
    planned = None
    if bias is not None:
        scales = _scales_of_sums(sides, accumulation.columns)
        planned = plan_bias(bias, accumulation.columns, scales, biases, profile)
    stage = None
    dtype = DTYPES[accumulation.accumulator]
    if not isinstance(bound.element, IntegerElement):
        kept = accumulation.accumulator
        stage = plan_output(accumulation.shape, kept, sides, bound, order, rule, profile, scheme, factor)
        dtype = stage.plan.output_dtype
    return ProductPlan(
        profile=profile,
        types=(sides[0].operand.tensor, sides[1].operand.tensor),
        accumulation=accumulation,
        bias=planned,
        stage=stage,
        output_type=bound,
        output_dtype=dtype,
        order=order,
    )
