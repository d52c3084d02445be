"""Matrix products of stored integers: [.., M, K] by [.., K, N], batch dimensions broadcast as numpy's matmul does.

    sums[.., m, n] = sum over k of (a[.., m, k] - za) * (b[.., k, n] - zb) + bias[n]

Source: ONNX MatMulInteger and QLinearMatMul; LiteRT FULLY_CONNECTED and BATCH_MATMUL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import TypeFitError, UnsupportedError, error_side
from requant.errors.cancellation import check_cancelled
from requant.integer.accumulation import Accumulation, Block, Integers, Zeros, rows_of_block
from requant.integer.columns import (
    COST_OF_START,
    Columns,
    TiledColumns,
    UnpackedColumns,
    cost_of_runs,
    cost_of_tiles,
    is_tiled,
)
from requant.integer.output import Side
from requant.integer.product import (
    OPERANDS,
    ProductPlan,
    choose_accumulator,
    plan_product,
    product_operand,
    rule_of_sums,
)
from requant.mlir.types import TensorType, Type
from requant.profiles import OperationRule, profile_named
from requant.profiles.rule import Accumulator, SumOverflow
from requant.schemes import Factor

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Matmul(Accumulation):
    """The sums of a matrix product. Zero points vary along any dimension but K."""

    @classmethod
    def of(cls, lhs: Integers, rhs: Integers, accumulator: Accumulator, overflow: SumOverflow) -> Matmul:
        """Check the shapes. Raise TypeFitError, about the side at fault, if they cannot be multiplied."""
        for name, side, summed in (("lhs", lhs, -1), ("rhs", rhs, -2)):
            with error_side(name):
                if len(side.shape) < 2:
                    raise TypeFitError(f"a matrix has at least two dimensions; this has {len(side.shape)}")
                if side.zero_points.shape[summed] != 1:
                    raise UnsupportedError("the parameters go along the dimension that is summed over")
        with error_side("rhs"):
            if rhs.shape[-2] != lhs.shape[-1]:
                raise TypeFitError(
                    f"the left side has rows of {lhs.shape[-1]} numbers, and the right side columns of {rhs.shape[-2]}"
                )
            try:
                batch = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
            except ValueError:
                detail = f"the batch dimensions {lhs.shape[:-2]} and {rhs.shape[:-2]} cannot be broadcast"
                raise TypeFitError(detail) from None
        return cls(lhs, rhs, accumulator, overflow, (*batch, lhs.shape[-2], rhs.shape[-1]), lhs.shape[-1])

    @property
    def columns(self) -> int:
        return self.rhs.shape[-1]

    @property
    def _has_one_right_side(self) -> bool:
        return prod(self.rhs.shape[:-2]) == 1

    @property
    def cost(self) -> int:
        matrices = 1 if self._has_one_right_side else prod(self.shape[:-2])
        rows = prod(self.shape[:-1]) // max(matrices, 1)
        if is_tiled(self.lhs, self.rhs, self._sums, self.depth):
            each = cost_of_tiles(rows, self.depth, self.columns)
        else:
            each = cost_of_runs((rows + self.columns) * self.depth, rows * self.depth * self.columns)
        return max(self.products, matrices * (each + COST_OF_START))

    def _prepared(self, numbers: Array, zeros: Array, sums: np.dtype[Any]) -> Columns:
        if is_tiled(self.lhs, self.rhs, sums, self.depth):
            return TiledColumns(numbers, self.lhs, self.rhs, zeros, sums, 0, self.columns)
        return UnpackedColumns(numbers, zeros)

    def _matrices(self, lhs: Array, rhs: Array, zeros: Zeros) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Yield rows and columns of each product in turn, each with its zero points."""
        a, b = lhs.reshape(self.lhs.shape), rhs.reshape(self.rhs.shape)
        row_zeros = np.broadcast_to(zeros.lhs, (*self.lhs.shape[:-1], 1))[..., 0]
        column_zeros = np.broadcast_to(zeros.rhs, (*self.rhs.shape[:-2], 1, self.columns))[..., 0, :]
        if self._has_one_right_side:
            # Then all rows of the batch are rows of one product.
            rows = prod(self.lhs.shape[:-1])
            yield (
                a.reshape(rows, self.depth),
                b.reshape(self.depth, self.columns),
                row_zeros.ravel(),
                column_zeros.ravel(),
            )
            return
        batch = self.shape[:-2]
        a, b = (np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (a, b))
        row_zeros, column_zeros = (
            np.broadcast_to(each, (*batch, each.shape[-1])) for each in (row_zeros, column_zeros)
        )
        for index in np.ndindex(*batch):
            yield a[index], b[index], row_zeros[index], column_zeros[index]

    def raw_blocks(self, lhs: Array, rhs: Array, bias: Array, zeros: Zeros, sums: np.dtype[Any]) -> Iterator[Block]:
        start = 0
        step = rows_of_block(self.columns, self.depth)
        for a, b, row_zeros, column_zeros in self._matrices(lhs, rhs, zeros):
            check_cancelled()
            columns = self._prepared(b, column_zeros, sums)
            for row in range(0, a.shape[0], step):
                rows = a[row : row + step]
                target = np.empty(rows.shape[0] * self.columns, sums)
                columns.accumulate(rows, row_zeros[row : row + step], bias, target, self.columns)
                yield Block(start, target)
                start += target.size

    def spread_zeros(self) -> Zeros:
        return Zeros(self.lhs.zero_points, self.rhs.zero_points)

    def sums_of_rows(self, lhs: Array) -> Array:
        sums: Array = lhs.reshape(self.lhs.shape).sum(axis=-1, dtype=np.int64, keepdims=True)
        return sums

    def sums_of_columns(self, rhs: Array) -> Array:
        sums: Array = rhs.reshape(self.rhs.shape).sum(axis=-2, dtype=np.int64, keepdims=True)
        return sums


def matmul_integers(
    lhs: Array,
    rhs: Array,
    lhs_zero_points: Array | int = 0,
    rhs_zero_points: Array | int = 0,
    *,
    accumulator: Accumulator = Accumulator.I32,
    overflow: SumOverflow = SumOverflow.WRAP,
) -> Array:
    """Return the sums of [.., M, K] by [.., K, N] as int32 or int64, as ONNX MatMulInteger defines them.

    The operands are int8, uint8, int16 or uint16; zero points are broadcast to them, and do not vary along K. Raise
    TypeFitError, UnsupportedError, or PreconditionError where the rule for overflow is to.
    """
    sides = Integers.of_array(lhs, lhs_zero_points), Integers.of_array(rhs, rhs_zero_points)
    accumulation = Matmul.of(*sides, accumulator, overflow)
    sums = accumulation.run(*(np.ascontiguousarray(each).reshape(-1) for each in (lhs, rhs)))
    return sums.reshape(accumulation.shape)


def plan_matmul(
    lhs: TensorType,
    rhs: TensorType,
    output: Type,
    profile: str = "litert",
    *,
    bias: TensorType | None = None,
    scheme: str | None = None,
    accumulator: Accumulator | None = None,
    overflow: SumOverflow | None = None,
    factor: Factor | None = None,
    operand_rule: OperationRule = OPERANDS,
) -> ProductPlan:
    """Plan lhs x rhs + bias to `output`: a quantized type, or plain i32 or i64, which is the sums as they are.

    lhs and rhs are quantized per tensor or along any dimension but K, or plain integers of at most 16 bits, whose zero
    point is 0. `bias` has N elements (`requant.integer.output`). `scheme` replaces the profile's, `accumulator` and
    `overflow` the defaults, and `factor` how the scheme forms its own. `operand_rule`: which operands are taken.
    Raise TypeFitError, UnsupportedError, UnknownNameError or ParameterError.
    """
    operands = [product_operand(each, side, profile, operand_rule) for each, side in ((lhs, "lhs"), (rhs, "rhs"))]
    a, b = (Integers.of_operand(each) for each in operands)
    rule = profile_named(profile).product_rule("matmul").of_batches(len(b.shape) > 2)
    kept = choose_accumulator(a, b, output, bias, accumulator, rule.accumulator)
    rule = rule_of_sums(rule, kept, operands[0], operands[1], a.shape[-1] if a.shape else None)
    accumulation = Matmul.of(a, b, kept, overflow or rule.overflow)
    rank = len(accumulation.shape)
    of_lhs = [*range(rank - len(a.shape), rank - 1), None]
    of_rhs = [*range(rank - len(b.shape), rank - 2), None, rank - 1]
    sides = Side(operands[0], tuple(of_lhs)), Side(operands[1], tuple(of_rhs))
    return plan_product(accumulation, sides, output, bias, rule, profile, scheme, factor=factor)
