"""Sums of products: what becomes of those that an accumulator does not hold, and inputs and weights whose sums are
wanted: weights of 1 and of the largest magnitude, and inputs that make up the sum of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.description import Array
from requant.equality.rules import Codes, Part, Rule
from requant.equality.steps import Steps, within
from requant.formats.elements import IntegerElement
from requant.integer.accumulation import INT32, Accumulation, settle
from requant.mlir.types import ElementType, UniformQuantizedType
from requant.profiles.rule import Accumulator, SumOverflow

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
    def ends(self) -> tuple[int, int]:
        """How far there are numbers on the side of the zero point that has fewer, and on the other."""
        shorter, longer = sorted((self.highest, -self.lowest))
        return shorter, longer

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


@dataclass(frozen=True, slots=True)
class _Weights:
    """The weights that sums are made of: some large ones, and units, where the inputs reach so far."""

    large: list[int]
    units: list[int]
    reach: int

    @staticmethod
    def of(left: Side, right: Side) -> _Weights | None:
        """Return those of the second operand; None if there are none."""
        (shorter, longer), of_weights = left.ends, right.ends
        # Inputs of one side do for sums of either sign if there are weights of both.
        one_sided = not shorter or (2 * shorter < longer and 2 * of_weights[0] >= of_weights[1])
        ends = [right.highest, right.lowest]
        large = [each for each in (ends if one_sided else [max(ends, key=abs)]) if each]
        units = [each for each in (1, -1) if right.lowest <= each <= right.highest]
        if not longer or not large or not units:
            return None
        if not one_sided:
            large, units = [each for each in large if abs(each) > 1], units[:1]
        return _Weights(large, units, longer if one_sided else shorter)

    def listed(self, largest: int) -> list[int]:
        """Return weights for sums up to a magnitude, the large ones first."""
        found = [each for each in self.large for _ in range(-(-largest // (abs(each) * self.reach)))]
        of_units = max(map(abs, self.large)) if found else largest
        return found + [each for each in self.units for _ in range(-(-of_units // self.reach))]

    @property
    def largest_sum(self) -> int:
        """The largest magnitude for which they are `MAX_PRODUCTS`, or a few less."""
        if not self.large:
            return MAX_PRODUCTS // len(self.units) * self.reach
        # As many are left for the units, and for the last of each large one, which need not be whole.
        units = len(self.listed(1)) - len(self.large)
        each = sum(Fraction(1, abs(weight)) for weight in self.large)
        return max(floor((MAX_PRODUCTS - units - len(self.large)) * self.reach / each), 0)


def factors_of(sums: Array, left: Side, right: Side) -> tuple[Array, Array] | None:
    """Return inputs [sums, K] and weights [K], both without their zero points, whose sums of products these are."""
    found = _Weights.of(left, right)
    weights = [] if found is None else found.listed(int(np.abs(sums).max()))
    if not 0 < len(weights) <= MAX_PRODUCTS:
        return None
    inputs = np.zeros((len(sums), len(weights)), np.int64)
    rest = sums.astype(np.int64)
    for place, weight in enumerate(weights):
        quotients = np.abs(rest) // abs(weight) * np.sign(rest) * (1 if weight > 0 else -1)
        inputs[:, place] = np.clip(quotients, left.lowest, left.highest)
        rest = rest - inputs[:, place] * weight
    return (inputs, np.array(weights, np.int64)) if not rest.any() else None


def bounds_of_sums(call: ArrayCall, channel: int) -> tuple[int, int] | None:
    """Return between which sums of a product in a channel there are operands. None if it is no product of integers."""
    names = [name for name in call.types if name != "bias"]
    if len(names) != 2:
        return None
    left, right = (Side.of(call.types[name].element, channel) for name in names)
    if left is None or right is None:
        return None
    found = _Weights.of(left, right)
    largest = 0 if found is None else found.largest_sum
    rises = left.highest * right.highest or left.lowest * right.lowest
    falls = left.highest * right.lowest or left.lowest * right.highest
    return -largest if falls else 0, largest if rises else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRule(Rule):
    """A rule of the exact sums of a product, between bounds. `overflow`: what becomes of those that int32 does not
    hold; None where the accumulator holds all.
    """

    overflow: SumOverflow | None

    @staticmethod
    def of(rule: Rule, accumulation: Accumulation, bounds: tuple[int, int]) -> SumRule:
        """Return the rule of exact sums from that of the sums that are kept, in parts that are the same for all."""
        [kept] = rule.parts
        overflow = accumulation.overflow if accumulation.accumulator is Accumulator.I32 else None
        lowest, highest = int(INT32.min), int(INT32.max)
        steps = None if kept.steps is None else (*_overflowing(overflow), *kept.steps)
        parts = (
            replace(kept, lowest=max(lowest, bounds[0]), highest=min(highest, bounds[1])),
            Part("sums above", highest + 1, bounds[1], 0, steps),
            Part("sums below", bounds[0], lowest - 1, 0, steps),
        )
        some = tuple(each for each in parts if each.size > 0)
        given = rule.text, rule.plan, rule.input_name
        return SumRule(text=given[0], plan=given[1], input_name=given[2], parts=some, overflow=overflow)

    @property
    def holds_all_of_int32(self) -> bool:
        """Whether the outcomes of sums beyond int32 are those of sums in the first part."""
        return self.overflow is not None and self.parts[0].size == 1 << 32

    def array(self, part: Part, codes: Codes) -> Array:
        """Return exact sums."""
        return codes

    def convert(self, array: Array, target: Array) -> int | None:
        """Convert exact sums into `target`. Return the index of the first that is undefined, if there is one."""
        overflow, outside = self.overflow, np.zeros(0, np.int64)
        if overflow is SumOverflow.ERROR:
            outside = np.flatnonzero((array < INT32.min) | (array > INT32.max))[:1]
            overflow = SumOverflow.SATURATE
        kept = array if overflow is None else settle(array, overflow, 0)
        # By its name, since a class with slots is another than the one in which its methods were written.
        first = Rule.convert(self, kept, target)
        return min([*outside.tolist(), *([] if first is None else [first])], default=None)


def _overflowing(overflow: SumOverflow | None) -> Steps:
    """Return the steps from an exact sum to one that is kept."""
    match overflow:
        case SumOverflow.WRAP:
            return (("wrap", 32),)
        case SumOverflow.SATURATE:
            return (("clamp", int(INT32.min), int(INT32.max)),)
        case SumOverflow.ERROR:
            return within(int(INT32.min), int(INT32.max))
    return ()
