"""Operands of ONNX's matrix products: numpy's rules for shapes, and parameters per row of a and per column of b.

Parameters are one number, or a vector as long as the rows of a matrix a [M, K] (the columns of b [K, N]), or have the
rank of their operand with K as 1: [.., M, 1], [.., 1, N]. Source: the text of MatMulInteger and QLinearMatMul.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.description import Array, TensorValue
from requant.errors import TypeFitError
from requant.operators.separate_parameters import Granularity


@dataclass(frozen=True, slots=True)
class Matrix:
    """One operand. `shape` has at least two dimensions; `summed` is the one of K, `kept` that of rows or columns."""

    name: str
    shape: tuple[int, ...]
    kept: int

    @property
    def summed(self) -> int:
        """The dimension that is summed over."""
        return len(self.shape) - 1 if self.kept == len(self.shape) - 2 else len(self.shape) - 2

    def parameter_shape(self, parameter: TensorValue, name: str) -> tuple[int, ...]:
        """Return the shape of scales or zero points with the rank of the operand. Raise TypeFitError for another."""
        rank, count = len(self.shape), self.shape[self.kept]
        ones = (1,) * rank
        if parameter.shape in ((), (1,)):
            return ones
        if rank == 2 and parameter.shape == (count,):
            return tuple(count if axis == self.kept else 1 for axis in range(rank))
        whole = tuple(1 if axis == self.summed else size for axis, size in enumerate(self.shape))
        if parameter.shape == whole:
            return whole
        vector = f", {[count]}" if rank == 2 else ""
        raise TypeFitError(
            f"{name} has shape {list(parameter.shape)}; for {self.name} of {list(self.shape)} it has one "
            f"element{vector} or the shape {list(whole)}",
            pointer=f"/inputs/{name}",
        )

    def granularity(self, shape: tuple[int, ...]) -> Granularity:
        """Return which parameters of `shape` belong to which element."""
        varying = [axis for axis, size in enumerate(shape) if size > 1]
        if not varying:
            return Granularity()
        if len(varying) == 1:
            return Granularity(varying[0])
        return Granularity(
            self.kept, tuple(max(self.shape[axis], 1) if size == 1 else 1 for axis, size in enumerate(shape))
        )


@dataclass(frozen=True, slots=True)
class Matrices:
    """Both operands as matrices or batches of them, and the shape of the product without the dimensions of vectors."""

    a: Matrix
    b: Matrix
    dropped: tuple[int, ...]

    @classmethod
    def of(cls, a: TensorValue, b: TensorValue, names: tuple[str, str]) -> Matrices:
        """Take two operands. Raise TypeFitError for one of rank 0."""
        for operand, name in zip((a, b), names, strict=True):
            if not operand.shape:
                raise TypeFitError(f"{name} has rank 0; a product takes 1 or more", pointer=f"/inputs/{name}")
        row, column = len(a.shape) == 1, len(b.shape) == 1
        left = (1, *a.shape) if row else a.shape
        right = (*b.shape, 1) if column else b.shape
        dropped = (*((-2,) if row else ()), *((-1,) if column else ()))
        return cls(Matrix(names[0], left, len(left) - 2), Matrix(names[1], right, len(right) - 1), dropped)

    def product_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the product of the operands in their own shapes."""
        return tuple(size for axis, size in enumerate(shape) if axis - len(shape) not in self.dropped)


def zeros_of(matrix: Matrix, parameter: TensorValue | None, name: str) -> Array:
    """Return zero points with the rank of the operand, 0 where there are none."""
    if parameter is None:
        return np.zeros((1,) * len(matrix.shape), np.int64)
    return parameter.data.astype(np.int64).reshape(matrix.parameter_shape(parameter, name))
