"""Requantizations: formulas, staircases and counts against the oracle in exact integers."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from requant.convert.scaling import ScalingPlan
from requant.equality.decision import Equivalence, Method, compare
from requant.equality.rules import Rule, requantization
from requant.equality.steps import outcome
from requant.errors import UnsupportedError
from requant.mlir import parse_type
from requant.schemes import SCHEMES, Multiplier
from tests.core.equality.pairs import multipliers_of, requantized
from tests.oracles import schemes as oracle
from tests.support.cases import EXHAUSTIVE

BYTES = (-128, 127)
ACCUMULATOR = "!quant.uniform<i32:f32, 0.001>"
ACTIVATION = "!quant.uniform<i8:f32, 0.25:-1>"


def counts(decided: Equivalence) -> tuple[int, ...]:
    return decided.differing, decided.only_first, decided.only_second, decided.neither


def near_ties(multiplier: Multiplier, right: int, drawn: random.Random, z_in: int = 0) -> list[int]:
    """Inputs whose product is closest to a tie, with their neighbors."""
    ties = [((2 * drawn.randrange(-130, 130) + 1) << right) // (2 * max(multiplier.multiplier, 1)) for _ in range(40)]
    return [z_in + tie + off for tie in ties for off in (-1, 0, 1)]


@pytest.mark.sample(5)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_formulas_are_those_of_the_oracle(scheme: str) -> None:
    drawn = random.Random(scheme)
    for rule, multiplier in multipliers_of(scheme, 1, 60 if EXHAUSTIVE else 12):
        (part,) = rule.parts
        assert part.steps is not None
        plan = rule.plan
        assert isinstance(plan, ScalingPlan)
        z_in, z_out = int(plan.sides.zeros_in[0]), int(plan.sides.zeros_out[0])
        right = SCHEMES[scheme].right_shift(multiplier.shift)
        numbers = {*near_ties(multiplier, max(right, 0), drawn, z_in), part.lowest, part.highest, 0, z_in, z_in - 1}
        numbers |= {drawn.randint(part.lowest, part.highest) for _ in range(40)}
        for q in sorted(each for each in numbers if part.lowest <= each <= part.highest):
            expected = oracle.requantized(scheme, q, z_in, multiplier.multiplier, multiplier.shift, z_out, BYTES)
            assert outcome(part.steps, q)[0] == expected
            assert rule.outcome(part, q) == expected


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_thresholds_find_what_a_computation_of_every_input_finds(scheme: str) -> None:
    drawn = random.Random(scheme)
    rules = list(multipliers_of(scheme, 2, 12 if EXHAUSTIVE else 3))
    others = [rule for name in drawn.sample(sorted(SCHEMES), 4) for rule, _ in multipliers_of(name, 2, 2)]
    methods = Counter[Method]()
    for rule, multiplier in rules:
        for other in (*others[:2], drawn.choice(others), *([same] if (same := sibling(scheme, multiplier)) else [])):
            decided = compare(rule, other)
            swept = compare(rule, other, thresholds=False, workers=1)
            assert counts(decided) == counts(swept)
            assert decided.inputs == swept.inputs == 1 << 16
            ends = [(each.sample[0], each.sample[-1]) if each.sample else None for each in (decided, swept)]
            assert ends[0] == ends[1]
            methods[decided.parts[0].method] += 1
    assert methods[Method.THRESHOLDS] > sum(methods.values()) // 2


def sibling(scheme: str, multiplier: Multiplier) -> Rule | None:
    """A rule of the same multiplier, perhaps by another rounding."""
    other = {"litert": "litert_single_rounding", "arm_vector": "litert", "tosa": "tosa_double_round"}.get(scheme)
    if other is None or multiplier.multiplier < 0 or multiplier.shift > SCHEMES[other].shifts[1]:
        return None
    return requantized(other, multiplier, "i16")


@pytest.mark.exhaustive
def test_counts_of_16_bits_are_those_of_the_oracle() -> None:
    m, shift = 1234567891, -7
    pairs = [("litert", "litert_single_rounding"), ("litert", "arm_vector"), ("arm_vector", "litert_single_rounding")]
    for first, second in pairs:
        decided = compare(*(requantized(each, Multiplier(m, shift), "i16") for each in (first, second)))
        results = [
            [oracle.requantized(each, q, 0, m, shift, 0, BYTES) for q in range(-(1 << 15), 1 << 15)]
            for each in (first, second)
        ]
        differing = [q - (1 << 15) for q, (a, b) in enumerate(zip(*results, strict=True)) if a != b]
        assert decided.differing == len(differing) > 0
        assert [decided.sample[0].code, decided.sample[-1].code] == [differing[0], differing[-1]]


def test_sampled_differences_of_32_bits_are_real_and_what_is_not_listed_is_equal() -> None:
    rules = [
        requantization(parse_type(ACCUMULATOR), parse_type(ACTIVATION), each) for each in ("litert", "litert_xnnpack")
    ]
    derived = [oracle.derive(each, oracle.factor(each, 0.001, None, 0.25)) for each in ("litert", "xnnpack_fp32")]
    decided = compare(rules[0], rules[1])
    assert decided.inputs == 1 << 32
    assert decided.differing == 36

    def both(q: int) -> list[int | None]:
        return [
            oracle.requantized(scheme, q, 0, pair.multiplier, pair.shift, -1, BYTES)
            for scheme, pair in zip(("litert", "xnnpack_fp32"), derived, strict=True)
            if pair is not None
        ]

    differing = [q for q in range(-40000, 40000) if len(set(both(q))) > 1]
    assert len(differing) == 36
    assert {each.code for each in decided.sample} <= set(differing)
    for each in decided.sample:
        assert [each.first, each.second] == both(each.code)


def test_undefined_inputs_are_counted_apart() -> None:
    # CMSIS-NN is undefined where LiteRT's left shift wraps.
    decided = compare(requantized("litert", Multiplier(1 << 30, 3)), requantized("cmsis_nn", Multiplier(1 << 30, 3)))
    assert counts(decided) == (0, (1 << 32) - (1 << 29), 0, 0)
    assert decided.equal_where_defined
    assert not decided.equal
    assert decided.sample[0].second is None
    assert decided.sample[0].code == -(1 << 31)


def test_a_multiplier_below_zero_makes_a_falling_staircase() -> None:
    rules = [requantized(each, Multiplier(-1234567891, -7), "i16") for each in ("litert", "arm_vector")]
    assert counts(compare(*rules)) == counts(compare(*rules, thresholds=False))
    assert rules[0].outcome(rules[0].parts[0], 1000) == oracle.requantized("litert", 1000, 0, -1234567891, -7, 0, BYTES)


def test_one_formula_is_equal_however_often_it_wraps() -> None:
    decided = compare(
        requantized("litert", Multiplier(1 << 30, 25)), requantized("arm_vector", Multiplier(1 << 30, 25))
    )
    assert decided.equal
    assert [each.method for each in decided.parts] == [Method.FORMULA]


def test_wide_accumulators() -> None:
    rules = [requantized("cmsis_nn_int64", Multiplier(1 << 30, shift), "i48") for shift in (-3, -4)]
    decided = compare(*rules)
    assert decided.inputs == 1 << 48
    assert decided.only_first == 0 < decided.only_second
    assert 0 < decided.differing < 1 << 48
    assert compare(rules[0], rules[0]).equal
    assert compare(*(requantized("onnxruntime", Multiplier(3 << 22, 40), "i64") for _ in range(2))).inputs == 1 << 64


def test_rules_of_other_inputs_or_outcomes_are_refused() -> None:
    multiplier = Multiplier(1 << 30, -7)
    with pytest.raises(UnsupportedError, match="the inputs of the first rule are i32, and those of the second i16"):
        compare(requantized("litert", multiplier), requantized("litert", multiplier, "i16"))
    with pytest.raises(UnsupportedError, match="has several scales"):
        requantization(parse_type("!quant.uniform<i32:f32:0, {0.5, 0.25}>"), parse_type(ACTIVATION))


def test_too_many_inputs_that_thresholds_do_not_decide() -> None:
    multiplier = Multiplier(3 << 22, 40)
    rules = [requantized(each, multiplier, "i64", "i32") for each in ("onnxruntime", "onnx_reference")]
    with pytest.raises(UnsupportedError, match=r"at most 2\^32 are"):
        compare(*rules)
