"""Operands of a product whose sums are given numbers, as a system takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count as counting

import numpy as np

from requant.identification.sums import Side, factors_of
from requant.integer.window import Padding, Window
from tests.interop.blind.dump import Array, Dump, Limits, tensor_text
from tests.interop.blind.products import side_of
from tests.interop.integer.quantized_tensors import DTYPES, Quantized


def product_calls(dump: Dump, channel: int, sums: Array) -> Iterator[tuple[dict[str, Array], dict[str, str]]]:
    """The tensors and types of calls with these sums, one for each column or channel of the output, all of them with
    the scale of one channel of the weights. None where no operands of the system have such sums.
    """
    first, second = (name for name in dump.arrays if name != "bias")
    sides = side_of(dump.types[first]), side_of(dump.types[second])
    made = _operands(sides, channel, sums.astype(np.int64), dump.limits)
    if made is None:
        return
    for operands in _matrices(dump, *made) if dump.operation == "matmul" else _images(dump, sides, channel, *made):
        yield _typed(dump, sides, channel, dict(zip((first, second), operands, strict=True)))


def _matrices(dump: Dump, numbers: Array, columns: Array) -> Iterator[tuple[Array, Array]]:
    ranks = dump.arrays["lhs"].ndim, dump.arrays["rhs"].ndim
    yield numbers.reshape(*(1,) * (ranks[0] - 1), -1), columns.reshape(*(1,) * (ranks[1] - 2), *columns.shape)


def _images(
    dump: Dump, sides: tuple[Quantized, Quantized], channel: int, numbers: Array, columns: Array
) -> Iterator[tuple[Array, Array]]:
    """One pixel that has the numbers in its channels; of groups, as many channels as there were, and of those that each
    group sees, the first has the numbers in its pixels.
    """
    if dump.options.get("groups", 1) == 1:
        yield _image(dump, numbers[np.newaxis], sides[0]), _kernels(dump, columns.T[:, np.newaxis, np.newaxis, :])
        return
    layout = dump.options.get("layout", "NHWC"), dump.options["weights_layout"]
    channels = dump.arrays["input"].shape[layout[0].index("C")]
    outputs, seen = (dump.arrays["weights"].shape[layout[1].index(each)] for each in "OI")
    image = _image(dump, np.repeat(numbers[:, np.newaxis], channels, axis=1), sides[0])
    for start in range(0, columns.shape[1], outputs):
        some = columns[:, start : start + outputs]
        kernels = np.full((outputs, 1, len(numbers), seen), _zero(sides[1], channel), columns.dtype)
        kernels[:, 0, :, 0] = np.pad(some, ((0, 0), (0, outputs - some.shape[1])), mode="edge").T
        yield image, _kernels(dump, kernels)


def _kernels(dump: Dump, weights: Array) -> Array:
    """Weights as OHWI, in the layout that the dump has."""
    return np.ascontiguousarray(weights.transpose(["OHWI".index(each) for each in dump.options["weights_layout"]]))


def _image(dump: Dump, pixels: Array, side: Quantized) -> Array:
    """An image whose rows have these pixels [columns, channels] where a window sees them, and zero elsewhere."""
    height, _ = _placed(dump, 0, 1)
    width, seen = _placed(dump, 1, len(pixels))
    row = np.full((width, pixels.shape[1]), _zero(side, 0), pixels.dtype)
    row[seen] = pixels
    image = np.broadcast_to(row, (1, height, *row.shape))
    return np.ascontiguousarray(image.transpose(["NHWC".index(each) for each in dump.options.get("layout", "NHWC")]))


def _zero(side: Quantized, channel: int) -> int:
    return int(side.zero_points[min(channel, side.zero_points.size - 1)])


def _placed(dump: Dump, axis: int, taps: int) -> tuple[int, range]:
    """How many rows (0) or columns (1) an image has in which a kernel of so many taps has its place, none to spare, and
    which of them the first such window sees.
    """
    names = ("strides", "dilations", "padding", "pads")
    window = Window(**{name: dump.options[name] for name in names if name in dump.options})
    stride, dilation = window.strides[axis], window.dilations[axis]
    width = (taps - 1) * dilation + 1
    for size in counting(width):
        outputs, before = window.placed(size, taps, axis)
        whole = [start for start in range(-before, outputs * stride - before, stride) if 0 <= start <= size - width]
        rest = (size + window.pads[axis] + window.pads[axis + 2] - width) % stride
        if whole and (window.padding is not Padding.EXPLICIT or not rest):
            break
    return size, range(whole[0], whole[0] + width, dilation)


def _typed(
    dump: Dump, sides: tuple[Quantized, Quantized], channel: int, arrays: dict[str, Array]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Operands with their types, whose weights all have the scale of one channel; and a bias of 0."""
    first, second = arrays
    weights = sides[1]
    count = arrays[second].shape[-1 if dump.operation == "matmul" else dump.options["weights_layout"].index("O")]
    if weights.scales.size > 1:
        each = np.full(count, weights.scales[channel]), np.full(count, weights.zero_points[channel])
        weights = replace(weights, scales=each[0], zero_points=each[1])
    types = {name: tensor_text(arrays[name].shape, side.text) for name, side in ((first, sides[0]), (second, weights))}
    if "bias" in dump.arrays:
        arrays["bias"] = np.zeros(count, dump.arrays["bias"].dtype)
        types["bias"] = tensor_text((count,), f"i{8 * arrays['bias'].itemsize}")
    return arrays, types


def _operands(
    sides: tuple[Quantized, Quantized], channel: int, sums: Array, limits: Limits | None
) -> tuple[Array, Array] | None:
    """Numbers of the input, and a column of weights for each sum: those that the library proposes, with the operands
    changing places, so that one input is enough.

    `limits`: of the input, of the weights, and what these are multiples of, where a system takes no others. Sums that
    cannot be had are left out.
    """
    bounds = [_range(each) for each in sides]
    step = 1
    if limits is not None:
        *bounds, step = limits
    zero, zeros = int(sides[0].zero_points[0]), _zero(sides[1], channel)
    if zeros % step:
        return None
    steps = Side(0, -((zeros - bounds[1][0]) // step), (bounds[1][1] - zeros) // step)
    inputs = Side(0, bounds[0][0] - zero, bounds[0][1] - zero)
    had = [each for each in (sums[sums % step == 0] // step).tolist() if factors_of(np.array([each]), steps, inputs)]
    made = factors_of(np.array(had, np.int64), steps, inputs) if had else None
    if made is None:
        return None
    columns, numbers = made
    return (
        (numbers + zero).astype(DTYPES[sides[0].storage]),
        (columns.T * step + zeros).astype(DTYPES[sides[1].storage]),
    )


def _range(side: Quantized) -> tuple[int, int]:
    limits = np.iinfo(DTYPES[side.storage])
    return int(limits.min), int(limits.max)
