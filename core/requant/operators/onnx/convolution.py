"""What ONNX's convolutions of integers share: attributes, shapes, and how any number of dimensions becomes two.

x is [N, C, D1, .., Dn], w [M, C / group, k1, .., kn]. All but the last two spatial dimensions are unfolded: what the
window sees along them becomes input channels, and each of its places an image. The sums are the same integers.
Source: the text of ConvInteger and QLinearConv.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from requant.description import Array, Choices, Kind, TensorValue
from requant.errors import ParameterError, TypeFitError, default_pointer
from requant.integer.window import Layout, Padding, WeightsLayout, Window
from requant.operators.description import Attribute, OperatorCall

_MOST = (1 << 31) - 1
_BYTES_OF_INDEX = 8
_COST_OF_COPIED = 8
_PADDINGS = {
    "NOTSET": Padding.EXPLICIT, "SAME_UPPER": Padding.SAME_UPPER, "SAME_LOWER": Padding.SAME_LOWER,
    "VALID": Padding.VALID,
}  # fmt: skip
_AUTO_PADS = Choices("OnnxAutoPad", tuple(_PADDINGS), "How the input is padded: as pads say, or by its size.")

ATTRIBUTES = (
    Attribute(
        name="auto_pad",
        kind=Kind.TEXT,
        description="How x is padded with its zero point. SAME_UPPER and SAME_LOWER give ceil(D / stride), with "
        "odd padding at the end or at the beginning.",
        default="NOTSET",
        choices=_AUTO_PADS,
    ),
    Attribute(
        name="dilations",
        kind=Kind.INTEGERS,
        description="Dilation along each spatial dimension. Default: 1.",
        optional=True,
        lowest=1,
        highest=_MOST,
    ),
    Attribute(
        name="group",
        kind=Kind.INTEGER,
        description="Number of channel groups.",
        default=1,
        lowest=1,
        highest=_MOST,
    ),
    Attribute(
        name="kernel_shape",
        kind=Kind.INTEGERS,
        description="Must equal the spatial dimensions of w, which are the default.",
        optional=True,
        lowest=0,
        highest=_MOST,
    ),
    Attribute(
        name="pads",
        kind=Kind.INTEGERS,
        description="Padding at the beginning of each spatial dimension, then at the end of each; with auto_pad "
        "NOTSET only. Default: 0.",
        optional=True,
        lowest=0,
        highest=_MOST,
    ),
    Attribute(
        name="strides",
        kind=Kind.INTEGERS,
        description="Stride along each spatial dimension. Default: 1.",
        optional=True,
        lowest=1,
        highest=_MOST,
    ),
)


@dataclass(frozen=True, slots=True)
class Unfolded:
    """One dimension to unfold: the index in x of each place and tap of the window."""

    places: int
    taps: int
    before: int
    stride: int
    dilation: int

    def indices(self) -> Array:
        """Return the indices, places by taps. Those outside of x are of the padding."""
        return np.arange(self.places)[:, None] * self.stride + np.arange(self.taps) * self.dilation - self.before


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution as one of two dimensions, `window`, after the leading ones are `unfolded`."""

    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    window: Window
    unfolded: tuple[Unfolded, ...]

    @classmethod
    def of(cls, call: OperatorCall, x: TensorValue, w: TensorValue) -> Convolution:
        """Check rank and attributes. Raise TypeFitError or ParameterError."""
        rank = len(x.shape) - 2
        if rank < 1:
            raise TypeFitError(f"x has rank {len(x.shape)}; a convolution takes 3 or more", pointer="/inputs/x")
        if len(w.shape) != len(x.shape):
            raise TypeFitError(f"w has rank {len(w.shape)}, and x {len(x.shape)}; the same", pointer="/inputs/w")
        kernel = listed(call, "kernel_shape", rank, w.shape[2:])
        if kernel != w.shape[2:]:
            raise ParameterError(
                f"kernel_shape is {list(kernel)}, and w has {list(w.shape[2:])}", pointer="/attributes/kernel_shape"
            )
        strides, dilations = (listed(call, name, rank, (1,) * rank) for name in ("strides", "dilations"))
        padding = _PADDINGS[call.text("auto_pad")]
        if padding is not Padding.EXPLICIT and call.list("pads") is not None:
            raise ParameterError(
                f"pads cannot be given with auto_pad {call.text('auto_pad')}", pointer="/attributes/pads"
            )
        pads = listed(call, "pads", 2 * rank, (0,) * 2 * rank)
        if rank == 1:
            x_shape, w_shape = (*x.shape[:2], 1, *x.shape[2:]), (*w.shape[:2], 1, *w.shape[2:])
            strides, dilations, pads, rank = (1, *strides), (1, *dilations), (0, pads[0], 0, pads[1]), 2
        else:
            x_shape, w_shape = x.shape, w.shape
        windows = [
            Window(
                layout=Layout.NCHW,
                weights_layout=WeightsLayout.OIHW,
                strides=(strides[i], strides[j]),
                dilations=(dilations[i], dilations[j]),
                padding=padding,
                pads=(pads[i], pads[j], pads[rank + i], pads[rank + j]),
                groups=call.integer("group"),
            )
            for i, j in [*((axis, axis) for axis in range(rank - 2)), (rank - 2, rank - 1)]
        ]
        unfolded = []
        for axis, window in enumerate(windows[:-1]):
            with default_pointer("/inputs/x"):
                places, before = window.placed(x_shape[2 + axis], w_shape[2 + axis], 0)
            unfolded.append(Unfolded(places, w_shape[2 + axis], before, window.strides[0], window.dilations[0]))
        return cls(x_shape, w_shape, windows[-1], tuple(unfolded))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of x once it is unfolded."""
        images, channels, *spatial = self.x_shape
        places, taps = prod(each.places for each in self.unfolded), prod(each.taps for each in self.unfolded)
        return images * places, channels * taps, *spatial[-2:]

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """The shape of w once it is unfolded; its elements keep their order."""
        outputs, channels, *spatial = self.w_shape
        return outputs, channels * prod(spatial[:-2]), *spatial[-2:]

    @property
    def copied(self) -> int:
        """How many bytes unfolding takes: x before and after a step, and the indices of a dimension three times."""
        if not self.unfolded:
            return 0
        indices = max(each.places * each.taps for each in self.unfolded)
        return 2 * prod(self.input_shape) + 3 * _BYTES_OF_INDEX * indices

    @property
    def cost(self) -> int:
        """What unfolding costs, in the unit of `requant.integer.columns`."""
        return self.copied * _COST_OF_COPIED

    def input(self, x: Array, zero_point: int) -> Array:
        """Return x, flat, as an input of two dimensions, flat. Padding is the zero point."""
        if not self.unfolded:
            return x
        if not x.size:
            return np.full(prod(self.input_shape), zero_point, x.dtype)
        count = len(self.unfolded)
        padded = x.reshape(self.x_shape)
        # From the last dimension on, so that the axes before keep their numbers.
        for axis in range(count + 1, 1, -1):
            indices = self.unfolded[axis - 2].indices()
            size = self.x_shape[axis]
            outside = (indices < 0) | (indices >= size)
            padded = np.take(padded, np.clip(indices, 0, size - 1), axis=axis)
            if outside.any():
                padded[(slice(None),) * axis + (outside,)] = zero_point
        # [N, C, p1, t1, p2, t2, .., H, W] to [N, p1, p2, .., C, t1, t2, .., H, W]
        places, taps = range(2, 2 + 2 * count, 2), range(3, 3 + 2 * count, 2)
        order = (0, *places, 1, *taps, padded.ndim - 2, padded.ndim - 1)
        return np.ascontiguousarray(padded.transpose(order)).reshape(-1)

    def output_shape(self, shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """Return the shape of y, of the rank of x, from that of the convolution of two dimensions."""
        _, channels, *spatial = shape
        if rank == 3:
            return self.x_shape[0], channels, spatial[1]
        return self.x_shape[0], channels, *(each.places for each in self.unfolded), *spatial

    def output(self, y: Array, shape: tuple[int, ...]) -> Array:
        """Return the output of two dimensions, flat and of `shape`, in the order of y."""
        if not self.unfolded:
            return y
        places = tuple(each.places for each in self.unfolded)
        laid = y.reshape(self.x_shape[0], *places, *shape[1:])
        return np.ascontiguousarray(np.moveaxis(laid, 1 + len(places), 1)).reshape(-1)


def listed(call: OperatorCall, name: str, count: int, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return a list of integers, or the default. Raise ParameterError for another length."""
    values = call.list(name)
    if values is None:
        return default
    if len(values) != count:
        raise ParameterError(f"{name} has {len(values)} members; x asks for {count}", pointer=f"/attributes/{name}")
    return values
