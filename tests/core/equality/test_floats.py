"""Quantizations, casts and dequantizations: staircases against a computation of every input, and against oracles."""

from __future__ import annotations

import struct
from itertools import combinations, pairwise, product

import pytest

from requant.convert.requantize import ThroughRealPlan
from requant.equality.decision import Equivalence, Method, compare
from requant.equality.rules import Part, Rule, dequantization, quantization, requantization
from requant.equality.steps import outcome
from requant.errors import UnsupportedError
from requant.formats.rounding import Rounding
from requant.mlir import parse_type
from tests.core.equality.pairs import quantized, rules_of
from tests.oracles import profiles as oracle
from tests.oracles.casts import TARGETS, cast
from tests.support.cases import sample

SHORT = ("f16", "bf16")
SMALL = ("f16", "bf16", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f4E2M1FN", "f6E2M3FN", "f6E3M2FN")


def counts(decided: Equivalence) -> tuple[int, ...]:
    return decided.inputs, decided.differing, decided.only_first, decided.only_second, decided.neither


def check_by_sweep(first: Rule, second: Rule) -> Equivalence:
    decided, swept = compare(first, second), compare(first, second, thresholds=False, workers=1)
    assert counts(decided) == counts(swept), (first.text, second.text)
    ends = [(each.sample[0], each.sample[-1]) if each.sample else None for each in (decided, swept)]
    assert ends[0] == ends[1]
    for rule, parts in ((first, first.parts), (second, second.parts)):
        for part in parts:
            check_steps(rule, part)
    return decided


def check_steps(rule: Rule, part: Part) -> None:
    """The formula gives what the kernel gives, also where no certificate is made."""
    if part.steps is not None:
        # Of 2^32 inputs never all.
        numbers = range(part.lowest, part.highest + 1, max(part.size // 60, 1) | 1)
        assert [outcome(part.steps, code)[0] for code in numbers] == [rule.outcome(part, code) for code in numbers]


def neighbors(rules: dict[str, Rule]) -> list[tuple[Rule, Rule]]:
    """Each rule with the next one, in a circle."""
    every = list(rules.values())
    return list(pairwise([*every[-1:], *every]))


@pytest.mark.sample(1)
@pytest.mark.parametrize("expressed", SHORT)
@pytest.mark.parametrize("target", ["i8:{}, 0.1:3", "u8<3:200>:{}, 0.0625:128", "i4:{}, 3.0:-1", "i16:{}, 1.0e-3:-700"])
def test_quantizations_of_16_bits(expressed: str, target: str) -> None:
    rules = rules_of("quantize", expressed, f"!quant.uniform<{target.format(expressed)}>")
    assert len(rules) >= 5
    for first, second in neighbors(rules):
        decided = check_by_sweep(first, second)
        assert decided.inputs == 1 << 16
        assert decided.is_certifiable


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", [*SHORT, "f8E5M2", "f8E4M3FNUZ", "f4E2M1FN"])
@pytest.mark.parametrize("target", SMALL)
def test_casts_of_16_bits(source: str, target: str) -> None:
    rules = rules_of("quantize", source, target)
    for first, second in neighbors(rules):
        assert check_by_sweep(first, second).is_certifiable == (
            all(part.steps is not None for rule in (first, second) for part in rule.parts)
        )


@pytest.mark.sample(3)
@pytest.mark.parametrize("storage", ["i8", "u8", "i4", "u2", "u16", "i16", "f8E4M3FN", "f8E5M2", "f4E2M1FN"])
@pytest.mark.parametrize("expressed", ["f32", "f16", "bf16", "f64"])
def test_dequantizations(storage: str, expressed: str) -> None:
    zero = "" if storage.startswith("f") or storage == "i16" else ":1"
    rules = rules_of("dequantize", f"!quant.uniform<{storage}:{expressed}, 0.1{zero}>", expressed)
    for first, second in neighbors(rules):
        assert check_by_sweep(first, second).is_certifiable


def test_formulas_of_dequantizations_of_32_bits() -> None:
    rules = rules_of("dequantize", "!quant.uniform<i32:f32, 0.1:77>", "f32")
    proven = {name: rule.parts[0] for name, rule in rules.items() if rule.parts[0].steps is not None}
    assert len(proven) >= 5
    for name, part in proven.items():
        check_steps(rules[name], part)


def test_requantizations_through_real_numbers() -> None:
    target = parse_type("!quant.uniform<i8:f32, 0.25:-1>")
    for storage in ("i8", "i16", "i32"):
        source = parse_type(f"!quant.uniform<{storage}:f32, 0.00123>")
        first, second = (
            requantization(source, target, "torch_decomposed", scheme=each) for each in (None, "onnxruntime")
        )
        assert isinstance(first.plan, ThroughRealPlan)
        check_steps(first, first.parts[0])
        decided = compare(first, second)
        assert decided.is_certifiable
        for each in decided.sample:
            x = oracle.dequantize("torch_decomposed", each.code, 0.00123, 0, oracle.target(storage))
            assert oracle.torch_decomposed(x, 0.25, -1, oracle.target("i8")).value == each.first


@pytest.mark.sample(1)
@pytest.mark.parametrize("source", [*SHORT, "f8E5M2", "f8E4M3FNUZ", "f8E8M0FNU", "f4E2M1FN", "f6E3M2FN"])
def test_decoders(source: str) -> None:
    rules = rules_of("dequantize", source, "f32")
    for first, second in neighbors(rules):
        decided = check_by_sweep(first, second)
        assert decided.equal
        assert decided.is_certifiable == (source != "f8E8M0FNU")


def test_tables_of_values_are_computed_one_by_one() -> None:
    entries = ", ".join(f"{index / 8 - 1!r}" for index in range(15))
    table = f"!quant.uniform<!quant.quantile<i4:f16, {{{entries}, %s}}>:f32, 0.07>"
    first, second = (dequantization(parse_type(table % last), None, "quantile") for last in ("1.0", "0.9"))
    decided = compare(first, second)
    assert [each.method for each in decided.parts] == [Method.SWEEP]
    assert [(each.code, each.text) for each in decided.sample] == [(15, "15")]


def f32(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return float(value)


ORACLES = {each.__name__: each for each in (oracle.litert, oracle.onnx, oracle.stablehlo, oracle.torch, oracle.onednn)}


@pytest.mark.parametrize("scale", [0.1, 0.00214854861, 1e-30, 3e38])
def test_quantizations_of_32_bits_at_all_thresholds(scale: float) -> None:
    target = oracle.target("i8")
    rules = {each: quantized(each, "f32", f"!quant.uniform<i8:f32, {scale:.16e}:3>") for each in ORACLES}
    for (one, first), (other, second) in sample(list(combinations(rules.items(), 2)), 5):
        decided = compare(first, second)
        assert decided.is_certifiable
        seen = 0
        for part in decided.parts:
            assert part.common is not None
            common = part.common
            rows = zip(common.starts.tolist(), common.ends.tolist(), *map(list, common.outcomes), strict=True)
            for start, end, a, b in sample(list(rows), 60):
                for code in (start, end):
                    x = f32(code | part.part.sign)
                    if x == x:
                        assert [ORACLES[name](x, scale, 3, target).value for name in (one, other)] == [a, b]
                        seen += 1
        assert seen > 10


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        *product(["f32", "f64"], ["f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f4E2M1FN"]),
        ("f32", "f16"),
        pytest.param("f64", "f16", marks=pytest.mark.exhaustive),
    ],
)
def test_casts_at_all_thresholds(source: str, target: str) -> None:
    rules = {name: rule for name, rule in rules_of("quantize", source, target).items() if name in TARGETS}
    letters, size = ("<Q", "<d") if source == "f64" else ("<I", "<f"), 8 if source == "f64" else 4
    for profile, rule in sample(list(rules.items()), 4):
        decided = compare(rule, rule)
        for part in decided.parts:
            if part.common is None:
                assert part.part.steps is None
                continue
            check_steps(rule, part.part)
            common = part.common
            rows = list(zip(common.starts.tolist(), common.ends.tolist(), common.outcomes[0].tolist(), strict=True))
            # f16 has a threshold for each of its numbers.
            for start, end, code in sample(rows[:: len(rows) // 3000 + 1], 100):
                for bits in (start, end):
                    (x,) = struct.unpack(letters[1], struct.pack(letters[0], bits | part.part.sign))
                    # Python makes a signalling f32 quiet.
                    if x == x or size == 8:
                        assert cast(profile, source, target, x).code == code, (profile, hex(bits))


def test_saturation_is_a_difference_beyond_the_largest_value() -> None:
    saturating, not_saturating = (
        quantized("onnx_reference", "f32", "f8E4M3FN", saturate=each) for each in (True, False)
    )
    decided = compare(saturating, not_saturating)
    # Beyond 464, a tie that goes down; with infinities and both signs.
    beyond = struct.unpack("<I", struct.pack("<f", 464.0))[0] + 1
    assert decided.differing == 2 * ((255 << 23) - beyond + 1)
    assert [decided.sample[0].text, decided.sample[0].first, decided.sample[0].second] == [
        "464.0000305175781",
        0x7E,
        0x7F,
    ]


@pytest.mark.exhaustive
def test_a_hole_in_a_staircase_is_found_by_computing_every_input() -> None:
    slipping, right = (quantized(each, "f32", "f8E4M3FN", saturate=False) for each in ("onnx", "onnx_reference"))
    decided = compare(slipping, right)
    assert Method.SWEEP in {each.method for each in decided.parts}
    # onnxruntime gives 448 for 480 up to 496, where all around it is NaN.
    # Of the 2^23 f32 from 256 up to 512, a sixteenth, with either sign.
    assert decided.differing == 2 << 19
    assert [decided.sample[0].text, decided.sample[0].first] == ["480.0", 0x7E]


def test_rules_that_are_no_functions_of_a_number_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="depends on the place of an element"):
        quantization(parse_type("f32"), parse_type("!quant.uniform<i8:f32, 0.5>"), rounding=Rounding.STOCHASTIC)


def test_every_rounding_has_its_staircase() -> None:
    target = parse_type("!quant.uniform<i8:bf16, 0.3:2>")
    rules = [
        quantization(parse_type("bf16"), target, rounding=each)
        for each in Rounding
        if each not in (Rounding.STOCHASTIC, Rounding.SINGLE, Rounding.DOUBLE, Rounding.DOUBLE_UP, Rounding.ODD)
    ]
    for first, second in combinations(rules, 2):
        assert check_by_sweep(first, second).is_certifiable
