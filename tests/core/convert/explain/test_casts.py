"""Casts between floats, explained: under every authority the steps end in what the kernels compute."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.explain.dequantize import dequantize_explainer
from requant.convert.explain.quantize import quantize_explainer
from requant.errors import RequantError
from requant.mlir import parse_type
from requant.profiles import PROFILES
from tests.support.cases import EXHAUSTIVE
from tests.support.drawn_types import EXPRESSED, as_expressed, tensor
from tests.support.float_samples import SPECIAL, neighbours, patterns

ROUNDS = 20 if EXHAUSTIVE else 1
CASTING = [name for name, profile in PROFILES.items() if profile.casts is not None]
# Where formats end, and where some authorities slip; and the smallest scales, and the ties between them.
ENDS = np.array([448, 464, 480, 495.9, 496, 57344, 61440, 65535.9, 65536, 240, 248], np.float32)
SMALLEST = np.array([4, 5, 6, 7, 8, 12], np.float32) * np.float32(2.0**-129)


def hard_values(rng: np.random.Generator) -> NDArray[np.float64]:
    """46 numbers: the ends of formats, specials, ties of few bits at all exponents, and patterns."""
    ties = np.exp2(rng.integers(-140, 140, 24)) * rng.choice([1, 1.5, 1.25, -1, -1.75, 1.125], 24)
    few = rng.integers(-40, 40, 19) * np.exp2(rng.integers(-20, 8, 19).astype(float))
    with np.errstate(all="ignore"):
        values = np.concatenate([neighbours(ENDS), SPECIAL, patterns(20, rng), ties, few]).astype(np.float64)
    return np.concatenate([rng.permutation(values)[:40], SMALLEST])


@pytest.mark.parametrize("name", CASTING)
def test_to_narrower_floats(name: str) -> None:
    rng, rule, done = np.random.default_rng(zlib.crc32(name.encode())), PROFILES[name].cast_rule(), 0
    choices = [(None, None), (False, None), *((None, each) for each in rule.scale_roundings)]
    few = 12 // (len(rule.formats) * len(rule.sources)) + 1
    for target in [*rule.formats] * (few * ROUNDS):
        for source in rule.sources:
            for saturate, rounding in choices:
                values = as_expressed(hard_values(rng), source)
                try:
                    given = tensor(f"tensor<{values.size}x{source}>")
                    explainer = quantize_explainer(
                        given, parse_type(target), name, saturate=saturate, rounding=rounding
                    )
                except RequantError:
                    continue
                done += len(explainer.run(values).elements)
    assert done > 200


@pytest.mark.parametrize("name", CASTING)
def test_to_wider_floats(name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for source in PROFILES[name].cast_rule().formats:
        wide = source in EXPRESSED
        codes = rng.permutation(1 << (16 if wide else int(source[1])))[:64]
        for target in EXPRESSED:
            try:
                explainer = dequantize_explainer(tensor(f"tensor<{codes.size}x{source}>"), parse_type(target), name)
            except RequantError:
                continue
            explainer.run(codes.astype("<u2" if wide else "u1").view(explainer.plan.input_dtype))
