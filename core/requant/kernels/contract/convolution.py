"""Convolutions that read the input where it is: only where the window touches it, nothing of its padding.

    sums[p, o] = bias[o] + sum over i, j inside of the input, c of (a[p, i, j, c] - za) * w[o, i, j, c]

For each pixel of the output the rows and columns of the window that lie inside of the input are two ranges in closed
form, so that what a call costs follows from the products that are not 0 and from the elements of the output, however
large the padding, the strides and the dilations are.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Kernel, Number, device, kernel
from requant.kernels.jit.signature import I16, I32, I64, U8, Bool, In, Out

Source = TypeVar("Source", U8, I16)
Sum = TypeVar("Sum", I32, I64)


@device
def _first_inside(begin: Number, dilation: Number) -> Number:
    """Return the first i >= 0 with begin + i * dilation >= 0."""
    return 0 if begin >= 0 else (dilation - 1 - begin) // dilation


@device
def _last_inside(begin: Number, dilation: Number, size: Number, count: Number) -> Number:
    """Return the i, at most `count`, from which on begin + i * dilation >= size."""
    return 0 if begin >= size else min(count, (size - 1 - begin) // dilation + 1)


def _convolve(number: types.Type, sum_type: types.Type) -> Kernel:
    wide = np.int32 if sum_type is types.int32 else np.int64

    @kernel({Source: number, Sum: sum_type})
    def convolve(
        source: In[Source],  # images of height by width by channels
        flip: Source,  # exclusive or of every number
        zero: Sum,  # what is subtracted from each number after that
        height: I64,
        width: I64,
        channels: I64,
        groups: I64,
        weights: In[I32],  # weights less their zero points: see `by_columns`
        by_columns: Bool,  # columns by taps by channels, of one group; else taps by depth by columns
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
        bias: In[Sum],  # of each column
        target: Out[Sum],  # pixels by columns
    ) -> None:
        columns = bias.size
        depth, own = channels // groups, columns // groups
        taps = kernel_height * kernel_width
        pixels = target.size // columns
        reach = (kernel_width - 1) * dilation_x
        # Up to `index` the pixels of a line are done; `line` counts those of all images.
        index, line, x = 0, first_pixel // output_width, first_pixel % output_width
        while index < pixels:
            stop = min(pixels, index + output_width - x)
            top = line % output_height * stride_y - above
            i_begin = _first_inside(top, dilation_y)
            i_end = _last_inside(top, dilation_y, height, kernel_height)
            rows_above = line // output_height * height + top
            for place in range(index, stop):
                sums = target[place * columns : (place + 1) * columns]
                sums[:] = bias
                left = (x + place - index) * stride_x - before
                if i_begin >= i_end or left >= width or left + reach < 0:
                    continue
                j_begin = _first_inside(left, dilation_x)
                j_end = _last_inside(left, dilation_x, width, kernel_width)
                if j_begin >= j_end:
                    continue
                for i in range(i_begin, i_end):
                    row = (rows_above + i * dilation_y) * width + left
                    if by_columns:
                        # Pixels side by side are one run of numbers.
                        runs = 1 if dilation_x == 1 else j_end - j_begin
                        length = (j_end - j_begin) * channels // runs
                        for run in range(runs):
                            begin = (row + (j_begin + run) * dilation_x) * channels
                            numbers = source[begin : begin + length]
                            for column in range(columns):
                                begin = (column * taps + i * kernel_width + j_begin + run) * channels
                                factors = weights[begin : begin + length]
                                total = wide(0)
                                for k in range(length):
                                    total = wide(total + wide(wide(numbers[k] ^ flip) - zero) * wide(factors[k]))
                                sums[column] += total
                        continue
                    for j in range(j_begin, j_end):
                        begin = (row + j * dilation_x) * channels
                        numbers = source[begin : begin + channels]
                        begin = (i * kernel_width + j) * depth * columns
                        factors = weights[begin : begin + depth * columns]
                        if depth == 1 and own == 1:
                            for k in range(columns):
                                sums[k] += wide(wide(numbers[k] ^ flip) - zero) * wide(factors[k])
                            continue
                        for group in range(groups):
                            part = sums[group * own : (group + 1) * own]
                            for k in range(depth):
                                value = wide(wide(numbers[group * depth + k] ^ flip) - zero)
                                begin = k * columns + group * own
                                row_of_weights = factors[begin : begin + own]
                                for column in range(own):
                                    part[column] += value * wide(row_of_weights[column])
            index, line, x = stop, line + 1, 0

    return convolve


CONVOLVE: dict[tuple[str, str], Kernel] = {
    (name, sums): _convolve(number, sum_type)
    for name, number in (("uint8", types.uint8), ("int16", types.int16))
    for sums, sum_type in (("int32", types.int32), ("int64", types.int64))
}
"""By the dtype in which the input is viewed, and that of the sums."""
