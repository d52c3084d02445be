"""Inputs and weights whose sums of products are wanted: weights of 1 and of the largest magnitude, and inputs that make
up the sum of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.description import Array
from requant.formats.elements import IntegerElement
from requant.mlir.types import ElementType, UniformQuantizedType

MAX_PRODUCTS = 4096
"""So many products make up a sum at most."""


def zero_of(element: ElementType, channel: int) -> int:
    """Return the stored number that stands for zero."""
    if not isinstance(element, UniformQuantizedType) or not element.zero_points:
        return 0
    return element.zero_points[min(channel, len(element.zero_points) - 1)]


@dataclass(frozen=True, slots=True)
class Side:
    """An operand of a product: its zero point, and how far its stored numbers are from that."""

    zero: int
    lowest: int
    highest: int

    @property
    def reach(self) -> int:
        """How far from the zero point there are numbers on both sides, or on the only one."""
        return min(self.highest, -self.lowest) or max(self.highest, -self.lowest)

    @staticmethod
    def of(element: ElementType, channel: int) -> Side | None:
        """Return what an element type says of one channel, or None for one that products do not take."""
        if isinstance(element, UniformQuantizedType) and isinstance(element.storage.element, IntegerElement):
            zero = zero_of(element, channel)
            return Side(zero, int(element.storage.minimum) - zero, int(element.storage.maximum) - zero)
        if isinstance(element, IntegerElement):
            bits = element.width - element.signed
            return Side(0, -(1 << bits) if element.signed else 0, (1 << bits) - 1)
        return None


def factors_of(sums: Array, left: Side, right: Side) -> tuple[Array, Array] | None:
    """Return inputs [sums, K] and weights [K], both without their zero points, whose sums of products these are."""
    reach = left.reach
    one_sided = 0 in (left.lowest, left.highest)
    large = [right.highest, right.lowest] if one_sided else [max(right.highest, right.lowest, key=abs)]
    units = [each for each in (1, -1) if right.lowest <= each <= right.highest]
    if not reach or not units or not any(large):
        return None
    weights: list[int] = []
    for weight in large:
        if abs(weight) > 1:
            weights += [weight] * -(-int(np.abs(sums).max()) // (abs(weight) * reach))
    of_units = max([abs(each) for each in large] if weights else [int(np.abs(sums).max())])
    for unit in units if one_sided else units[:1]:
        weights += [unit] * -(-of_units // reach)
    if len(weights) > MAX_PRODUCTS:
        return None
    inputs = np.zeros((len(sums), len(weights)), np.int64)
    rest = sums.astype(np.int64)
    for place, weight in enumerate(weights):
        quotients = np.abs(rest) // abs(weight) * np.sign(rest) * (1 if weight > 0 else -1)
        inputs[:, place] = np.clip(quotients, left.lowest, left.highest)
        rest = rest - inputs[:, place] * weight
    return (inputs, np.array(weights, np.int64)) if not rest.any() else None


def largest_sum(call: ArrayCall, channel: int) -> int | None:
    """Return up to which magnitude a product has sums in a channel. None if it is no product of integers."""
    names = [name for name in call.types if name != "bias"]
    if len(names) != 2:
        return None
    left, right = (Side.of(call.types[name].element, channel) for name in names)
    if left is None or right is None:
        return None
    weight = max(right.highest, -right.lowest)
    # As many are left for the units.
    return (MAX_PRODUCTS - 2 * -(-weight // left.reach) - 2) * weight * left.reach if left.reach else 0
