"""Every known answer from the exact oracle, and that a wrong one is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core import self_test
from core.errors import SelfTestError
from core.profiles import PROFILES, Operation
from core.self_test import ELEMENTS, KNOWN_ANSWERS, KnownAnswer, digest, inputs
from tests import oracle, profile_oracle

I8 = profile_oracle.target("i8")


def parameters(element: str) -> tuple[float, int]:
    """The scale and zero point of a type text."""
    scale, _, zero_point = element.removesuffix(">").partition(", ")[2].partition(":")
    return float(scale), int(zero_point or 0)


def rescaled(profile: str, q: int, source: float, target: float, zero_point: int) -> int:
    """The requantization of one accumulator with zero point 0."""
    if profile.startswith("tosa"):
        m, shift = oracle.tosa_multiplier(source / target)
        scaled = oracle.tosa_rescale(q, m, shift, double=profile == "tosa_double_round")
    else:
        ratio = oracle.from_bits(oracle.to_bits(source)) / oracle.from_bits(oracle.to_bits(target))
        single = profile == "litert_single_rounding"
        m, shift = oracle.litert_multiplier(ratio, single=single)
        scaled = oracle.multiply_single(q, m, shift) if single else oracle.multiply_double(q, m, shift)
    assert scaled is not None
    return oracle.rescaled(scaled, zero_point, -128, 127).value


@pytest.mark.parametrize("known", KNOWN_ANSWERS, ids=lambda k: f"{k.operation}-{k.profile}-{k.output_element}")
def test_the_oracle_gives_each_known_answer(known: KnownAnswer) -> None:
    given = inputs(known.plan()).tolist()
    if known.operation is Operation.QUANTIZE:
        scale, zero_point = parameters(known.output_element)
        stored = [profile_oracle.QUANTIZE[known.profile](x, scale, zero_point, I8) for x in given]
        expected = np.array([each.value for each in stored if each is not None], np.int8)
    elif known.operation is Operation.DEQUANTIZE:
        scale, zero_point = parameters(known.input_element)
        expected = np.array(
            [profile_oracle.dequantize(known.profile, q, scale, zero_point, I8) for q in given], np.float32
        )
    else:
        (source, _), (target, zero_point) = parameters(known.input_element), parameters(known.output_element)
        expected = np.array([rescaled(known.profile, q, source, target, zero_point) for q in given], np.int8)
    assert expected.size == ELEMENTS
    assert digest(expected) == known.digest


def test_every_profile_that_converts_has_a_known_answer() -> None:
    # LiteRT with single rounding differs in requantize only, and there it has its own.
    converting = {name for name, profile in PROFILES.items() if profile.operations}
    assert {known.profile for known in KNOWN_ANSWERS} == converting


def test_it_passes_here() -> None:
    self_test.run_self_test()


def test_a_wrong_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(KNOWN_ANSWERS[3], digest="0" * 16)
    monkeypatch.setattr(self_test, "KNOWN_ANSWERS", (*KNOWN_ANSWERS[:3], wrong, *KNOWN_ANSWERS[4:]))
    with pytest.raises(
        SelfTestError, match=rf"quantize of f32 .* under {wrong.profile} gives {KNOWN_ANSWERS[3].digest}"
    ):
        self_test.run_self_test()
