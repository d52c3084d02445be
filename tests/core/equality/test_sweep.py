"""The computation of every input: progress, cancellation, threads, and full ranges of 32 bits against thresholds."""

from __future__ import annotations

import random
import time

import pytest

from requant.equality.decision import Method, compare
from requant.equality.rules import Rule, requantization
from requant.equality.sweep import SAMPLES, Tally, thinned
from requant.errors.cancellation import cancellation_check
from requant.mlir import parse_type
from requant.schemes import Multiplier
from tests.core.equality.pairs import quantized, requantized

M = Multiplier(1234567891, -7)


def test_progress_is_told_up_to_the_end() -> None:
    rules = [requantized(each, M, "i16") for each in ("litert", "litert_single_rounding")]
    told: list[tuple[int, int]] = []
    compare(*rules, thresholds=False, progress=lambda *each: told.append(each))
    assert told == [(1 << 16, 1 << 16)]
    told.clear()
    rules = [quantized(each, "bf16", "f8E5M2") for each in ("onnx", "ml_dtypes")]
    for thresholds in (True, False):
        compare(*rules, thresholds=thresholds, progress=lambda *each: told.append(each))
        assert [total for _, total in told] == [1 << 16] * 4
        assert [done for done, _ in told] == sorted({done for done, _ in told})
        assert told[-1][0] == 1 << 16
        told.clear()


def test_cancellation_ends_it_soon() -> None:
    class CancelledError(Exception):
        pass

    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 0.2:
            raise CancelledError

    rules = [requantized(each, M) for each in ("litert", "litert_single_rounding")]
    token = cancellation_check.set(check)
    try:
        with pytest.raises(CancelledError):
            compare(*rules, thresholds=False, workers=1)
    finally:
        cancellation_check.reset(token)
    assert time.monotonic() - began < 2


def test_every_number_of_threads_finds_the_same() -> None:
    rules = [requantized(each, Multiplier(1 << 30, 3), "i24") for each in ("litert", "arm_vector")]
    found = [compare(*rules, thresholds=False, workers=workers) for workers in (1, 2, 5)]
    assert found[0].inputs == 1 << 24
    assert len({(each.differing, each.sample) for each in found}) == 1


def test_undefined_inputs_are_found_one_by_one_where_no_steps_say_them() -> None:
    rules = [quantized("mlir", "bf16", f"!quant.uniform<i8:bf16, {scale}:3>") for scale in ("0.1", "0.2")]
    decided, swept = compare(*rules), compare(*rules, thresholds=False)
    assert 0 < decided.only_second == swept.only_second
    assert decided.only_first == swept.only_first == 0 < decided.neither == swept.neither
    assert decided.differing == swept.differing


def test_samples_keep_the_first_and_the_last() -> None:
    assert thinned(tuple(range(5))) == tuple(range(5))
    assert thinned(tuple(range(1000)))[:: SAMPLES - 1] == (0, 999)
    total = sum((Tally(1, found=(n,)) for n in range(1000)), Tally())
    assert total.differing == 1000
    assert [total.found[0], total.found[-1]] == [0, 999]
    assert len(total.found) <= 2 * SAMPLES


def pairs_of_32_bits() -> list[tuple[Rule, Rule]]:
    accumulator = parse_type("!quant.uniform<i32:f32, 0.001>")
    activation = parse_type("!quant.uniform<i8:f32, 0.25:-1>")
    profiles = ["litert_single_rounding", "litert_xnnpack", "onnx", "onnx_reference", "stablehlo", "torch", "tosa"]
    first = requantization(accumulator, activation, "litert")
    pairs = [(first, requantization(accumulator, activation, each)) for each in profiles]
    drawn = random.Random(3)
    for one, other in [
        ("litert", "litert_single_rounding"), ("litert", "arm_vector"), ("litert", "cmsis_nn"),
        ("arm_vector", "gemmlowp"),
        ("tosa", "tosa_double_round"), ("xnnpack_rndnu", "xnnpack_rndna"), ("xnnpack_fp32", "xnnpack_rndnu"),
        ("litert_float", "onnxruntime"), ("ethos_u", "fbgemm_fixed_point"), ("cmsis_nn_single_rounding", "litert"),
        ("fbgemm", "onnx_reference"),
    ]:  # fmt: skip
        m = drawn.randrange(1 << 23, 1 << 24)
        shift = drawn.randrange(25, 38)
        rules = []
        for scheme in (one, other):
            wide = scheme.startswith(("litert", "arm", "cmsis", "gemm")) and scheme != "litert_float"
            rules.append(requantized(scheme, Multiplier(m << 7, 24 - shift) if wide else Multiplier(m, shift)))
        pairs.append((rules[0], rules[1]))
    for one, other in [("litert", "onnx"), ("torch", "stablehlo"), ("onednn", "torch_decomposed")]:
        target = "!quant.uniform<i8:f32, 0.0371:-5>"
        pairs.append((quantized(one, "f32", target), quantized(other, "f32", target)))
    return pairs


@pytest.mark.exhaustive
def test_all_inputs_of_32_bits_agree_with_thresholds() -> None:
    pairs = pairs_of_32_bits()
    assert len(pairs) >= 20
    differing = 0
    for first, second in pairs:
        decided = compare(first, second)
        assert {each.method for each in decided.parts} == {Method.THRESHOLDS}
        began = time.monotonic()
        swept = compare(first, second, thresholds=False)
        assert time.monotonic() - began < 60
        for name in ("inputs", "differing", "only_first", "only_second", "neither"):
            assert getattr(decided, name) == getattr(swept, name), (first.text, second.text)
        assert [each.code for each in decided.sample[:1]] == [each.code for each in swept.sample[:1]]
        assert [each.code for each in decided.sample[-1:]] == [each.code for each in swept.sample[-1:]]
        differing += not decided.equal
    assert 0 < differing < len(pairs)


def test_a_pair_is_decided_in_a_few_milliseconds() -> None:
    accumulator, activation = (
        parse_type("!quant.uniform<i32:f32, 0.001>"),
        parse_type("!quant.uniform<i8:f32, 0.25:-1>"),
    )

    def once() -> float:
        began = time.perf_counter()
        compare(*(requantization(accumulator, activation, each) for each in ("litert", "litert_xnnpack")))
        return time.perf_counter() - began

    assert min(once() for _ in range(5)) < 0.05
