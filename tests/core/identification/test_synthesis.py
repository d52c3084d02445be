"""Rules that no profile has, made up of parts and computed here in exact fractions, are found again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest

from requant.arrays.calls import ArrayCall, call_on_arrays
from requant.description import Array
from requant.identification.candidates import options_for
from requant.identification.identification import Identification, identify
from requant.identification.reduction import reduced
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from tests.support.cases import EXHAUSTIVE

COUNT = 80 if EXHAUSTIVE else 8
_OPERATIONS = {**OPERATIONS, **{each.name: each for each in CONVERSIONS.values()}}
_HALF = Fraction(1, 2)
_FEW = ("litert", "onnx")


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
        wraps=bool(rng.random() < 0.2),
    )


@dataclass(frozen=True)
class Case:
    """A made-up rule with the parameters of a call. `scale` and `zero_point` are of the output."""

    kind: str
    rule: Rule
    scale: float
    zero_point: int
    of_sums: float
    has_bias: bool

    @staticmethod
    def drawn(seed: int) -> Case:
        rng = np.random.default_rng(seed)
        kind = str(rng.choice(["quantize", "requantize", "matmul", "conv2d"]))
        return Case(
            kind,
            _drawn(rng, of_sums=kind != "quantize"),
            float(np.float32(rng.choice([0.5, 0.1, 0.37, 2.0**-5]))),
            int(rng.integers(-20, 20)),
            float(np.float32(rng.choice([0.001, 0.01, 0.0007, 2.0**-9, 0.003]))),
            bool(rng.random() < 0.5),
        )

    @property
    def output(self) -> str:
        return f"!quant.uniform<i8:f32, {self.scale!r}:{self.zero_point}>"

    def call(self, seed: int) -> ArrayCall:
        """Return a call whose outputs the rule gives: with ties, saturation, and both signs."""
        rng = np.random.default_rng(seed)
        if self.kind == "quantize":
            reals = (rng.integers(-600, 600, 4000) / 4 * np.float32(self.scale)).astype(np.float32)
            reals[::3] = rng.normal(0, 60 * self.scale, len(reals[::3]))
            given = [self.rule.quantized(float(each), self.scale, self.zero_point) for each in reals]
            return self._observed({"input": reals}, {}, given, reals.shape)
        if self.kind == "requantize":
            factor = self.of_sums / self.scale
            sums = rng.integers(-int(140 / factor), int(140 / factor), 4000)
            types = {"input": f"!quant.uniform<i32:f32, {self.of_sums!r}>"}
            return self._observed({"input": sums.astype(np.int32)}, types, self._scaled(sums, factor), sums.shape)
        # A power of two: the product of the scales is exact.
        factor = self.of_sums * 0.25 / self.scale
        lhs, rhs = rng.integers(-128, 128, (60, 24)), rng.integers(-127, 128, (24, 50))
        bias = rng.integers(-3000, 3000, 50) * self.has_bias
        sums = lhs @ rhs + bias
        names = ("lhs", "rhs") if self.kind == "matmul" else ("input", "weights")
        arrays = dict(zip(names, (lhs.astype(np.int8), rhs.astype(np.int8)), strict=True))
        shape: tuple[int, ...] = sums.shape
        if self.kind == "conv2d":
            images, kernels = arrays["input"].reshape(5, 3, 4, 24), arrays["weights"].T.reshape(50, 1, 1, 24)
            arrays, shape = {"input": images, "weights": kernels}, (5, 3, 4, 50)
        if self.has_bias:
            arrays["bias"] = bias.astype(np.int32)
        scales = dict(zip(names, (self.of_sums, 0.25), strict=True))
        types = {name: f"!quant.uniform<i8:f32, {scale!r}>" for name, scale in scales.items()}
        return self._observed(arrays, types, self._scaled(sums.reshape(-1), factor), shape)

    def _scaled(self, sums: Array, factor: float) -> list[int]:
        return [self.rule.requantized(int(each), factor, self.zero_point) for each in sums]

    def _observed(
        self, arrays: Mapping[str, Any], types: Mapping[str, str], integers: list[int], shape: tuple[int, ...]
    ) -> ArrayCall:
        stored = [self.rule.stored(each, -128, 127) for each in integers]
        call = call_on_arrays(_OPERATIONS[self.kind], arrays, types, {"output_type": self.output})
        return call.with_observed({"output": np.array(stored, np.int8).reshape(shape)})


def _share(answer: Identification, call: ArrayCall, case: Case) -> float:
    """Return the part of the outputs of a call that what was found gives; of several rules, the best."""
    observed = call.observed["output"].reshape(-1)
    if answer.consistent:
        candidates = [one.candidates[0] for each in answer.consistent for one in each.groups]
        computed = (call.result(call.planned(options_for(each, call))).outputs["output"].data for each in candidates)
        return max(float(np.mean(each == observed)) for each in computed)
    assert answer.unexplained is not None, case
    assert not answer.unexplained.readings, case
    synthesis, numbers = answer.unexplained.synthesis, reduced(call)
    assert synthesis is not None, case
    assert synthesis.scaling is not None, case
    assert synthesis.bounding is not None, case
    assert not synthesis.unexplained, case
    assert numbers is not None
    integers = synthesis.bounding.compute(synthesis.scaling.compute(numbers.stored))
    return float(np.mean(integers == numbers.observed))


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(COUNT))
def test_a_rule_that_no_profile_has(seed: int) -> None:
    case = Case.drawn(seed)
    call = case.call(seed)
    found = _identified(call, seed)
    assert _share(found, call, case) == 1, case
    # Data of 4,000 elements do not tell every rule from every other.
    assert _share(found, case.call(1000 + seed), case) > 0.98, case


def _identified(call: ArrayCall, seed: int) -> Identification:
    """Synthesize; of eight calls, one is compared with every profile before."""
    return identify([call], None if seed % 8 == 0 else _FEW)


@pytest.mark.exhaustive
def test_one_rule_explains_several_calls() -> None:
    case = replace(Case.drawn(5), kind="requantize", rule=Rule("down", 16, "up"))
    assert _share(identify([case.call(1), case.call(2)]), case.call(3), case) == 1


@pytest.mark.parametrize("seed", range(COUNT // 4))
def test_a_flipped_bit_stays_unexplained(seed: int) -> None:
    call = Case.drawn(1000 + seed).call(seed)
    rng = np.random.default_rng(seed)
    observed = call.observed["output"].copy()
    # An element that is computed within the bounds: what saturates explains a bit of it.
    inner = np.flatnonzero((observed.reshape(-1) > -120) & (observed.reshape(-1) < 120))
    index = int(rng.choice(inner))
    observed.reshape(-1)[index] ^= np.int8(1 << int(rng.integers(0, 7)))
    answer = _identified(call.with_observed({"output": observed}), seed)
    assert not answer.consistent
    assert answer.unexplained is not None
    assert not answer.unexplained.readings
    synthesis = answer.unexplained.synthesis
    assert synthesis is not None
    assert [each.index for each in synthesis.unexplained] == [index]
