"""Products of quantized tensors as loops: sums of stored integers, what corrects them for zero points, the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, TensorType, i8, i32, i64
from xdsl.dialects.tensor import EmptyOp, PadOp
from xdsl.dialects.tensor import YieldOp as PadYieldOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr

from requant import mlir
from requant.convert.scaling import ScalingPlan
from requant.errors import UnsupportedError
from requant.integer.accumulation import Integers
from requant.integer.output import Side, plan_output
from requant.integer.product import choose_accumulator, product_operand, rule_of_sums
from requant.lowering.constants import scalar_integer
from requant.lowering.passes.requant_to_integer_arith.contraction import Contraction, Place
from requant.lowering.passes.requant_to_integer_arith.loops import Loops
from requant.lowering.passes.requant_to_integer_arith.profile import Choice
from requant.lowering.passes.requant_to_integer_arith.scaling import is_signed
from requant.lowering.passes.requant_to_integer_arith.sums import SumType
from requant.lowering.passes.rewriting import Emitter
from requant.plan.operands import StoredOperand
from requant.profiles import profile_named
from requant.profiles.integer_rule import Accumulator


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction of two operands, summed in `accumulator`. `is_sum`: its result is the sums as they are."""

    contraction: Contraction
    lhs: StoredOperand
    rhs: StoredOperand
    accumulator: Accumulator
    is_sum: bool
    choice: Choice

    @classmethod
    def of(
        cls, contraction: Contraction, types: Sequence[mlir.TensorType], result: mlir.TensorType, choice: Choice
    ) -> Product:
        """Plan the sums. Raises UnsupportedError for types that have none."""
        lhs, rhs = (
            product_operand(type_, side, choice.profile) for type_, side in zip(types, ("lhs", "rhs"), strict=True)
        )
        for operand, place in ((lhs, contraction.lhs), (rhs, contraction.rhs)):
            dimensions = zip(operand.blocks, operand.tensor.shape or (), contraction.axes(place), strict=True)
            along_sums = any(block == 1 and size != 1 and axis is None for block, size, axis in dimensions)
            if along_sums and len(operand.zero_points) > 1:
                raise UnsupportedError(
                    "parameters along a dimension that is summed over cannot be factored out of a sum"
                )
        if contraction.padding and len(lhs.zero_points) > 1:
            raise UnsupportedError("the input of a convolution has one scale and one zero point")
        own = SumType.of(result.element)
        is_sum = own is not None and own == SumType.of_product(lhs, rhs, contraction)
        kept = Accumulator.I32
        if not is_sum:
            integers = Integers.of_operand(lhs), Integers.of_operand(rhs)
            rule = profile_named(choice.profile).product_rule(contraction.operation).of_batches(contraction.batched)
            kept = choose_accumulator(*integers, result.element, None, None, rule.accumulator)
        return cls(contraction, lhs, rhs, kept, is_sum, choice)

    @property
    def element(self) -> IntegerType:
        """The type of the sums."""
        return i32 if self.accumulator is Accumulator.I32 else i64

    def plan(self, output: mlir.TensorType) -> ScalingPlan:
        """Return the output stage. Raises UnsupportedError where it has no fixed point."""
        contraction = self.contraction
        rule = profile_named(self.choice.profile).product_rule(contraction.operation).of_batches(contraction.batched)
        rule = rule_of_sums(rule, self.accumulator, self.lhs, self.rhs)
        sides = (
            Side(self.lhs, contraction.axes(contraction.lhs)),
            Side(self.rhs, contraction.axes(contraction.rhs)),
        )
        shape = contraction.sizes
        order = tuple(range(len(shape)))
        used = self.choice.scheme
        self.choice.check(used or rule.scheme)
        stage = plan_output(shape, self.accumulator, sides, output, order, rule, self.choice.profile, used)
        assert isinstance(stage.plan, ScalingPlan)
        return stage.plan

    def sums(self, emitter: Emitter, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """Emit sum (a - za) * (b - zb): the sum of a * b, and where there are zero points what corrects it."""
        if any(any(pair) for pair in self.contraction.padding):
            lhs = _padded(emitter, lhs, self.contraction, self.lhs.zero_points[0])
        loops = Loops(emitter, self.contraction.sizes, self.element, self.contraction.summed)
        a = loops.extend(loops.read(lhs, self.contraction.lhs), signed=is_signed(self.lhs), element=self.element)
        b = loops.extend(loops.read(rhs, self.contraction.rhs), signed=is_signed(self.rhs), element=self.element)
        products = loops.inner.add(arith.MuliOp(a, b))
        found = loops.finish(loops.inner.add(arith.AddiOp(loops.total, products)))
        of_lhs, of_rhs = any(self.lhs.zero_points), any(self.rhs.zero_points)
        return self._corrected(emitter, found, lhs, rhs) if of_lhs or of_rhs else found

    def _corrected(self, emitter: Emitter, sums: SSAValue, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """Emit sums - za * (sum of b) - zb * (sum of a) + K * za * zb, each only where its zero points are not 0."""
        contraction, element = self.contraction, self.element
        loops = Loops(emitter, contraction.sizes, element)
        found = loops.read(sums)
        zeros: list[SSAValue] = []
        for operand, place, other, other_value, other_place in (
            (self.lhs, contraction.lhs, self.rhs, rhs, contraction.rhs),
            (self.rhs, contraction.rhs, self.lhs, lhs, contraction.lhs),
        ):
            if not any(operand.zero_points):
                continue
            total, kept = self._side_sums(emitter, other, other_value, other_place)
            zeros.append(self._zero_point(loops, operand, place))
            part = loops.inner.add(arith.MuliOp(loops.read(total, kept), zeros[-1]))
            found = loops.inner.add(arith.SubiOp(found, part))
        if len(zeros) == 2:
            both = loops.inner.add(arith.MuliOp(zeros[0], zeros[1]))
            both = loops.inner.add(arith.MuliOp(both, loops.constant(contraction.depth, element)))
            found = loops.inner.add(arith.AddiOp(found, both))
        return loops.finish(found)

    def _zero_point(self, loops: Loops, operand: StoredOperand, place: Place) -> SSAValue:
        numbers = operand.zero_points
        along = [
            axis for axis, block in zip(self.contraction.axes(place), operand.blocks, strict=True)
            if axis is not None and block == 1
        ][:1] if len(numbers) > 1 else []  # fmt: skip
        return loops.vector(numbers, self.element, [AffineDimExpr(axis) for axis in along], [len(numbers)])

    def _side_sums(
        self, emitter: Emitter, operand: StoredOperand, value: SSAValue, place: Place
    ) -> tuple[SSAValue, Place]:
        """Emit the sums of one side's stored integers, and return them and where each element of the result has its."""
        contraction = self.contraction
        rank, summed = len(contraction.sizes), contraction.summed
        used = {loop for expression in place for loop in expression.used_dims()}
        kept = sorted(loop for loop in used if loop < rank)
        own = {loop: AffineDimExpr(index) for index, loop in enumerate(kept)}
        own |= {rank + index: AffineDimExpr(len(kept) + index) for index in range(len(summed))}
        renamed = [own.get(loop, AffineDimExpr(0)) for loop in range(rank + len(summed))]
        read = [expression.replace_dims_and_symbols(renamed, []) for expression in place]
        loops = Loops(emitter, [contraction.sizes[loop] for loop in kept], self.element, summed)
        number = loops.extend(loops.read(value, read), signed=is_signed(operand), element=self.element)
        windows = [AffineDimExpr(len(kept) + index) for index in range(len(summed))]
        if not set(windows) <= set(read):
            # Loops get their sizes from tensors that they alone index: here from one without contents.
            loops.read(emitter.add(EmptyOp([], TensorType(i8, summed))), windows)
        found = loops.finish(loops.inner.add(arith.AddiOp(loops.total, number)))
        return found, tuple(AffineDimExpr(loop) for loop in kept)


def _padded(emitter: Emitter, value: SSAValue, contraction: Contraction, zero_point: int) -> SSAValue:
    """Emit the input with the zero point around it, which stands for a real zero."""
    type_ = cast(TensorType[Any], value.type)
    fill = emitter.add(arith.ConstantOp(scalar_integer(zero_point, type_.element_type)))
    low, high = zip(*contraction.padding, strict=True)
    shape = [sum(each) for each in zip(low, type_.get_shape(), high, strict=True)]
    block = Block(arg_types=[IndexType()] * len(shape))
    block.add_op(PadYieldOp(fill))
    return emitter.add(PadOp(value, [], [], Region(block), low, high, TensorType(type_.element_type, shape)))
