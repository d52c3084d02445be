"""Operands of a product whose sums are given numbers, as a system takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from requant.integer.window import Window
from tests.interop.blind.dump import Array, Dump, tensor_text
from tests.interop.blind.products import side_of
from tests.interop.integer.quantized_tensors import DTYPES, Quantized

DEEPEST = 4096
"""Products are of so many numbers at most; sums that need more are left out."""


def product_calls(dump: Dump, channel: int, sums: Array) -> Iterator[tuple[dict[str, Array], dict[str, str]]]:
    """The tensors and types of calls with these sums, one for each column or channel of the output, all of them with
    the scale of one channel of the weights. None where no operands of the system have such sums.
    """
    first, second = (name for name in dump.arrays if name != "bias")
    sides = side_of(dump.types[first]), side_of(dump.types[second])
    if dump.operation not in ("matmul", "conv2d"):
        return
    made = _operands(sides, sums.astype(np.int64), dump.limits)
    if made is None:
        return
    lhs, rhs = made
    if dump.options.get("groups", 1) == 1:
        yield _typed(dump, sides, channel, {first: _input(dump, lhs), second: _weights(dump, rhs)}, rhs.shape[1])
    elif dump.arrays["weights"].shape[dump.options["weights_layout"].index("I")] == 1:
        # As many channels as there were, each with weights of its own.
        outputs = dump.arrays["weights"].shape[dump.options["weights_layout"].index("O")]
        image, kernel_width = _row_of_taps(dump, lhs, int(sides[0].zero_points[0]))
        for start in range(0, rhs.shape[1], outputs):
            some = rhs[:, start : start + outputs]
            columns = np.pad(some, ((0, 0), (0, outputs - some.shape[1])), mode="edge")
            kernels = columns.T.reshape(outputs, 1, kernel_width, 1)
            weights = kernels.transpose(["OHWI".index(each) for each in dump.options["weights_layout"]])
            yield _typed(dump, sides, channel, {first: image, second: np.ascontiguousarray(weights)}, outputs)


def _row_of_taps(dump: Dump, numbers: Array, zero: int) -> tuple[Array, int]:
    """An image of which all rows are alike, and have a window that sees these numbers; the width of its kernel."""
    names = ("strides", "dilations", "padding", "pads")
    window = Window(**{name: dump.options[name] for name in names if name in dump.options})
    width = (numbers.size - 1) * window.dilations[1] + 1
    for size in range(width, 4 * width + 64):
        outputs, before = window.placed(size, numbers.size, 1)
        starts = np.arange(outputs) * window.strides[1] - before
        whole = starts[(starts >= 0) & (starts + width <= size)]
        if whole.size:
            break
    row = np.full(size, zero, numbers.dtype)
    row[int(whole[0]) : int(whole[0]) + width : window.dilations[1]] = numbers
    layout = dump.options.get("layout", "NHWC")
    sizes = dict(zip(layout, dump.arrays["input"].shape, strict=True))
    image = np.broadcast_to(row[:, np.newaxis], (1, sizes["H"], size, sizes["C"]))
    return np.ascontiguousarray(image.transpose(["NHWC".index(each) for each in layout])), numbers.size


def _typed(
    dump: Dump, sides: tuple[Quantized, Quantized], channel: int, arrays: dict[str, Array], count: int
) -> tuple[dict[str, Array], dict[str, str]]:
    """Operands with their types, whose weights all have the scale of one channel; and a bias of 0."""
    first, second = arrays
    weights = sides[1]
    if weights.scales.size > 1:
        each = np.full(count, weights.scales[channel]), np.full(count, weights.zero_points[channel])
        weights = replace(weights, scales=each[0], zero_points=each[1])
    types = {name: tensor_text(arrays[name].shape, side.text) for name, side in ((first, sides[0]), (second, weights))}
    if "bias" in dump.arrays:
        arrays["bias"] = np.zeros(count, dump.arrays["bias"].dtype)
        types["bias"] = tensor_text((count,), f"i{8 * arrays['bias'].itemsize}")
    return arrays, types


def _input(dump: Dump, numbers: Array) -> Array:
    """One row for a matmul; for a convolution an image of the size that it had, all of whose pixels are alike."""
    if dump.operation == "matmul":
        return numbers.reshape(*(1,) * (dump.arrays["lhs"].ndim - 1), -1)
    shape = dump.arrays["input"].shape
    if dump.options.get("layout") == "NCHW":
        return np.ascontiguousarray(np.broadcast_to(numbers[None, :, None, None], (1, numbers.size, *shape[2:])))
    return np.ascontiguousarray(np.broadcast_to(numbers, (1, *shape[1:3], numbers.size)))


def _weights(dump: Dump, numbers: Array) -> Array:
    """The matrix for a matmul; for a convolution weights of one pixel."""
    if dump.operation == "matmul":
        return numbers.reshape(*(1,) * (dump.arrays["rhs"].ndim - 2), *numbers.shape)
    depth, outputs = numbers.shape
    shapes = {"HWIO": (1, 1, depth, outputs), "OHWI": (outputs, 1, 1, depth), "OIHW": (outputs, depth, 1, 1)}
    layout = dump.options["weights_layout"]
    return np.ascontiguousarray(numbers if layout == "HWIO" else numbers.T).reshape(shapes[layout])


def _operands(
    sides: tuple[Quantized, Quantized], sums: Array, limits: tuple[tuple[int, int], tuple[int, int], int] | None
) -> tuple[Array, Array] | None:
    """Numbers of the input and a column of weights for each sum: sum = unit * (w_0 + w_1 + ...) + most * (w_3 + ...).

    `limits`: of the input, of the weights, and what these are multiples of, where a system takes no others. Sums that
    cannot be had are left out.
    """
    lowest, highest, least, most, step = *_range(sides[0]), *_range(sides[1]), 1
    if limits is not None:
        (lowest, highest), (least, most), step = limits
    zero, zeros = int(sides[0].zero_points[0]), int(sides[1].zero_points[0])
    low, high = lowest - zero, highest - zero
    unit, far = (1, high) if high > -low else (-1, low)
    # Weights of either sign, of as many steps each.
    reach = min(most - zeros, zeros - least)
    reach -= reach % step
    if reach <= 0 or zeros % step:
        return None
    units = -(-abs(far) // reach) + 1
    columns = []
    for total in sums.tolist():
        count, rest = divmod(abs(total), abs(far))
        sign = 1 if (total > 0) == (unit > 0) else -1
        if count % step or rest % step or -(-count // reach) > DEEPEST:
            continue
        columns.append([sign * each for each in (*_split(rest, reach, units), *_split(count, reach, 0))])
    if not columns:
        return None
    depth = max(len(each) for each in columns)
    rhs = np.zeros((depth, len(columns)), np.int64)
    for place, each in enumerate(columns):
        rhs[: len(each), place] = each
    lhs = np.array([unit] * units + [far] * (depth - units)) + zero
    return lhs.astype(DTYPES[sides[0].storage]), (rhs + zeros).astype(DTYPES[sides[1].storage])


def _split(total: int, most: int, least: int) -> list[int]:
    """Numbers of at most `most` with a sum; at least so many."""
    full, rest = divmod(total, most)
    found = [most] * full + ([rest] if rest else [])
    return found + [0] * (least - len(found))


def _range(side: Quantized) -> tuple[int, int]:
    limits = np.iinfo(DTYPES[side.storage])
    return int(limits.min), int(limits.max)
