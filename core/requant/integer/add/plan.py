"""A plan of an addition: the arithmetic, and the shapes that it is broadcast over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import PreconditionError, error_side
from requant.integer.accumulation import Integers
from requant.integer.add.arithmetic import Arithmetic
from requant.mlir.types import TensorType
from requant.plan.operands import QuantizedOperand, static_shape
from requant.plan.plan import check_flat, pieces
from requant.plan.report import Report

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPlan:
    """lhs + rhs, of `shape` when broadcast."""

    profile: str
    shape: tuple[int, ...]
    lhs: QuantizedOperand
    rhs: QuantizedOperand
    output: QuantizedOperand
    arithmetic: Arithmetic

    @property
    def elements(self) -> int:
        """How many elements the output has."""
        return prod(self.shape)

    @property
    def output_type(self) -> TensorType:
        """The type of the output, with its shape."""
        return self.output.tensor

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """The dtype of the output's stored numbers."""
        return self.output.dtype

    def operand(self, side: str) -> tuple[TensorType, Integers]:
        """Return the type of "lhs" or "rhs", and its integers."""
        operand = self.lhs if side == "lhs" else self.rhs
        return operand.tensor, Integers.of_operand(operand)

    def _broadcast(self, lhs: Array, rhs: Array) -> Iterator[Array]:
        for side, array in (("lhs", lhs), ("rhs", rhs)):
            type_, integers = self.operand(side)
            with error_side(side):
                integers.check(array)
            shape = static_shape(type_)
            wide = array if shape == self.shape else np.broadcast_to(array.reshape(shape), self.shape)
            # One element is broadcast without a copy, as a view with strides of 0; kernels read what follows it.
            yield np.ascontiguousarray(wide).reshape(-1)

    def run(self, lhs: Array, rhs: Array, target: Array) -> Report:
        """Add flat stored integers to `target`, which is flat.

        Raise TensorDataError if the arrays are not those of the types, PreconditionError if the arithmetic is not
        defined for an element.
        """
        report, _ = self._run(lhs, rhs, target, None)
        return report

    def stages(self, lhs: Array, rhs: Array) -> dict[str, Array]:
        """Return what there is between the operands and the output, by name."""
        _, found = self._run(lhs, rhs, np.empty(self.elements, self.output.dtype), max(self.elements, 1))
        return found

    def _run(self, lhs: Array, rhs: Array, target: Array, piece: int | None) -> tuple[Report, dict[str, Array]]:
        """Work piece by piece, or in one of `piece` elements."""
        a, b = self._broadcast(lhs, rhs)
        check_flat(target, self.output.dtype, a.size, "the output")
        counts = self.arithmetic.new_counts()
        found: dict[str, Array] = {}
        for part in pieces(a.size) if piece is None else (slice(0, piece),):
            found = self.arithmetic.step(a[part], b[part], target[part], part.start, counts)
        low, high, missing, undefined = counts[:4].tolist()
        if undefined >= 0:
            raise PreconditionError(self.arithmetic.explain_undefined(counts), index=undefined)
        report = Report(self.profile, self.arithmetic.rounding, self.elements, low, high, missing)
        return report, found
