"""Every known answer from the exact oracle, and that a wrong one is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from core import self_test
from core.errors import SelfTestError
from core.parameters.schemes import SCHEMES as SCHEME_NAMES
from core.profiles import PROFILES, Operation
from core.self_test import ELEMENTS, KNOWN_ANSWERS, KNOWN_SUMS, KnownAnswer, KnownSums, digest, inputs
from tests import profile_oracle, quantile_oracle, scheme_oracle

I8 = profile_oracle.target("i8")


def parameters(element: str) -> tuple[float, int]:
    """The scale and zero point of a type text."""
    scale, _, zero_point = element.removesuffix(">").partition(", ")[2].partition(":")
    return float(scale), int(zero_point or 0)


SCHEMES = {"litert_xnnpack": "xnnpack_fp32", "onnx": "onnxruntime", "torch": "fbgemm", "torch_2_14": "fbgemm"}


def rescaled(known: KnownAnswer, q: int) -> int:
    """The requantization of one stored number."""
    (source, z_in), (target, z_out) = parameters(known.input_element), parameters(known.output_element)
    storage = known.input_element.partition("<")[2].partition(":")[0]
    if known.profile in ("onednn", "torch_decomposed"):
        real = profile_oracle.dequantize(known.profile, q, source, z_in, profile_oracle.target(storage))
        stored = profile_oracle.QUANTIZE[known.profile](real, target, z_out, I8)
        assert stored is not None
        return stored.value
    converts = known.profile == "litert_xnnpack" and storage == "i8"
    scheme = known.scheme or ("xnnpack_cvt8" if converts else SCHEMES.get(known.profile, known.profile))
    factor = scheme_oracle.factor(scheme, source, None, target)
    derived = scheme_oracle.derive(scheme, factor)
    assert derived is not None
    m, shift, _ = derived
    found = scheme_oracle.requantized(scheme, q, z_in, m, shift, z_out, (-128, 127), factor)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "known", KNOWN_ANSWERS, ids=lambda k: f"{k.operation}-{k.profile}-{k.scheme}-{k.input_element}"
)
def test_the_oracle_gives_each_known_answer(known: KnownAnswer) -> None:
    given = inputs(known.plan()).tolist()
    if known.profile == "quantile":
        table = quantile_oracle.Table((-1.0, -0.25, 0.25, 1.5))
        nearest = quantile_oracle.quantizer(table, "f32", 16.0, 0)
        expected: NDArray[Any] = np.array([nearest(x).value for x in given], np.uint8)
    elif known.operation is Operation.QUANTIZE:
        scale, zero_point = parameters(known.output_element)
        stored = [profile_oracle.QUANTIZE[known.profile](x, scale, zero_point, I8) for x in given]
        expected = np.array([each.value for each in stored if each is not None], np.int8)
    elif known.operation is Operation.DEQUANTIZE:
        scale, zero_point = parameters(known.input_element)
        expected = np.array(
            [profile_oracle.dequantize(known.profile, q, scale, zero_point, I8) for q in given], np.float32
        )
    else:
        expected = np.array([rescaled(known, q) for q in given], np.int8)
    assert expected.size == ELEMENTS
    assert digest(expected) == known.digest


def test_every_profile_that_converts_has_a_known_answer() -> None:
    # LiteRT with single rounding differs in requantize only, and there it has its own.
    converting = {name for name, profile in PROFILES.items() if profile.operations}
    assert {known.profile for known in KNOWN_ANSWERS} == converting


def test_every_scheme_has_a_known_answer() -> None:
    answered = {known.scheme or known.profile for known in KNOWN_ANSWERS if known.operation is Operation.REQUANTIZE}
    assert {scheme for scheme in SCHEME_NAMES if scheme not in answered} == {"xnnpack_cvt8"}


@pytest.mark.parametrize("known", KNOWN_SUMS, ids=lambda k: f"{k.lhs}-{k.rhs}-{k.accumulator}-{k.convolves}")
def test_numpy_gives_the_known_sums(known: KnownSums) -> None:
    """In int64, which holds them all; int32 is that modulo 2^32."""
    lhs, rhs = (each.astype(np.int64) for each in known.factors())
    a, b = lhs - 3, rhs + 5
    if known.convolves:
        padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)))
        expected = np.zeros(lhs.shape, np.int64)
        for i in range(3):
            for j in range(3):
                expected += padded[:, i : i + 9, j : j + 11] * b[:, i, j, 0]
    else:
        expected = a @ b
    assert digest(expected.astype("<i4" if known.accumulator == "i32" else "<i8")) == known.digest


def test_wrong_sums_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "KNOWN_SUMS", (replace(KNOWN_SUMS[0], digest="0" * 16),))
    with pytest.raises(SelfTestError, match="sums of int8 by int8 in i32"):
        self_test.run_self_test()


def test_it_passes_here() -> None:
    self_test.run_self_test()


def test_a_wrong_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(KNOWN_ANSWERS[3], digest="0" * 16)
    monkeypatch.setattr(self_test, "KNOWN_ANSWERS", (*KNOWN_ANSWERS[:3], wrong, *KNOWN_ANSWERS[4:]))
    with pytest.raises(
        SelfTestError, match=rf"quantize of f32 .* under {wrong.profile} gives {KNOWN_ANSWERS[3].digest}"
    ):
        self_test.run_self_test()
