"""Rules that no profile has, made up of parts and computed here in exact fractions, are found again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest

from requant.arrays.calls import ArrayCall, call_on_arrays
from requant.description import Array
from requant.identification.identification import identify
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from tests.support.cases import EXHAUSTIVE

COUNT = 200 if EXHAUSTIVE else 12
_OPERATIONS = {**OPERATIONS, **{each.name: each for each in CONVERSIONS.values()}}
_HALF = Fraction(1, 2)


def _toward_zero(value: Fraction) -> int:
    return floor(value) if value >= 0 else -floor(-value)


def _nearest(tie: Callable[[int], int]) -> Callable[[Fraction], int]:
    def rounded(value: Fraction) -> int:
        lower = floor(value)
        rest = value - lower
        return tie(lower) if rest == _HALF else lower + (rest > _HALF)

    return rounded


ROUNDINGS: Mapping[str, Callable[[Fraction], int]] = {
    "even": _nearest(lambda lower: lower + lower % 2),
    "away": _nearest(lambda lower: lower + (lower >= 0)),
    "up": _nearest(lambda lower: lower + 1),
    "down": _nearest(lambda lower: lower),
    "toward zero": _toward_zero,
    "floor": floor,
    "ceiling": lambda value: -floor(-value),
}


@dataclass(frozen=True)
class Rule:
    """A rule of the test. `bits`: those of its multiplier, 0 for a factor in floats; `first`: the first of two
    roundings.
    """

    rounding: str
    bits: int = 0
    first: str = ""
    truncated: bool = False
    f64: bool = False
    zero_point_first: bool = False
    reciprocal: bool = False
    offset: int = 0
    wraps: bool = False

    def stored(self, integer: int, lowest: int, highest: int) -> int:
        integer += self.offset
        if self.wraps:
            return (integer - lowest) % (highest - lowest + 1) + lowest
        return min(max(integer, lowest), highest)

    def in_floats(self, number: float) -> float:
        return float(number) if self.f64 else float(np.float32(number))

    def end(self, value: float, zero_point: int) -> int:
        if self.zero_point_first:
            return ROUNDINGS[self.rounding](Fraction(self.in_floats(value + zero_point)))
        return ROUNDINGS[self.rounding](Fraction(value)) + zero_point

    def requantized(self, sum_: int, factor: float, zero_point: int) -> int:
        if not self.bits:
            return self.end(self.in_floats(self.in_floats(sum_) * self.in_floats(factor)), zero_point)
        exponent = 0
        exact = Fraction(factor)
        while exact >= 1 << self.bits:
            exact, exponent = exact / 2, exponent - 1
        while exact < 1 << (self.bits - 1):
            exact, exponent = exact * 2, exponent + 1
        multiplier = floor(exact) if self.truncated else floor(exact + _HALF)
        if multiplier == 1 << self.bits:
            multiplier, exponent = multiplier >> 1, exponent - 1
        if not self.first:
            return ROUNDINGS[self.rounding](Fraction(sum_ * multiplier, 1 << exponent)) + zero_point
        high = ROUNDINGS[self.first](Fraction(sum_ * multiplier, 1 << self.bits))
        return ROUNDINGS[self.rounding](Fraction(high, 1 << (exponent - self.bits))) + zero_point

    def quantized(self, real: float, scale: float, zero_point: int) -> int:
        if self.reciprocal:
            return self.end(self.in_floats(real * self.in_floats(1 / self.in_floats(scale))), zero_point)
        return self.end(self.in_floats(real / self.in_floats(scale)), zero_point)


def _drawn(rng: np.random.Generator, *, of_sums: bool) -> Rule:
    bits = int(rng.choice([0, 31, 24, 16, 15, 8])) if of_sums else 0
    names = list(ROUNDINGS)
    return Rule(
        rounding=str(rng.choice(names)),
        bits=bits,
        first=str(rng.choice(names)) if bits and rng.random() < 0.5 else "",
        truncated=bool(bits and rng.random() < 0.5),
        f64=bool(rng.random() < 0.5),
        zero_point_first=bool(not bits and rng.random() < 0.5),
        reciprocal=bool(not of_sums and rng.random() < 0.5),
        offset=int(rng.choice([0, 0, 1, -1])),
        wraps=False,
    )


def _call(
    operation: str, arrays: Mapping[str, Any], types: Mapping[str, str], output: str, observed: Array
) -> ArrayCall:
    call = call_on_arrays(_OPERATIONS[operation], arrays, types, {"output_type": output})
    return call.with_observed({"output": observed})


def _made_up(seed: int) -> tuple[Rule, ArrayCall]:
    """Return a rule, and a call whose outputs it gives: with ties, saturation, and both signs."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["quantize", "requantize", "matmul"]))
    rule = _drawn(rng, of_sums=kind != "quantize")
    zero_point = int(rng.integers(-20, 20))
    scale = float(np.float32(rng.choice([0.5, 0.1, 0.37, 2.0**-5])))
    output = f"!quant.uniform<i8:f32, {scale!r}:{zero_point}>"
    if kind == "quantize":
        steps = rng.integers(-600, 600, 4000) / 4
        reals = (steps * np.float32(scale)).astype(np.float32)
        reals[::3] = rng.normal(0, 60 * scale, len(reals[::3]))
        given = [rule.stored(rule.quantized(float(each), scale, zero_point), -128, 127) for each in reals]
        return rule, _call(kind, {"input": reals}, {}, output, np.array(given, np.int8))
    of_sums = float(np.float32(rng.choice([0.001, 0.01, 0.0007, 2.0**-9, 0.003])))
    if kind == "requantize":
        factor = float(np.float32(of_sums)) / scale
        sums = rng.integers(-int(140 / factor), int(140 / factor), 4000)
        given = [rule.stored(rule.requantized(int(each), factor, zero_point), -128, 127) for each in sums]
        types = {"input": f"!quant.uniform<i32:f32, {of_sums!r}>"}
        return rule, _call(kind, {"input": sums.astype(np.int32)}, types, output, np.array(given, np.int8))
    of_weights = 0.25
    factor = of_sums * of_weights / scale
    lhs, rhs = rng.integers(-128, 128, (60, 24)), rng.integers(-127, 128, (24, 50))
    sums = lhs @ rhs
    given = [rule.stored(rule.requantized(int(each), factor, zero_point), -128, 127) for each in sums.reshape(-1)]
    types = {"lhs": f"!quant.uniform<i8:f32, {of_sums!r}>", "rhs": f"!quant.uniform<i8:f32, {of_weights!r}>"}
    arrays = {"lhs": lhs.astype(np.int8), "rhs": rhs.astype(np.int8)}
    return rule, _call(kind, arrays, types, output, np.array(given, np.int8).reshape(sums.shape))


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_rule_that_no_profile_has(seed: int) -> None:
    rule, call = _made_up(seed)
    answer = identify([call])
    if answer.consistent:
        return
    assert answer.unexplained is not None, rule
    if answer.unexplained.readings:
        return
    synthesis = answer.unexplained.synthesis
    assert synthesis is not None, rule
    assert synthesis.formulas, rule
    assert not synthesis.unexplained, rule


@pytest.mark.parametrize("seed", range(COUNT // 4))
def test_a_flipped_bit_stays_unexplained(seed: int) -> None:
    _, call = _made_up(1000 + seed)
    rng = np.random.default_rng(seed)
    observed = call.observed["output"].copy()
    # An element that is computed within the bounds: what saturates explains a bit of it.
    inner = np.flatnonzero((observed.reshape(-1) > -120) & (observed.reshape(-1) < 120))
    index = int(rng.choice(inner))
    observed.reshape(-1)[index] ^= np.int8(1 << int(rng.integers(0, 7)))
    answer = identify([call.with_observed({"output": observed})])
    assert not answer.consistent
    assert answer.unexplained is not None
    assert not answer.unexplained.readings
    synthesis = answer.unexplained.synthesis
    assert synthesis is not None
    assert [each.index for each in synthesis.unexplained] == [index]


def test_inputs_to_try_next_are_defined_for_all() -> None:
    """Rules that are undefined beyond the bounds are consistent with others that saturate."""
    _, call = _made_up(14)
    assert identify([call]).probes
