"""4-bit elements as onnxruntime stores them, two to a byte, where a byte belongs to two runs of one scale, or ends one.

onnxruntime converts whole bytes in vectors, which saturate. An element that begins a run in the middle of a byte, or
ends one there, is converted alone: it goes to int32 as x86 converts, so that NaN and everything beyond int32 is -2^31;
the zero point is added, and the sum clamped. Both give the same wherever x / s is within int32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from requant.convert.quantize.general import stored_nans
from requant.formats.elements import FloatElement
from requant.plan.lanes import rounded_scales, widen
from requant.plan.operands import QuantizedOperand, float_element, static_shape
from requant.plan.plan import Array, Plan, around
from requant.profiles import OperationRule
from requant.profiles.rule import Missing

# Runs to a piece: enough that a piece costs nothing, few enough that what is kept of them stays in the cache.
_RUNS = 1 << 15
# In runs shorter than this it is cheaper to look at every element than to gather those that stand alone.
_SHORT_RUN = 512
# A quotient below this does not become 2^31 when it is rounded to f32.
_SURELY_WITHIN = np.float32(2.0**30)
_BEYOND_INT32 = np.float32(2.0**31)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of `length` elements of one scale. The last one of each `period` may be shorter."""

    length: int
    period: int

    @classmethod
    def of(cls, operand: QuantizedOperand) -> Runs:
        """Return the runs of a tensor that is not empty."""
        shape = static_shape(operand.tensor)
        pairs = zip(shape, operand.blocks, strict=True)
        axis = max((axis for axis, (size, block) in enumerate(pairs) if block < size), default=None)
        if axis is None:
            return cls(operand.elements, operand.elements)
        inner = prod(shape[axis + 1 :])
        return cls(operand.blocks[axis] * inner, shape[axis] * inner)

    @property
    def split_bytes(self) -> bool:
        """Whether a run begins or ends in the middle of a byte."""
        return self.length % 2 == 1 or self.period % 2 == 1

    def alone(self, start: int, stop: int) -> Array:
        """Return which elements from `start` to `stop` share their byte with none of their own run."""
        count = -(-self.period // self.length)
        first, last = (place // self.period * count + place % self.period // self.length for place in (start, stop))
        period, run = np.divmod(np.arange(first, last + 1), count)
        begins = period * self.period + run * self.length
        odd = begins[begins % 2 == 1]
        places = np.concatenate([odd - 1, odd])
        return places[(places >= start) & (places < stop)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBytesPlan(Plan):
    """`whole` converts every element; then those that stand alone in their byte are converted again, if any is far out.

    `scales`, `indefinite` (what -2^31 plus the zero point is clamped to) and `negative` (whether that sum wraps) have
    an entry for each parameter, laid out as runs. Where all |x| are below `reach`, no x / s is beyond int32. With
    `keeps_nan` what NaN becomes is left to `whole`.
    """

    whole: Plan
    runs: Runs
    layout: tuple[int, int, int, int]
    scales: Array
    indefinite: Array
    negative: Array
    reach: np.float32
    keeps_nan: bool
    element: FloatElement

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        length = self.runs.length * _RUNS
        for begin in range(0, source.size, length):
            piece = slice(begin, begin + length)
            before = counts[:3].tolist()
            self.whole.step(source[piece], target[piece], start + begin, counts)
            # What is beyond int32 is beyond 4 bits, and has been counted.
            if counts[:3].tolist() != before:
                self._convert_alone(source[piece], target[piece], start + begin, counts)

    def _convert_alone(self, source: Array, target: Array, start: int, counts: Array) -> None:
        lanes = widen(source, self.element)
        short = self.runs.length < _SHORT_RUN
        if short and -self.reach < lanes.min() and lanes.max() < self.reach:
            return
        places = self.runs.alone(start, start + source.size)
        run, channels, group, groups = self.layout
        parameter = places // group % groups * channels + places // run % channels
        with np.errstate(all="ignore"):
            quotient = lanes[places - start] / self.scales[parameter]
        missing = np.isnan(quotient)
        # -2^31 itself fits int32, but its sum with a negative zero point wraps too.
        number = ~missing & ~((quotient > -_BEYOND_INT32) & (quotient < _BEYOND_INT32))
        far = number if self.keeps_nan else number | missing
        target[places[far] - start] = self.indefinite[parameter[far]]
        was_high, is_high = quotient[number] > 0, self.negative[parameter[number]]
        moved = int(np.count_nonzero(is_high)) - int(np.count_nonzero(was_high))
        counts[0] -= moved
        counts[1] += moved

    def explain_undefined(self, counts: Array) -> str:
        return self.whole.explain_undefined(counts)


def plan_split_bytes(whole: Plan, rule: OperationRule, operand: QuantizedOperand, *, keeps_nan: bool) -> Plan:
    """Return a plan around `whole`, for a tensor in which a byte is split between runs of at least two elements."""
    channels = operand.channels.as_runs()
    zero_points = np.array(operand.zero_points, np.int64)
    indefinite = stored_nans(replace(rule, missing=Missing.INDEFINITE), operand)
    scales = rounded_scales(operand.scales, operand.expressed, rule)
    with np.errstate(over="ignore"):
        reach = scales.min() * _SURELY_WITHIN
    return SplitBytesPlan(
        **around(whole),
        whole=whole,
        runs=Runs.of(operand),
        layout=channels.scalars,
        scales=channels.lay_out(scales, "<f4"),
        indefinite=channels.lay_out(indefinite, operand.dtype.str),
        negative=channels.lay_out(zero_points < 0, "|b1"),
        reach=reach,
        keeps_nan=keeps_nan,
        element=float_element(whole.input_type, "input"),
    )
