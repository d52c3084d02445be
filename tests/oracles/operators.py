"""Operators from their texts, element by element, in exact numbers: numpy's own types, nothing of core."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracles import profiles as profile_oracle
from tests.oracles.profiles import F32, FORMATS

Array = NDArray[Any]


def parameter_index(index: tuple[int, ...], scales: tuple[int, ...], axis: int, block: int) -> tuple[int, ...]:
    """Which scale belongs to an element of x (ONNX: per tensor, per axis, blocked)."""
    if scales in ((), (1,)):
        return (0,) * len(scales)
    if not block:
        return (index[axis],)
    return tuple(each // block if place == axis % len(index) else each for place, each in enumerate(index))


def onnx_quantize(
    x: Array, scale: Array, zero_point: Array | None, storage: str, axis: int, block: int, *, profile: str
) -> list[int]:
    """ONNX QuantizeLinear: f32 x and scale, integers."""
    quantize = profile_oracle.QUANTIZE[profile]
    outer = block and scale.shape not in ((), (1,)) and math.prod(x.shape[axis % x.ndim + 1 :]) > 1
    granularity = "sub_channel_outer" if outer else "per_tensor"
    places = [parameter_index(index, scale.shape, axis, block) for index in np.ndindex(x.shape)]
    stored = []
    for number, (index, place) in enumerate(zip(np.ndindex(x.shape), places, strict=True)):
        alone = number ^ 1 >= len(places) or places[number ^ 1] != place
        target = profile_oracle.target(storage, "f32", granularity, alone=alone)
        z = 0 if zero_point is None else int(zero_point[place])
        found = quantize(float(x[index]), float(scale[place]), z, target)
        assert found is not None
        stored.append(found.value)
    return stored


def onnx_dequantize(x: Array, scale: Array, zero_point: Array | None, to: str, axis: int, block: int) -> list[float]:
    """ONNX DequantizeLinear: f32((q - z) * s), rounded once more to a narrower type."""
    reals = []
    for index in np.ndindex(x.shape):
        place = parameter_index(index, scale.shape, axis, block)
        z = 0 if zero_point is None else int(zero_point[place])
        difference = F32.round(Fraction(int(x[index]) - z))
        product = F32.round(Fraction(difference) * Fraction(float(scale[place])))
        reals.append(product if to == "f32" or math.isinf(product) else FORMATS[to].round(Fraction(product)))
    return reals
