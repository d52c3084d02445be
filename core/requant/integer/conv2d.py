"""Two-dimensional convolutions of stored integers, with groups; depthwise is as many groups as input channels.

    sums[n, y, x, o] = sum over i, j, c of (a[n, y*sy + i*dy - top, x*sx + j*dx - left, g*I + c] - za)
                                         * (w[o, i, j, c] - zw[o]) + bias[o],   g = o // (O / groups)

Outside of the input a - za is 0. Two ways lead to these sums, and the one that is expected to be quicker is taken.
Tiled: what the window sees from each pixel is gathered to a row, so that a convolution is a matrix product; a bounded
number of rows at a time. Direct: the input is read where it is, and padding costs nothing; for narrow groups, for few
output channels, for 16 by 16 bits, and for windows that mostly stand on padding.
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
from requant.integer.columns import COST_OF_ELEMENT, COST_OF_START, TiledColumns, cost_of_runs, cost_of_tiles, is_tiled
from requant.integer.output import Side
from requant.integer.product import ProductPlan, choose_accumulator, plan_product, product_operand, rule_of_sums
from requant.integer.window import Layout, Padding, WeightsLayout, Window
from requant.kernels.contract.accumulate import GATHER_PATCHES
from requant.kernels.contract.convolution import CONVOLVE
from requant.mlir.types import TensorType, Type
from requant.profiles import profile_named
from requant.profiles.rule import Accumulator, SumOverflow

__all__ = ["Conv2d", "Layout", "Padding", "WeightsLayout", "Window", "conv2d_integers", "plan_conv2d"]

Array = NDArray[Any]

# Narrower groups leave most of a tile empty.
_NARROWEST_TILED_GROUP = 32
# What gathering one tap of a pixel costs, and placing the window on a pixel (`requant.integer.columns`).
_COST_OF_TAP = 80
_COST_OF_PIXEL = 48
# With fewer columns than this, vectors along them are mostly empty.
_MIN_COLUMNS = 8
# Sums and products between two checks for cancellation.
_DIRECT_SUMS = 1 << 18
_DIRECT_PRODUCTS = 1 << 24
_NHWC = "NHWC"
_TO_OUTPUT = {Layout.NHWC: (0, 1, 2, 3), Layout.NCHW: (0, 3, 1, 2)}


@dataclass(frozen=True, slots=True)
class Conv2d(Accumulation):
    """The sums of a convolution, in memory as images by rows by columns by channels.

    The input has one zero point, the weights one or one for each output channel. `pads` are those before.
    """

    window: Window
    pads: tuple[int, int]

    @classmethod
    def of(
        cls, lhs: Integers, rhs: Integers, window: Window, accumulator: Accumulator, overflow: SumOverflow
    ) -> Conv2d:
        """Check the shapes. Raise TypeFitError or UnsupportedError, about the side at fault, and ParameterError."""
        window.check()
        for name, side, layout in (("lhs", lhs, window.layout), ("rhs", rhs, window.weights_layout)):
            with error_side(name):
                if len(side.shape) != 4:
                    raise TypeFitError(f"there are four dimensions, {layout}; this has {len(side.shape)}")
                own = "" if name == "lhs" else "O"
                for axis, count in enumerate(side.zero_points.shape):
                    if count != 1 and layout[axis] != own:
                        raise UnsupportedError(f"parameters along {layout[axis]} cannot be factored out of a sum")
        images, height, width, channels = (lhs.shape[window.layout.index(each)] for each in _NHWC)
        outputs, tall, wide, depth = (rhs.shape[window.weights_layout.index(each)] for each in "OHWI")
        with error_side("rhs"):
            if 0 in (outputs, tall, wide, depth):
                raise TypeFitError("no dimension of the weights may be 0")
            if channels != depth * window.groups:
                taken = f"{depth} input channels" if window.groups == 1 else f"{depth} of each group's input channels"
                raise TypeFitError(
                    f"the weights have {taken}, and the input has {channels} channels (groups is {window.groups})"
                )
            if outputs % window.groups:
                raise TypeFitError(
                    f"the weights have {outputs} output channels, which {window.groups} groups do not divide"
                )
        with error_side("lhs"):
            rows, above = window.placed(height, tall, 0)
            columns, before = window.placed(width, wide, 1)
        shape = (images, rows, columns, outputs)
        return cls(lhs, rhs, accumulator, overflow, shape, tall * wide * depth, window, (above, before))

    @property
    def columns(self) -> int:
        return self.shape[3]

    @property
    def _kernel(self) -> tuple[int, int]:
        layout = self.window.weights_layout
        return self.rhs.shape[layout.index("H")], self.rhs.shape[layout.index("W")]

    @property
    def _is_tiled(self) -> bool:
        return self._tiled_cost is not None and self._tiled_cost <= self._direct_cost

    @property
    def _tiled_cost(self) -> int | None:
        """The cost of one matrix product for each group; None where tiles cannot make the sums."""
        width = self.columns // self.window.groups
        wide = self.window.groups == 1 or width >= _NARROWEST_TILED_GROUP
        sums = np.dtype(np.int64 if self.accumulator is Accumulator.I64 else np.int32)
        exact = self.overflow is not SumOverflow.WRAP
        if not wide or not is_tiled(self.lhs, self.rhs, np.dtype(np.int64) if exact else sums, self.depth):
            return None
        pixels, groups, taps = prod(self.shape[:3]), self.window.groups, prod(self._kernel)
        blocks = -(-pixels // rows_of_block(self.columns, self.depth))
        gathered = pixels * taps * _COST_OF_TAP
        return groups * (gathered + cost_of_tiles(pixels, self.depth, width) + blocks * COST_OF_START)

    @property
    def _direct_products(self) -> int:
        """How many products have a pixel of the input."""
        return self._touched * (self.depth // prod(self._kernel)) * self.columns

    @property
    def _direct_cost(self) -> int:
        """The cost of these products."""
        touched, groups, depth = self._touched, self.window.groups, self.depth // prod(self._kernel)
        if self._by_columns:
            # The taps of a row of the window are one run, unless they are apart.
            runs = touched * self.columns
            if self.window.dilations[1] == 1:
                runs = -(-runs // self._kernel[1])
        else:
            runs = touched if depth == 1 and self.columns == groups else touched * groups * depth
        pixels = prod(self.shape[:3]) * _COST_OF_PIXEL
        return pixels + self.elements * COST_OF_ELEMENT + cost_of_runs(runs, self._direct_products)

    @property
    def _touched(self) -> int:
        """How many pairs of a pixel of the output and a tap of it lie within the input."""
        height, width = (self.lhs.shape[self.window.layout.index(each)] for each in "HW")
        tall, wide = self._kernel
        return self.shape[0] * self.window.taps_inside(height, tall, 0) * self.window.taps_inside(width, wide, 1)

    @property
    def _by_columns(self) -> bool:
        """Whether the direct way goes through the weights column by column: few columns leave vectors empty."""
        return self.window.groups == 1 and self.columns < _MIN_COLUMNS

    @property
    def cost(self) -> int:
        tiled = self._tiled_cost
        if tiled is not None and self._is_tiled:
            return max(self.products, tiled)
        return max(self._direct_products, self._direct_cost)

    def _input(self, lhs: Array) -> Array:
        """Return the input as images by rows by columns by channels, contiguous."""
        order = [self.window.layout.index(each) for each in _NHWC]
        return np.ascontiguousarray(lhs.reshape(self.lhs.shape).transpose(order))

    def _weights(self, rhs: Array) -> Array:
        """Return the weights as a matrix: height by width by input channels, by output channels."""
        order = [self.window.weights_layout.index(each) for each in "HWIO"]
        return np.ascontiguousarray(rhs.reshape(self.rhs.shape).transpose(order)).reshape(self.depth, self.columns)

    def _patches(self, pixels: Array, first: int, rows: int, channel: int, count: int) -> Array:
        """Return what the window sees of some channels from `rows` pixels on: rows by taps by channels."""
        _, height, width, channels = pixels.shape
        tall, wide = self._kernel
        view = np.uint8 if pixels.dtype.itemsize == 1 else np.int16
        patches = np.empty(rows * tall * wide * count, view)
        fill = self.lhs.zero_points.reshape(-1)[:1].astype(self.lhs.dtype).view(view)[0]
        GATHER_PATCHES[np.dtype(view).name](
            pixels.reshape(-1).view(view), height, width, channels, channel, count, tall, wide, *self.window.strides,
            *self.window.dilations, *self.pads, self.shape[1], self.shape[2], first, fill, patches,
        )  # fmt: skip
        return patches.view(self.lhs.dtype).reshape(rows, tall * wide * count)

    def raw_blocks(self, lhs: Array, rhs: Array, bias: Array, zeros: Zeros, sums: np.dtype[Any]) -> Iterator[Block]:
        pixels, weights = self._input(lhs), self._weights(rhs)
        column_zeros = np.broadcast_to(zeros.rhs.reshape(-1), (self.columns,))
        if self._is_tiled:
            yield from self._tiled_blocks(pixels, weights, bias, int(zeros.lhs.flat[0]), column_zeros, sums)
            return
        # Tensors are padded with their own zero point, whichever is subtracted here.
        own = self._zero_point
        numbers = weights.astype(np.int32) - column_zeros.astype(np.int32)
        added = bias
        if own != int(zeros.lhs.flat[0]):
            outside = (own - int(zeros.lhs.flat[0])) * numbers.sum(axis=0, dtype=np.int64)
            # int64 to int32 is modulo 2^32.
            added = (bias + outside).astype(sums)
        if self._by_columns:
            numbers = np.ascontiguousarray(numbers.T)
        yield from self._direct_blocks(pixels, numbers.reshape(-1), added, self.window.groups, self._by_columns)

    @property
    def _zero_point(self) -> int:
        return int(self.lhs.zero_points.flat[0])

    def _tiled_blocks(
        self, pixels: Array, weights: Array, bias: Array, zero: int, column_zeros: Array, sums: np.dtype[Any]
    ) -> Iterator[Block]:
        groups, columns = self.window.groups, self.columns
        width, depth = columns // groups, pixels.shape[3] // groups
        parts: list[tuple[int, int, TiledColumns]] = []
        for first, channel in zip(range(0, columns, width), range(0, pixels.shape[3], depth), strict=True):
            check_cancelled()
            own = column_zeros[first : first + width]
            parts.append((first, channel, TiledColumns(weights, self.lhs, self.rhs, own, sums, first, width)))
        count = prod(self.shape[:3])
        step = rows_of_block(columns, self.depth)
        for row in range(0, count, step):
            rows = min(step, count - row)
            row_zeros = np.full(rows, zero, np.int64)
            target = np.empty(rows * columns, sums)
            for first, channel, part in parts:
                check_cancelled()
                patches = self._patches(pixels, row, rows, channel, depth)
                part.accumulate(patches, row_zeros, bias[first:], target[first:], columns)
            yield Block(row * columns, target)

    def _direct_blocks(
        self, pixels: Array, numbers: Array, bias: Array, groups: int, by_columns: bool
    ) -> Iterator[Block]:
        """Yield the sums of products with `numbers`, the weights less their zero points, and `bias.size` columns."""
        _, height, width, channels = pixels.shape
        tall, wide = self._kernel
        view = np.dtype(np.uint8 if pixels.dtype.itemsize == 1 else np.int16)
        # Signed bytes become unsigned, unsigned 16-bit numbers signed, and the zero point moves with them.
        flip = 0x80 if pixels.dtype == np.int8 else -0x8000 if pixels.dtype == np.uint16 else 0
        convolve = CONVOLVE[view.name, bias.dtype.name]
        source = pixels.reshape(-1).view(view)
        count, columns = prod(self.shape[:3]), bias.size
        busiest = min(tall, height) * min(wide, width) * (channels // groups) * columns
        step = max(min(_DIRECT_SUMS // columns, _DIRECT_PRODUCTS // max(busiest, 1)), 1)
        for first in range(0, count, step):
            target = np.empty(min(step, count - first) * columns, bias.dtype)
            convolve(
                source, view.type(flip), bias.dtype.type(self._zero_point + flip), height, width, channels, groups,
                numbers, by_columns, tall, wide, *self.window.strides, *self.window.dilations, *self.pads,
                self.shape[1], self.shape[2], first, bias, target,
            )  # fmt: skip
            yield Block(first * columns, target)

    def spread_zeros(self) -> Zeros:
        return Zeros(self.lhs.zero_points.reshape(1, 1, 1, 1), self.rhs.zero_points.reshape(1, 1, 1, -1))

    def sums_of_rows(self, lhs: Array) -> Array:
        pixels, groups = self._input(lhs), self.window.groups
        depth = pixels.shape[3] // groups
        # Products with ones, and the zero point for every tap: what is padded is the zero point.
        ones = np.ones(prod(self._kernel) * depth * groups, np.int32)
        padded = np.full(groups, self._zero_point * self.depth, np.int64)
        row_sums = np.empty((prod(self.shape[:3]), groups), np.int64)
        for start, sums in self._direct_blocks(pixels, ones, padded, groups, by_columns=groups == 1):
            row_sums.reshape(-1)[start : start + sums.size] = sums
        return np.repeat(row_sums, self.columns // groups, axis=1).reshape(self.shape)

    def sums_of_columns(self, rhs: Array) -> Array:
        sums: Array = self._weights(rhs).sum(axis=0, dtype=np.int64)
        return sums


def conv2d_integers(
    lhs: Array,
    rhs: Array,
    lhs_zero_point: int = 0,
    rhs_zero_points: Array | int = 0,
    *,
    window: Window | None = None,
    accumulator: Accumulator = Accumulator.I32,
    overflow: SumOverflow = SumOverflow.WRAP,
) -> Array:
    """Return the sums of a convolution as int32 or int64, in the window's layout, as ONNX ConvInteger defines them.

    The operands are int8, uint8, int16 or uint16; `rhs_zero_points` is one, or one for each output channel. Raise
    TypeFitError, UnsupportedError, ParameterError, or PreconditionError where the rule for overflow is to.
    """
    used = window or Window()
    zeros = np.asarray(rhs_zero_points, np.int64).reshape(-1)
    spread = [-1 if each == "O" else 1 for each in used.weights_layout]
    sides = Integers.of_array(lhs, lhs_zero_point), Integers.of_array(rhs, zeros.reshape(spread))
    if zeros.size not in (1, *sides[1].shape[used.weights_layout.index("O") :][:1]):
        raise TypeFitError(f"{zeros.size} zero points of weights; there must be one, or one for each output channel")
    accumulation = Conv2d.of(*sides, used, accumulator, overflow)
    sums = accumulation.run(*(np.ascontiguousarray(each).reshape(-1) for each in (lhs, rhs)))
    return np.ascontiguousarray(sums.reshape(accumulation.shape).transpose(_TO_OUTPUT[used.layout]))


def plan_conv2d(
    lhs: TensorType,
    rhs: TensorType,
    output: Type,
    profile: str = "litert",
    *,
    window: Window,
    bias: TensorType | None = None,
    scheme: str | None = None,
    accumulator: Accumulator | None = None,
    overflow: SumOverflow | None = None,
) -> ProductPlan:
    """Plan the convolution of an input with weights, and a bias for each output channel, to `output`.

    The input is quantized per tensor, the weights per tensor or per output channel. The rest is as in `plan_matmul`.
    """
    operands = [product_operand(each, side, profile) for each, side in ((lhs, "lhs"), (rhs, "rhs"))]
    a, b = (Integers.of_operand(each) for each in operands)
    rule = profile_named(profile).product_rule("conv2d")
    kept = choose_accumulator(a, b, output, bias, accumulator, rule.accumulator)
    rule = rule_of_sums(rule, kept, operands[0], operands[1])
    accumulation = Conv2d.of(a, b, window, kept, overflow or rule.overflow)
    sides = (
        Side(operands[0], (None,) * 4),
        Side(operands[1], tuple(3 if each == "O" else None for each in window.weights_layout)),
    )
    return plan_product(accumulation, sides, output, bias, rule, profile, scheme, _TO_OUTPUT[window.layout])
