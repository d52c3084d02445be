"""LiteRT's AVERAGE_POOL_2D and MAX_POOL_2D (kernels/pooling.cc), the same in all kernels.

    AVERAGE_POOL_2D  output = clamp(RNA(sum / n)), n the elements of the window that lie in the input, in integers
    MAX_POOL_2D      output = clamp(maximum)

Stored numbers are averaged as they are: input and output have one type. Windows are placed as convolutions place them;
with SAME there are ceil(size / stride), and an odd padding is longer behind.
"""

from __future__ import annotations

from math import prod

import numpy as np

from requant.description import Array, Choices, Kind
from requant.errors import TypeFitError
from requant.operators.description import Attribute, OperatorCall, Work
from requant.operators.litert.arithmetic import (
    ACTIVATION,
    XNNPACK,
    activation_range,
    clamped,
    described,
    quantized,
    tensor,
    xnnpack_range,
)
from requant.operators.stages import I32, Stages, in_stages, stage

_MOST = (1 << 31) - 1


def _size(name: str, description: str) -> Attribute:
    return Attribute(name=name, kind=Kind.INTEGER, description=description, lowest=1, highest=_MOST)


PADDING = Attribute(
    name="padding",
    kind=Kind.TEXT,
    description="Whether windows reach beyond the input.",
    choices=Choices("LitertPadding", ("SAME", "VALID")),
)
STRIDES = (_size("stride_h", "Rows from one window to the next."), _size("stride_w", "Columns likewise."))
_WINDOW = (PADDING, _size("filter_height", "Rows of the window."), _size("filter_width", "Columns."), *STRIDES)


def _spans(size: int, taps: int, stride: int, padding: str) -> tuple[Array, Array]:
    """Return where each window begins, and before what it ends, within the input."""
    places = -(-size // stride) if padding == "SAME" else (size - taps) // stride + 1
    if not size or places < 1:
        raise TypeFitError(f"a window of {taps} does not fit into {size}", pointer="/inputs/input")
    before = max((places - 1) * stride + taps - size, 0) // 2 if padding == "SAME" else 0
    starts = np.arange(places) * stride - before
    return np.maximum(starts, 0), np.minimum(starts + taps, size)


def _reduced(combine: np.ufunc, x: Array, axis: int, spans: tuple[Array, Array]) -> Array:
    """Return what spans along an axis combine to."""
    # One more, since each end is an index; every other result is of what lies between two spans.
    longer = np.concatenate([x, x.take([0], axis)], axis)
    found = combine.reduceat(longer, np.stack(spans, 1).reshape(-1), axis)
    return found.take(range(0, found.shape[axis], 2), axis)


def _planned(call: OperatorCall, *, average: bool) -> Work:
    x = call.inputs["input"]
    if len(x.shape) != 4:
        raise TypeFitError(f"the input has rank {len(x.shape)}; 4, NHWC", pointer="/inputs/input")
    of_x = quantized(call, "input")
    taps = call.integer("filter_height"), call.integer("filter_width")
    strides = call.integer("stride_h"), call.integer("stride_w")
    spans = [_spans(*each, call.text("padding")) for each in zip(x.shape[1:3], taps, strides, strict=True)]
    shape = (x.shape[0], *(starts.size for starts, _ in spans), x.shape[3])
    # The rest is pooled alike; XNNPACK rounds the bounds of an activation otherwise.
    of_xnnpack = call.text("kernel") == XNNPACK and not average and of_x.dtype != np.int16
    of_xnnpack = of_xnnpack and all(tap >= stride for tap, stride in zip(taps, strides, strict=True))
    bounds = (xnnpack_range if of_xnnpack else activation_range)(call, of_x)

    def stages() -> Stages:
        stored = x.data.reshape(x.shape)
        if not average:
            largest = _reduced(np.maximum, _reduced(np.maximum, stored, 1, spans[0]), 2, spans[1])
            return {"output": clamped(largest, bounds, of_x.dtype)}
        rows = _reduced(np.add, stored.astype(np.int32), 1, spans[0])
        total = _reduced(np.add, rows, 2, spans[1])
        rows_in, columns_in = (ends - starts for starts, ends in spans)
        count = np.multiply.outer(rows_in, columns_in).astype(np.int32)[None, :, :, None]
        mean = np.sign(total) * ((np.abs(total) + count // 2) // count)
        return {"sum": total, "mean": mean, "output": clamped(mean, bounds, of_x.dtype)}

    cost = prod(shape) * min(taps[0], x.shape[1]) * min(taps[1], x.shape[2])
    return in_stages(call, stages, shape, cost, element=x.type.element)


_INPUT = (tensor("input", "[N, H, W, C], of i8, u8 or i16."),)
_EXAMPLE = {
    "inputs": {
        "input": {"type": "tensor<1x2x3x1x!quant.uniform<i8:f32, 0.5:3>>", "values": [-100, 3, 120, 7, 8, -9]},
    },
    "attributes": {"padding": "VALID", "filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1},
}

AVERAGE_POOL_2D = described(
    "AVERAGE_POOL_2D",
    summary="The means of the windows of a quantized image.",
    inputs=_INPUT,
    stages=(
        stage("sum", "Of the stored numbers of a window.", I32),
        stage("mean", "RNA(sum / n).", I32),
    ),
    attributes=(*_WINDOW, ACTIVATION),
    retyped=False,
    plan=lambda call: _planned(call, average=True),
    example=_EXAMPLE,
)

MAX_POOL_2D = described(
    "MAX_POOL_2D",
    summary="The largest numbers of the windows of a quantized image.",
    inputs=_INPUT,
    attributes=(*_WINDOW, ACTIVATION),
    retyped=False,
    plan=lambda call: _planned(call, average=False),
    example=_EXAMPLE,
)
