"""onnxruntime's QLinearGlobalAveragePool and QLinearAveragePool (mlas qlgavgpool.cpp, qlinear_pool.cc).

    QLinearGlobalAveragePool  acc = sum(x) - zx * n (i32), factor = f32(sx / f32(sy * n))
                              Y = sat(RNE(f32(f32(acc) * factor)) + zy)
    QLinearAveragePool        sum = (d_0 + d_1) + .. in f32, rows, then columns, d = f32(sx * (x - zx))
                              Y = sat(RNE(f32(f32(f32(sum / count) / sy) + zy)))

count are the elements of the window that lie in X, or with count_include_pad all of it. A window that is all of X,
without padding, is pooled as QLinearGlobalAveragePool does.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from requant.description import Array, Kind
from requant.errors import ParameterError, TypeFitError
from requant.errors.cancellation import check_cancelled
from requant.operators.description import Attribute, Operand, OperatorCall, Work
from requant.operators.onnx.convolution import ATTRIBUTES, listed
from requant.operators.onnxruntime.arithmetic import BYTES, fused, nearest, parameters, quantized_of
from requant.operators.stages import I32, Quantized, Stages, in_stages, stage

_MAX_POOLED = 1 << 24
# As many products take as long as the work on a tap that does not depend on the size.
_COST_OF_TAP = 1 << 17
# What is added to the padding before it is halved.
_HALF_BEFORE = {"SAME_UPPER": 0, "SAME_LOWER": 1}


def _channels_first(call: OperatorCall) -> Array:
    """Return X with its channels behind the images. Raise TypeFitError for a rank below 3."""
    x = call.inputs["X"]
    if len(x.shape) < 3:
        raise TypeFitError(f"X has rank {len(x.shape)}; a pool takes 3 or more", pointer="/inputs/X")
    stored = x.data.reshape(x.shape)
    return np.moveaxis(stored, -1, 1) if call.integer("channels_last") else stored


def _parameters(call: OperatorCall) -> tuple[Quantized, Quantized]:
    return quantized_of(call, "x", "X"), quantized_of(call, "y", "X")


def _laid(call: OperatorCall, array: Array) -> Array:
    """Return what has its channels behind the images in the layout of X."""
    return np.moveaxis(array, 1, -1) if call.integer("channels_last") else array


def _plan_global(call: OperatorCall) -> Work:
    return _of_channels(call, _channels_first(call))


def _of_channels(call: OperatorCall, x: Array) -> Work:
    of_x, of_y = _parameters(call)
    count = prod(x.shape[2:])
    if not 0 < count < _MAX_POOLED:
        raise TypeFitError(f"a channel has {count} elements; 1 to {_MAX_POOLED - 1}", pointer="/inputs/X")
    with np.errstate(all="ignore"):
        factor = of_x.scale / (of_y.scale * np.float32(count))
    if not 2.0**-32 <= factor < 256:
        raise ParameterError(
            f"x_scale / (y_scale * {count}) is {float(factor)!r}; it is 2^-32 up to 256", pointer="/inputs/y_scale"
        )
    shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))

    def stages() -> Stages:
        sums = x.sum(tuple(range(2, x.ndim)), np.int32).reshape(shape) - np.int32(of_x.zero_point * count)
        scaled = sums.astype(np.float32) * factor
        rounded = nearest(scaled)
        y = of_y.saturated(rounded.astype(np.int64) + of_y.zero_point)
        found = {"accumulator": sums, "scaled": scaled, "rounded": rounded, "Y": y}
        return {"factor": factor, **{name: _laid(call, each) for name, each in found.items()}}

    return in_stages(call, stages, shape, x.size)


@dataclass(frozen=True, slots=True)
class _Window:
    """The window along one dimension of `size`, padded `before` and `after`."""

    size: int
    kernel: int
    stride: int
    before: int
    after: int
    places: int

    @property
    def is_all(self) -> bool:
        return self.kernel == self.size and self.before == self.after == 0

    @property
    def taps(self) -> range:
        """Those that lie in X at one place or more."""
        first = self.before - (self.places - 1) * self.stride
        return range(max(first, 0), min(self.before + self.size, self.kernel))

    def indices(self, tap: int) -> Array:
        """Return the index in X of a tap at each place. Those outside of X are of the padding."""
        return np.arange(self.places) * self.stride + tap - self.before


def _windows(call: OperatorCall, sizes: tuple[int, ...]) -> list[_Window]:
    rank = len(sizes)
    kernel = listed(call, "kernel_shape", rank, ())
    strides = listed(call, "strides", rank, (1,) * rank)
    pads = listed(call, "pads", 2 * rank, (0,) * 2 * rank)
    padding = call.text("auto_pad")
    found = []
    for axis, (size, taps, stride) in enumerate(zip(sizes, kernel, strides, strict=True)):
        before, after = pads[axis], pads[rank + axis]
        if not size:
            raise TypeFitError("X has a spatial dimension of 0", pointer="/inputs/X")
        if padding in _HALF_BEFORE:
            # Below 0 where the stride is longer than the window: it begins behind the first element.
            needed = (-(-size // stride) - 1) * stride + taps - size
            before = int((needed + _HALF_BEFORE[padding]) / 2)
            after = needed - before
        elif padding == "VALID":
            before = after = 0
        elif max(before, after) >= taps:
            raise ParameterError(f"pads are below the kernel, which has {taps}", pointer="/attributes/pads")
        span = size + before + after - taps
        if span < 0:
            raise TypeFitError(
                f"the window takes {taps}, and padded X has {size + before + after}", pointer="/inputs/X"
            )
        places = (-(-span // stride) if call.integer("ceil_mode") else span // stride) + 1
        if (places - 1) * stride >= size + before:  # it would begin in the padding after X
            places -= 1
        found.append(_Window(size, taps, stride, before, after, places))
    return found


def _plan_average(call: OperatorCall) -> Work:
    x = _channels_first(call)
    of_x, of_y = _parameters(call)
    windows = _windows(call, x.shape[2:])
    if all(each.is_all for each in windows):
        return _of_channels(call, x)
    shape = (*x.shape[:2], *(each.places for each in windows))
    whole = prod(each.kernel for each in windows)

    def stages() -> Stages:
        real = of_x.dequantized(x)
        total, count = np.zeros(shape, np.float32), np.zeros(shape[2:], np.int32)
        for tap in itertools.product(*(each.taps for each in windows)):
            check_cancelled()
            at = np.ix_(*(each.indices(index) for each, index in zip(windows, tap, strict=True)))
            inside = reduce(
                np.logical_and, ((index >= 0) & (index < each.size) for index, each in zip(at, windows, strict=True))
            )
            kept: tuple[Any, ...] = tuple(
                np.clip(index, 0, each.size - 1) for index, each in zip(at, windows, strict=True)
            )
            seen = real[(slice(None), slice(None), *kept)]
            total += np.where(inside, seen, np.float32(0))  # a zero changes no sum
            count += inside
        mean = total / (np.float32(whole) if call.integer("count_include_pad") else count.astype(np.float32))
        shifted = mean / of_y.scale + np.float32(of_y.zero_point)
        rounded = nearest(shifted)
        found = {"sum": total, "mean": mean, "shifted": shifted, "rounded": rounded, "Y": of_y.saturated(rounded)}
        return {name: _laid(call, each) for name, each in found.items()}

    taps = prod(len(each.taps) for each in windows)
    return in_stages(call, stages, shape, (prod(shape) + _COST_OF_TAP) * taps)


def _flag(name: str, description: str) -> Attribute:
    return Attribute(name=name, kind=Kind.INTEGER, description=description, default=0, lowest=0, highest=1)


_OPERANDS = (
    Operand(name="X", description="[N, C, D1, .., Dn], or with channels_last [N, D1, .., Dn, C].", types=BYTES),
    *parameters("X", prefix="x"),
    *parameters("X", prefix="y"),
)
_OUTPUT = Operand(name="Y", description="The means, of the type and layout of X.", types=BYTES)
_CHANNELS_LAST = _flag("channels_last", "1: the channels are the last dimension of X and Y.")
_GLOBAL_STAGES = (
    stage("factor", "f32(sx / f32(sy * n)), n elements of a channel; where the window is all of X."),
    stage("accumulator", "sum(x) - zx * n.", I32),
    stage("scaled", "f32(f32(accumulator) * factor)."),
    stage("rounded", "RNE(scaled).", I32),
)
_WINDOW = {each.name: each for each in ATTRIBUTES}

QLINEAR_GLOBAL_AVERAGE_POOL = fused(
    "QLinearGlobalAveragePool",
    summary="The mean of each channel of a quantized tensor.",
    inputs=_OPERANDS,
    output=_OUTPUT,
    stages=_GLOBAL_STAGES,
    attributes=(_CHANNELS_LAST,),
    deviations=("On 64-bit Arm onnxruntime scales in fixed point; this is its arithmetic on x86-64.",),
    plan=_plan_global,
    example={
        "inputs": {
            "X": {"type": "tensor<1x2x1x3xui8>", "values": [1, 2, 250, 128, 129, 129]},
            "x_scale": {"type": "tensor<f32>", "values": [0.05]},
            "x_zero_point": {"type": "tensor<ui8>", "values": [128]},
            "y_scale": {"type": "tensor<f32>", "values": [0.04]},
            "y_zero_point": {"type": "tensor<ui8>", "values": [100]},
        },
    },
)

QLINEAR_AVERAGE_POOL = fused(
    "QLinearAveragePool",
    summary="The means of the windows of a quantized tensor, in any number of spatial dimensions.",
    inputs=_OPERANDS,
    output=_OUTPUT,
    stages=(
        *_GLOBAL_STAGES[:3],
        stage("sum", "The sum of f32(sx * (x - zx)) over the window, in f32 in its order."),
        stage("mean", "f32(sum / count)."),
        stage("shifted", "f32(f32(mean / sy) + zy)."),
        stage("rounded", "RNE(shifted), or of all of X RNE(scaled).", I32),
    ),
    attributes=(
        _WINDOW["auto_pad"],
        _flag("ceil_mode", "1: the last window may reach beyond the padding."),
        _CHANNELS_LAST,
        _flag("count_include_pad", "1: padding counts as elements that are zero."),
        replace(_WINDOW["kernel_shape"], description="The window.", optional=False, lowest=1),
        _WINDOW["pads"],
        _WINDOW["strides"],
    ),
    deviations=("onnxruntime has one to three spatial dimensions.",),
    plan=_plan_average,
    example={
        "inputs": {
            "X": {"type": "tensor<1x1x3x3xui8>", "values": [1, 2, 250, 128, 129, 129, 7, 8, 9]},
            "x_scale": {"type": "tensor<f32>", "values": [0.05]},
            "x_zero_point": {"type": "tensor<ui8>", "values": [128]},
            "y_scale": {"type": "tensor<f32>", "values": [0.04]},
            "y_zero_point": {"type": "tensor<ui8>", "values": [100]},
        },
        "attributes": {"kernel_shape": [2, 2], "strides": [2, 1], "auto_pad": "SAME_UPPER"},
    },
)
