"""Kernels of integer products: packing, sums of products, and what makes them sums of differences to zero points.

    sum over k of (a[m, k] - za[m]) * (b[k, n] - zb[n])
        = sum a*b - zb[n] * (sum over k of a[m, k] - K * za[m]) - za[m] * sum over k of b[k, n]

Tiled: the operands are packed to panels of as many rows or columns as a tile has (`requant.kernels.contract.tile`),
each number less an offset that makes bytes on the left what the instruction takes and bytes on the right signed, and
16-bit numbers signed. An offset is a part of the zero point, so the right side above puts it right. Everything is exact
modulo 2^32 or 2^64, whatever is passed on the way.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numba import types

from requant.kernels.contract.tile import (
    HAS_BYTE_PRODUCTS,
    ROWS_ARE_UNSIGNED,
    TILE_COLUMNS,
    TILE_ROWS,
    multiply_tile_of_bytes,
    multiply_tile_of_pairs,
)
from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.signature import I8, I16, I32, I64, U8, In, Out

Source = TypeVar("Source", U8, I8, I16)
Packed = TypeVar("Packed", U8, I8, I16)
Columns = TypeVar("Columns", I8, I16)
Sum = TypeVar("Sum", I32, I64)

BYTES_OF_GROUP = 4
BYTES_OF_ROWS = types.uint8 if ROWS_ARE_UNSIGNED else types.int8


def _pack_rows(number: types.Type, packed: types.Type) -> Kernel:
    """Packs bytes as 4 to a group, and 16-bit numbers as 2."""
    unit = BYTES_OF_GROUP if packed is not types.int16 else BYTES_OF_GROUP // 2
    stored: Any = {types.uint8: np.uint8, types.int8: np.int8, types.int16: np.int16}[packed]

    @kernel({Source: number, Packed: packed})
    def pack_rows(
        source: In[Source],  # rows of `width` numbers
        width: I64,
        rows: I64,
        first: I64,  # first k
        depth: I64,  # how many k
        flip: I64,  # exclusive or of every number; the highest bit subtracts or adds the offset
        target: Out[Packed],  # zeros, panels of TILE_ROWS rows
        sums: Out[I64],  # of the packed numbers of each row, added to
    ) -> None:
        groups = (depth + unit - 1) // unit
        whole = depth // unit
        for row in range(rows):
            numbers = source[row * width + first : row * width + first + depth]
            panel = target[(row // TILE_ROWS * groups * TILE_ROWS + row % TILE_ROWS) * unit :]
            total = np.int64(0)
            for group in range(whole):
                for i in range(unit):
                    value = stored(numbers[group * unit + i] ^ flip)
                    panel[group * TILE_ROWS * unit + i] = value
                    total += value
            for k in range(whole * unit, depth):
                value = stored(numbers[k] ^ flip)
                panel[k // unit * TILE_ROWS * unit + k % unit] = value
                total += value
            sums[row] += total

    return pack_rows


def _pack_columns(number: types.Type, packed: types.Type) -> Kernel:
    unit = BYTES_OF_GROUP if packed is not types.int16 else BYTES_OF_GROUP // 2
    signed = np.int16 if packed is types.int16 else np.int8

    @kernel({Source: number, Packed: packed})
    def pack_columns(
        source: In[Source],  # rows of `width` numbers, one for each k
        width: I64,
        first_column: I64,
        columns: I64,
        first: I64,  # first k
        depth: I64,  # how many k
        flip: I64,  # as for rows
        target: Out[Packed],  # zeros, panels of TILE_COLUMNS columns
        sums: Out[I64],  # of the packed numbers of each column, added to
    ) -> None:
        groups = (depth + unit - 1) // unit
        for start in range(0, columns, TILE_COLUMNS):
            count = min(TILE_COLUMNS, columns - start)
            totals = sums[start : start + count]
            for group in range(groups):
                place = (start * groups + group * TILE_COLUMNS) * unit
                panel = target[place : place + count * unit]
                for i in range(min(unit, depth - group * unit)):
                    k = first + group * unit + i
                    begin = k * width + first_column + start
                    numbers = source[begin : begin + count]
                    for column in range(count):
                        value = signed(numbers[column] ^ flip)
                        panel[column * unit + i] = value
                        totals[column] += value

    return pack_columns


def _multiply(of_bytes: bool) -> Kernel:
    packed = BYTES_OF_ROWS if of_bytes else types.int16
    columns_type = types.int8 if of_bytes else types.int16

    @kernel({Packed: packed, Columns: columns_type})
    def multiply(
        a: In[Packed],  # packed rows
        b: In[Columns],  # packed columns
        groups: I64,  # of k
        first: I64,  # first panel of b
        panels: I64,  # of b
        sums: Out[I32],  # added to: panels of a by panels of b, row-major
    ) -> None:
        stride = panels * TILE_COLUMNS
        step = groups * TILE_ROWS * BYTES_OF_GROUP
        row_panels = sums.size // (stride * TILE_ROWS)
        for panel in range(panels):
            b_at = b.ctypes.data + (first + panel) * groups * TILE_COLUMNS * BYTES_OF_GROUP
            for row_panel in range(row_panels):
                a_at = a.ctypes.data + row_panel * step
                c_at = sums.ctypes.data + 4 * (row_panel * TILE_ROWS * stride + panel * TILE_COLUMNS)
                if of_bytes:
                    multiply_tile_of_bytes(a_at, b_at, groups, c_at, stride)
                else:
                    multiply_tile_of_pairs(a_at, b_at, groups, c_at, stride)

    return multiply


PACK_ROWS_OF_BYTES = _pack_rows(types.uint8, BYTES_OF_ROWS)
PACK_COLUMNS_OF_BYTES = _pack_columns(types.uint8, types.int8)
PACK_ROWS_OF_PAIRS = {
    name: _pack_rows(number, types.int16)
    for name, number in (("int8", types.int8), ("uint8", types.uint8), ("int16", types.int16))
}
PACK_COLUMNS_OF_PAIRS = {
    name: _pack_columns(number, types.int16)
    for name, number in (("int8", types.int8), ("uint8", types.uint8), ("int16", types.int16))
}
MULTIPLY_PAIRS = _multiply(False)
MULTIPLY_BYTES = _multiply(True) if HAS_BYTE_PRODUCTS else None
"""None where the processor has no instruction for it; pairs are faster there."""


@kernel()
def add_widened(
    source: In[I32],  # rows of `stride` sums
    stride: I64,
    columns: I64,
    target: Out[I64],  # rows of `columns` sums, added to
) -> None:
    """target[m, n] += source[m, n]."""
    for row in range(target.size // columns):
        sums = source[row * stride : row * stride + columns]
        totals = target[row * columns : (row + 1) * columns]
        for column in range(columns):
            totals[column] += np.int64(sums[column])


def _correct(sum_type: types.Type) -> Kernel:
    number = np.int32 if sum_type is types.int32 else np.int64

    @kernel({Sum: sum_type})
    def correct(
        source: In[Sum],  # rows of `source_stride` sums of packed products
        source_stride: I64,
        columns: I64,
        row_differences: In[Sum],  # for each row: sum of a less K * za
        row_zeros: In[Sum],  # za of each row
        column_zeros: In[Sum],  # zb of each column
        column_sums: In[Sum],  # sums of b of each column
        bias: In[Sum],  # of each column
        target: Out[Sum],  # rows of `target_stride` sums
        target_stride: I64,
    ) -> None:
        for row in range(row_zeros.size):
            sums = source[row * source_stride : row * source_stride + columns]
            corrected = target[row * target_stride : row * target_stride + columns]
            difference, zero = row_differences[row], row_zeros[row]
            for column in range(columns):
                of_columns = number(column_zeros[column] * difference)
                of_rows = number(zero * column_sums[column])
                corrected[column] = number(number(sums[column] - of_columns) - of_rows) + bias[column]

    return correct


CORRECT: dict[str, Kernel] = {"int32": _correct(types.int32), "int64": _correct(types.int64)}
"""By the dtype of the sums."""


@kernel()
def multiply_unpacked(
    a: In[I32],  # rows of `depth` numbers, less their zero points
    b: In[I32],  # `depth` rows of columns, less their zero points
    depth: I64,
    bias: In[I64],  # of each column
    sums: Out[I64],  # rows of columns
) -> None:
    """sums[m, n] = bias[n] + sum over k of a[m, k] * b[k, n], for numbers whose products 32 bits cannot add up."""
    columns = bias.size
    for row in range(sums.size // columns):
        totals = sums[row * columns : (row + 1) * columns]
        totals[:] = bias
        for k in range(depth):
            value = np.int64(a[row * depth + k])
            factors = b[k * columns : (k + 1) * columns]
            for column in range(columns):
                totals[column] += value * np.int64(factors[column])


def _gather(number: types.Type) -> Kernel:
    @kernel({Source: number})
    def gather_patches(
        source: In[Source],  # images of height by width by channels
        height: I64,
        width: I64,
        channels: I64,
        first_channel: I64,
        taken: I64,  # channels taken
        kernel_height: I64,
        kernel_width: I64,
        stride_y: I64,  # vertical stride
        stride_x: I64,  # horizontal stride
        dilation_y: I64,  # vertical dilation
        dilation_x: I64,  # horizontal dilation
        above: I64,  # rows above the source
        before: I64,  # columns before the source
        output_height: I64,
        output_width: I64,
        first_pixel: I64,  # of the output, over all images
        fill: Source,  # what lies outside of the source
        target: Out[Source],  # pixels of kernel height by kernel width by channels taken
    ) -> None:
        patch = kernel_height * kernel_width * taken
        for index in range(target.size // patch):
            pixel = first_pixel + index
            image = pixel // (output_height * output_width)
            top = pixel // output_width % output_height * stride_y - above
            left = pixel % output_width * stride_x - before
            for tap in range(kernel_height * kernel_width):
                y = top + tap // kernel_width * dilation_y
                x = left + tap % kernel_width * dilation_x
                begin = index * patch + tap * taken
                copied = target[begin : begin + taken]
                if 0 <= y < height and 0 <= x < width:
                    place = ((image * height + y) * width + x) * channels + first_channel
                    copied[:] = source[place : place + taken]
                else:
                    copied[:] = fill

    return gather_patches


GATHER_PATCHES: dict[str, Kernel] = {"uint8": _gather(types.uint8), "int16": _gather(types.int16)}
"""What a convolution sees from each pixel of its output, as rows. By the dtype of the numbers."""
