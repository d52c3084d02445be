"""LiteRT's RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of quantized images (kernels/resize_bilinear.cc,
reference/reference_ops.h, XNNPACK's qs8-ibilinear). p(y, x) are stored numbers; input and output have one type.

    r = f32(in / out), with align_corners, where out > 1, f32((in - 1) / (out - 1))
    NEAREST_NEIGHBOR  index min(floor(f32(f32(i + h) * r)), in - 1), h 0.5 with half_pixel_centers; with align_corners
                      RNA for floor
    BILINEAR          between lower and upper index of rows and columns, with fractions fy and fx:
        i8 and i16     in 10 bits: r = (1024 * in + out / 2) / out, with align_corners (1024 * (in - 1) + (out - 1) / 2)
                       / (out - 1), of integers; RNA of the weighted sum / 2^20
        u8             in f32: RTZ((((p00 + p10) + p01) + p11) + 0.5) of p(y, x) * wy * wx; optimized: of
                       p(y, x) * (wy * wx), p01 before p10
        xnnpack        i8 and u8: w = RNE(f * 2^11), t(y) = p(y, 0) * 2^11 + (p(y, 1) - p(y, 0)) * wx,
                       (t(0) * 2^11 + (t(1) - t(0)) * wy + 2^21) >> 22
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from requant.calibration.ranges.rule import round_half_away
from requant.description import Array, Kind
from requant.errors import ParameterError, TypeFitError
from requant.operators.description import Attribute, Operand, OperatorCall, Work
from requant.operators.litert.arithmetic import REFERENCE, XNNPACK, described, quantized, tensor
from requant.operators.stages import I32, Stages, in_stages

_HALF = np.float32(0.5)
# Four corners and their sums, of int64.
_WIDTH = 96


class _Axis(NamedTuple):
    """Where each of `places` indices of the output lies in `size` of the input."""

    size: int
    places: int
    align: bool
    half: bool

    @property
    def ratio(self) -> np.float32:
        less = int(self.align and self.places > 1)
        return np.float32(self.size - less) / np.float32(self.places - less)


class _Between(NamedTuple):
    """Indices of the input, and the weight of each in a unit of their own."""

    lower: Array
    upper: Array
    of_lower: Array
    of_upper: Array


def _nearest(axis: _Axis) -> Array:
    place = np.arange(axis.places, dtype=np.float32) + (_HALF if axis.half else np.float32(0))
    scaled = place * axis.ratio
    found = round_half_away(scaled) if axis.align else np.floor(scaled)
    return np.clip(found.astype(np.int64), 0, axis.size - 1)


def _of_10_bits(axis: _Axis) -> _Between:
    less = int(axis.align and axis.places > 1)
    ratio = (1024 * (axis.size - less) + (axis.places - less) // 2) // (axis.places - less)
    place = np.arange(axis.places, dtype=np.int64) * ratio + (ratio // 2 - 512 if axis.half else 0)
    lower = np.maximum(place // 1024, 0)
    upper = np.clip((place + 1023) // 1024, 0, axis.size - 1)
    fraction = place - 1024 * lower
    return _Between(lower, upper, 1024 - fraction, fraction)


def _of_f32(axis: _Axis) -> _Between:
    place = np.arange(axis.places, dtype=np.float32)
    place = (place + _HALF) * axis.ratio - _HALF if axis.half else place * axis.ratio
    lower = np.maximum(np.floor(place), 0).astype(np.int64)
    upper = np.minimum(np.ceil(place), axis.size - 1).astype(np.int64)
    fraction = place - lower.astype(np.float32)
    return _Between(lower, upper, np.float32(1) - fraction, fraction)


def _of_11_bits(axis: _Axis) -> _Between:
    place = np.arange(axis.places, dtype=np.float32) * axis.ratio
    if axis.half:
        place = place + (_HALF * axis.ratio - _HALF)
    place = np.clip(place, np.float32(0), np.float32(axis.size - 1))
    lower = place.astype(np.int64)
    fraction = np.rint((place - lower.astype(np.float32)) * np.float32(2048)).astype(np.int64)
    return _Between(lower, np.minimum(lower + 1, axis.size - 1), 2048 - fraction, fraction)


def _corners(x: Array, rows: _Between, columns: _Between) -> tuple[Array, Array, Array, Array]:
    """Return p00, p01, p10 and p11."""
    above, below = x[:, rows.lower], x[:, rows.upper]
    return (
        above[:, :, columns.lower],
        above[:, :, columns.upper],
        below[:, :, columns.lower],
        below[:, :, columns.upper],
    )


def _weights(rows: _Between, columns: _Between) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    return (
        (rows.of_lower[None, :, None, None], rows.of_upper[None, :, None, None]),
        (columns.of_lower[None, None, :, None], columns.of_upper[None, None, :, None]),
    )


def _in_10_bits(x: Array, height: _Axis, width: _Axis, kernel: str) -> Array:
    rows, columns = _of_10_bits(height), _of_10_bits(width)
    (top, bottom), (left, right) = _weights(rows, columns)
    p00, p01, p10, p11 = (each.astype(np.int64) for each in _corners(x, rows, columns))
    total = p00 * top * left + p01 * top * right + p10 * bottom * left + p11 * bottom * right
    rounded: Array = np.sign(total) * ((np.abs(total) + (1 << 19)) >> 20)
    return rounded


def _in_11_bits(x: Array, height: _Axis, width: _Axis, kernel: str) -> Array:
    rows, columns = _of_11_bits(height), _of_11_bits(width)
    (_, down), (_, along) = _weights(rows, columns)
    p00, p01, p10, p11 = (each.astype(np.int64) for each in _corners(x, rows, columns))
    top, bottom = (begin * 2048 + (end - begin) * along for begin, end in ((p00, p01), (p10, p11)))
    rounded: Array = ((top << 11) + (bottom - top) * down + (1 << 21)) >> 22
    return rounded


def _in_f32(x: Array, height: _Axis, width: _Axis, kernel: str) -> Array:
    rows, columns = _of_f32(height), _of_f32(width)
    (top, bottom), (left, right) = _weights(rows, columns)
    p00, p01, p10, p11 = (each.astype(np.float32) for each in _corners(x, rows, columns))
    if kernel == REFERENCE:
        total = p00 * top * left + p10 * bottom * left + p01 * top * right + p11 * bottom * right
    else:
        total = p00 * (top * left) + p01 * (top * right) + p10 * (bottom * left) + p11 * (bottom * right)
    rounded: Array = np.trunc(total + _HALF)
    return rounded


def _planned(call: OperatorCall, *, bilinear: bool) -> Work:
    x, size = call.inputs["input"], call.inputs["size"]
    of_x = quantized(call, "input", symmetric=())
    if len(x.shape) != 4 or not all(x.shape[1:3]):
        raise TypeFitError("the input is [N, H, W, C], with rows and columns", pointer="/inputs/input")
    if size.shape != (2,) or (size.data < 1).any():
        raise TypeFitError("size has two elements, of 1 or more", pointer="/inputs/size")
    align, half = call.boolean("align_corners"), call.boolean("half_pixel_centers")
    if align and half:
        raise ParameterError("half_pixel_centers goes without align_corners", pointer="/attributes/half_pixel_centers")
    height, width = (
        _Axis(before, after, align, half) for before, after in zip(x.shape[1:3], size.data.tolist(), strict=True)
    )
    shape = (x.shape[0], height.places, width.places, x.shape[3])
    kernel = call.text("kernel")
    compute: Callable[[Array, _Axis, _Axis, str], Array] = _in_10_bits
    if kernel == XNNPACK and of_x.dtype != np.int16:
        compute = _in_11_bits
    elif of_x.dtype == np.uint8:
        compute = _in_f32

    def stages() -> Stages:
        stored = x.data.reshape(x.shape)
        if not bilinear:
            return {"output": stored[:, _nearest(height)][:, :, _nearest(width)]}
        return {"output": compute(stored, height, width, kernel).astype(of_x.dtype)}

    return in_stages(call, stages, shape, 8 * int(np.prod(shape)), element=x.type.element, width=_WIDTH)


_OPERANDS = (
    tensor("input", "[N, H, W, C], of i8, u8 or i16."),
    Operand(name="size", description="Rows and columns of the output.", types=I32),
)
_ATTRIBUTES = (
    Attribute(
        name="align_corners",
        kind=Kind.BOOLEAN,
        description="Whether the first and last rows and columns of both lie upon each other.",
        default=False,
    ),
    Attribute(
        name="half_pixel_centers",
        kind=Kind.BOOLEAN,
        description="Whether an element lies in the middle of its place.",
        default=False,
    ),
)
_EXAMPLE = {
    "inputs": {
        "input": {"type": "tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>", "values": [-100, 3, 120, 7]},
        "size": {"type": "tensor<2xi32>", "values": [3, 4]},
    },
    "attributes": {"half_pixel_centers": True},
}

RESIZE_BILINEAR = described(
    "RESIZE_BILINEAR",
    summary="Resize a quantized image, with bilinear interpolation.",
    inputs=_OPERANDS,
    attributes=_ATTRIBUTES,
    retyped=False,
    plan=lambda call: _planned(call, bilinear=True),
    example=_EXAMPLE,
)

RESIZE_NEAREST_NEIGHBOR = described(
    "RESIZE_NEAREST_NEIGHBOR",
    summary="Resize a quantized image to the nearest elements.",
    inputs=_OPERANDS,
    attributes=_ATTRIBUTES,
    retyped=False,
    plan=lambda call: _planned(call, bilinear=False),
    example=_EXAMPLE,
)
