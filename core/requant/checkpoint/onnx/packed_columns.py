"""The layouts in which the operators hold codes and zero points, filled block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.onnx.block_quantization import Blocks
from requant.checkpoint.onnx.weight_form import WeightForm
from requant.checkpoint.safetensors.dtypes import DTYPES

Array = NDArray[Any]


class MatMulNBitsColumns:
    """Some columns of B [N, blocks, block size * bits / 8], scales and zero points of com.microsoft.MatMulNBits.

    Two codes of 4 bits share a byte, the first one low: K is even. Elements beyond K are 0, and a nibble beyond the
    last zero point is 8.
    """

    def __init__(self, k: int, columns: int, dtype: str, form: WeightForm) -> None:
        self.form, self.k, blocks = form, k, form.blocks(k)
        self.codes = np.zeros((columns, blocks * form.block_size * form.bits // 8), "|u1")
        self.scales = np.empty((columns, blocks), DTYPES[dtype].array)
        self._zero_points = np.full((columns, blocks + (blocks % 2 if form.bits == 4 else 0)), 8, "|u1")

    def put(self, part: Blocks, row: int, column: int) -> None:
        """Put blocks whose first element is W[row, column] in their place."""
        columns, blocks = slice(column, column + part.codes.shape[1]), row // self.form.block_size
        # Rows are packed before they become columns: half as many bytes move.
        packed = part.codes[0::2] | (part.codes[1::2] << 4) if self.form.bits == 4 else part.codes
        begin = row * self.form.bits // 8
        self.codes[columns, begin : begin + len(packed)] = packed.T
        self.scales[columns, blocks : blocks + len(part.scales)] = part.scales.T
        self._zero_points[columns, blocks : blocks + len(part.scales)] = part.zero_points.T

    @property
    def zero_points(self) -> Array:
        """The zero points as they are stored."""
        found = self._zero_points
        return found[:, 0::2] | (found[:, 1::2] << 4) if self.form.bits == 4 else found


class DequantizeLinearRange:
    """Some rows or columns of W as DequantizeLinear holds it, codes and zero points two to a byte, the first one low.

    `transposed`: W is [N, K] in the file. Symmetric codes are INT4, code - 8, and have no zero points.
    """

    def __init__(self, rows: int, columns: int, dtype: str, form: WeightForm, *, transposed: bool) -> None:
        self.form, self.transposed, blocks = form, transposed, form.blocks(rows)
        self._codes, self._zero_points = (np.empty((height, columns), "|u1") for height in (rows, blocks))
        self._scales = np.empty((blocks, columns), DTYPES[dtype].array)

    def put(self, part: Blocks, row: int, column: int) -> None:
        """Put blocks whose first element is the one at [row, column] of this range in their place."""
        columns, blocks = slice(column, column + part.codes.shape[1]), row // self.form.block_size
        self._codes[row : row + len(part.codes), columns] = part.codes
        self._scales[blocks : blocks + len(part.scales), columns] = part.scales
        self._zero_points[blocks : blocks + len(part.scales), columns] = part.zero_points

    @property
    def codes(self) -> Array:
        """The codes as they are stored."""
        return self._nibbles(self._codes ^ 8 if self.form.symmetric else self._codes)

    @property
    def scales(self) -> Array:
        """The scales as they are stored."""
        return np.ascontiguousarray(self._scales.T if self.transposed else self._scales)

    @property
    def zero_points(self) -> Array:
        """The zero points as they are stored."""
        return self._nibbles(self._zero_points)

    def _nibbles(self, codes: Array) -> Array:
        """Pack codes in row-major order; beyond an odd number of them is a 0."""
        flat = (codes.T if self.transposed else codes).reshape(-1)
        even = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
        packed: Array = even[0::2] | (even[1::2] << 4)
        return packed
