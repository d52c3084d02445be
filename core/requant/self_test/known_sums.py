"""Known answers of sums of products: matrix products and convolutions, by each kind of kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.integer.conv2d import Padding, Window, conv2d_integers
from requant.integer.matmul import matmul_integers
from requant.profiles.rule import Accumulator
from requant.self_test.digest import digest

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class KnownSums:
    """Sums of products by one kind of kernel, of the operands that `factors` makes, and the start of their SHA-256.

    With `weights`, the shape OHWI of a 3 by 3 kernel, they are those of a convolution, else of a matrix product.
    """

    lhs: str
    rhs: str
    accumulator: Accumulator
    digest: str
    weights: tuple[int, int, int, int] | None = None

    def factors(self) -> tuple[Array, Array]:
        """Return operands whose numbers are the low bits of k * 2654435761, for k from 0 and from 100000 on."""
        shapes: tuple[tuple[int, ...], ...] = (13, 1037), (1037, 131)
        if self.weights is not None:
            shapes = (1, 9, 11, 37), self.weights
        operands = []
        for first, shape, dtype in zip((0, 100_000), shapes, (self.lhs, self.rhs), strict=True):
            bits = (np.arange(first, first + prod(shape), dtype=np.uint64) * 2654435761 >> 7).astype(np.uint32)
            operands.append(bits.astype(dtype).reshape(shape))
        return operands[0], operands[1]

    def sums(self) -> Array:
        """Return the sums of this machine."""
        lhs, rhs = self.factors()
        if self.weights is not None:
            window = Window(padding=Padding.SAME_UPPER, groups=lhs.shape[3] // rhs.shape[3])
            return conv2d_integers(lhs, rhs, 3, -5, window=window, accumulator=self.accumulator)
        return matmul_integers(lhs, rhs, 3, -5, accumulator=self.accumulator)

    def actual(self) -> str:
        """Return what this machine gives, as `digest`."""
        return digest([self.sums()])


# By the way that conv2d goes: an output channel for each input channel, two for each, few for all, more for all where
# tiles cannot be used, and so many that tiles are the cheaper way.
_DEPTHWISE = (37, 3, 3, 1)
_GROUPED = (74, 3, 3, 1)
_FEW = (5, 3, 3, 37)
_MORE = (9, 3, 3, 37)
_TILED = (64, 3, 3, 37)

KNOWN_SUMS = (
    KnownSums("int8", "int8", Accumulator.I32, "4058f424db9a386a"),
    KnownSums("uint8", "int8", Accumulator.I64, "024482e02fce22e4"),
    KnownSums("int16", "int8", Accumulator.I32, "2c09aa669afcd382"),
    KnownSums("int16", "int8", Accumulator.I64, "a2e435c2423f5b75"),
    KnownSums("int16", "int16", Accumulator.I64, "8997e959dba7d145"),
    KnownSums("int8", "int8", Accumulator.I32, "09ecbf5b256844e1", _DEPTHWISE),
    # What is above leaves these kernels out, where bytes are multiplied as such.
    KnownSums("int8", "int16", Accumulator.I64, "3d09913149a96fcc"),
    KnownSums("uint8", "uint16", Accumulator.I64, "59afd55813cf4ca0"),
    KnownSums("int16", "uint8", Accumulator.I64, "0771046bb1bbb38a"),
    KnownSums("uint8", "uint8", Accumulator.I32, "9fdb3119083bc778", _FEW),
    KnownSums("int16", "int8", Accumulator.I64, "4fa3970162fec9f1", _FEW),
    KnownSums("int16", "int8", Accumulator.I64, "caf8b9c4453692b7", _DEPTHWISE),
    KnownSums("uint8", "int8", Accumulator.I64, "a345a4c2fd98f93f", _GROUPED),
    KnownSums("uint8", "int8", Accumulator.I64, "301c7431c5721a7d", _FEW),
    KnownSums("int16", "int16", Accumulator.I32, "c82f403bc5a96c79", _DEPTHWISE),
    KnownSums("uint16", "int16", Accumulator.I32, "625e2c516fdae992", _GROUPED),
    KnownSums("int16", "int16", Accumulator.I64, "ae40885bc26f45b6", _MORE),
    KnownSums("uint8", "int8", Accumulator.I32, "b753dbf9d4540896", _TILED),
    KnownSums("int16", "int8", Accumulator.I32, "bdf86bc78e1a4f31", _TILED),
)
