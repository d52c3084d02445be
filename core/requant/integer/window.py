"""Where the window of a convolution stands: strides, dilations, padding, groups, and the order of dimensions.

    eff = (k - 1) * dilation + 1
    explicit, valid:  out = floor((in + before + after - eff) / stride) + 1
    same_*:           out = ceil(in / stride), before + after = max((out - 1) * stride + eff - in, 0)

Source: the texts of ONNX ConvInteger, LiteRT ComputePaddingHeightWidth and StableHLO convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requant.errors import ParameterError, TypeFitError

# Kernels compute positions in 64 bits, without a check for overflow.
_MOST = (1 << 31) - 1


class Padding(StrEnum):
    """How many rows and columns are added around the input. Padding is a real zero, stored as the zero point."""

    EXPLICIT = "explicit"
    VALID = "valid"
    """None."""
    SAME_UPPER = "same_upper"
    """As many as keep the size at stride 1, an odd one after: TensorFlow's SAME, ONNX's SAME_UPPER."""
    SAME_LOWER = "same_lower"
    """The same with an odd one before."""


class Layout(StrEnum):
    """The order of dimensions of input and output: images, height, width, channels."""

    NHWC = "NHWC"
    NCHW = "NCHW"


class WeightsLayout(StrEnum):
    """The order of dimensions of weights: output channels, height, width, input channels of one group."""

    OHWI = "OHWI"
    """LiteRT's CONV_2D."""
    HWIO = "HWIO"
    OIHW = "OIHW"
    """ONNX, torch."""
    IHWO = "IHWO"
    """LiteRT's DEPTHWISE_CONV_2D, whose I is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`strides` and `dilations` are vertical and horizontal. `pads` are top, left, bottom and right, if explicit."""

    layout: Layout = Layout.NHWC
    weights_layout: WeightsLayout = WeightsLayout.OHWI
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    padding: Padding = Padding.EXPLICIT
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1

    def check(self) -> None:
        """Raise ParameterError, pointing at the field, for numbers that no window has."""
        for name, numbers, least in (
            ("strides", self.strides, 1),
            ("dilations", self.dilations, 1),
            ("pads", self.pads, 0),
            ("groups", (self.groups,), 1),
        ):
            for index, number in enumerate(numbers):
                if not least <= number <= _MOST:
                    pointer = f"/{name}" if name == "groups" else f"/{name}/{index}"
                    raise ParameterError(
                        f"{name} are at least {least} and at most {_MOST}; this is {number}", pointer=pointer
                    )
        if self.padding is not Padding.EXPLICIT and any(self.pads):
            raise ParameterError(f"padding {self.padding} does not accept pads", pointer="/pads")

    def placed(self, size: int, kernel: int, axis: int) -> tuple[int, int]:
        """Return how many outputs there are along an axis (0 vertical, 1 horizontal), and the padding before.

        Raise TypeFitError if the window does not fit the input.
        """
        stride = self.strides[axis]
        effective = (kernel - 1) * self.dilations[axis] + 1
        if self.padding in (Padding.SAME_UPPER, Padding.SAME_LOWER):
            outputs = -(-size // stride)
            total = max((outputs - 1) * stride + effective - size, 0)
            return outputs, total // 2 if self.padding is Padding.SAME_UPPER else total - total // 2
        before, after = self.pads[axis], self.pads[axis + 2]
        if size + before + after < effective:
            raise TypeFitError(
                f"the window takes {effective} {('rows', 'columns')[axis]}, and the padded input has "
                f"{size + before + after}"
            )
        return (size + before + after - effective) // stride + 1, before

    def taps_inside(self, size: int, kernel: int, axis: int) -> int:
        """Return how many pairs of an output and a tap of it lie within the input along an axis, for any padding.

        The number of (y, i), 0 <= y < out, 0 <= i < k, with 0 <= y * stride + i * dilation - before < in.
        """
        outputs, before = self.placed(size, kernel, axis)
        stride, dilation = self.strides[axis], self.dilations[axis]
        return _pairs_below(before + size, outputs, stride, kernel, dilation) - _pairs_below(
            before, outputs, stride, kernel, dilation
        )


def _pairs_below(limit: int, outputs: int, stride: int, kernel: int, dilation: int) -> int:
    """Return how many (y, i), 0 <= y < outputs, 0 <= i < kernel, have y * stride + i * dilation < limit."""
    # The first taps have all outputs, those after `some` none, and those between ceil((limit - i * dilation) / stride).
    full = min(max((limit - 1 - (outputs - 1) * stride) // dilation + 1, 0), kernel) if outputs else kernel
    some = max(min(max((limit - 1) // dilation + 1, 0), kernel), full)
    lowest = limit - (some - 1) * dilation + stride - 1
    return full * outputs + _sum_of_floors(some - full, stride, dilation, lowest)


def _sum_of_floors(count: int, divisor: int, step: int, offset: int) -> int:
    """Return the sum of floor((step * i + offset) / divisor) over 0 <= i < count, in as many steps as Euclid's gcd."""
    total = 0
    while count:
        total += (count - 1) * count // 2 * (step // divisor) + count * (offset // divisor)
        step, offset = step % divisor, offset % divisor
        highest = step * count + offset
        if highest < divisor:
            break
        count, offset, divisor, step = highest // divisor, highest % divisor, step, divisor
    return total
