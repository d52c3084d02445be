"""Quantized types drawn at random, and numbers for them that find mistakes: of every storage, width and granularity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Plan
from requant.profiles import OperationRule
from tests.support.cases import EXHAUSTIVE, sample
from tests.support.float_samples import SPECIAL, neighbours, patterns

EXPRESSED = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i2", "u2", "i4", "u4", "i8", "u8", "i12", "i16", "u16", "i32", "u32")
FLOATS = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f4E2M1FN", "f6E2M3FN", "f6E3M2FN")
SCALES = ("0.5", "0.1", "0.0237", "3.0", "1.0", "1.0000009", "1.0e-40", "1.5e-38", "1.0e-5", "2.0e38", "6.0e-8")
_FEW, _MANY = 50, 300
GRANULARITIES = ("per_tensor", "per_axis", "sub_channel", "sub_channel_outer")


def bounds(storage: str) -> tuple[int, int]:
    """What a storage holds; nothing, of small floats."""
    if storage.startswith("f"):
        return 0, 0
    width = int(storage[1:])
    return (-(1 << width - 1), (1 << width - 1) - 1) if storage[0] == "i" else (0, (1 << width) - 1)


def tensor(text: str) -> TensorType:
    parsed = parse_type(text)
    assert isinstance(parsed, TensorType)
    return parsed


@dataclass(frozen=True)
class Drawn:
    """A quantized type, as text, for a tensor of `shape`, with the scales and zero points in it."""

    shape: str
    text: str
    scales: list[float]
    zero_points: list[int]

    @property
    def quantized(self) -> TensorType:
        return tensor(f"tensor<{self.shape}x{self.text}>")


def draw_type(rng: np.random.Generator, storage: str, expressed: str, granularity: str, *, zero: bool = False) -> Drawn:
    """Draw scales, zero points and bounds, for 18 or 24 elements. Blocks lie along the last axis, or along the first.

    `zero`: all zero points are 0, as those of small floats.
    """
    lowest, highest = bounds(storage)
    count = {"per_tensor": 1, "per_axis": 3, "sub_channel": 6, "sub_channel_outer": 12}[granularity]
    scales = [str(rng.choice(SCALES)) for _ in range(count)]
    some = (0, lowest, highest, min(3, highest), max(-3, lowest), int(rng.integers(lowest, highest, endpoint=True)))
    zeros = [0 if zero or storage[0] == "f" else int(rng.choice(some)) for _ in range(count)]
    inner = [f"{scale}:{point}" if point else scale for scale, point in zip(scales, zeros, strict=True)]
    narrowed = f"<{lowest + 1}:{highest - 1}>" if highest > 8 and rng.random() < 0.2 else ""
    head = f"!quant.uniform<{storage}{narrowed}:{expressed}"
    if granularity == "per_tensor":
        text = f"{head}, {inner[0]}>"
    elif granularity == "per_axis":
        text = f"{head}:0, {{{', '.join(inner)}}}>"
    elif granularity == "sub_channel":
        text = f"{head}:{{0:1, 1:3}}, {{{_rows(inner, 2)}}}>"
    else:
        text = f"{head}:{{0:2, 1:1}}, {{{_rows(inner, 6)}}}>"
    shape = "4x6" if granularity == "sub_channel_outer" else "3x6"
    return Drawn(shape, text, [float(each) for each in scales], zeros)


def _rows(texts: list[str], length: int) -> str:
    return ", ".join(f"{{{', '.join(texts[begin : begin + length])}}}" for begin in range(0, len(texts), length))


def drawable(rule: OperationRule) -> list[tuple[str, str, str]]:
    """All kinds of type that a rule takes, or a sample of them, again and again until they are 50 or more, or many."""
    kinds = [*sample([*_kinds(rule.storages, rule.expressed, rule.granularities)], _FEW)]
    return kinds * ((_MANY if EXHAUSTIVE else _FEW) // len(kinds) + 1)


def _kinds(
    storages: Iterable[str], expressed: Iterable[str], granularities: Iterable[str]
) -> Iterator[tuple[str, str, str]]:
    for storage in (each for each in (*INTEGERS, *FLOATS) if each in storages):
        for each in expressed:
            for granularity in GRANULARITIES:
                if granularity.removesuffix("_outer") in granularities:
                    yield storage, each, granularity


def as_expressed(values: NDArray[Any], expressed: str) -> NDArray[Any]:
    """Return floats as tensors of a type keep them."""
    with np.errstate(all="ignore"):
        if expressed == "bf16":
            return values.astype(ml_dtypes.bfloat16).view(np.uint16)
        return values.astype({"f16": "<f2", "f32": "<f4", "f64": "<f8"}[expressed])


def hard_values(rng: np.random.Generator, drawn: Drawn, count: int, expressed: str) -> NDArray[Any]:
    """Ties and their neighbours, specials, huge numbers and random patterns; or one of them among numbers near 0, since
    kernels that meet one of a kind look at all elements around it.
    """
    scale, zero_point = float(rng.choice(drawn.scales)), int(rng.choice(drawn.zero_points))
    with np.errstate(all="ignore"):
        near = ((rng.integers(-300, 300, 40) / 2 - zero_point % 256) * scale).astype(np.float32)
        huge = np.array([2.0**31, -(2.0**31), 2.0**31 - 128, 3e9, -3e9, 1e20, -1e20]) * scale
        values = np.concatenate([neighbours(near), SPECIAL, huge.astype(np.float32), patterns(20, rng)])
        if rng.random() < 0.5:
            lone = rng.choice(huge if rng.random() < 0.5 else values)
            values = np.concatenate([[lone], rng.integers(0, 3, count - 1) * scale])
    return as_expressed(rng.permutation(values)[:count], expressed)


def stored_numbers(rng: np.random.Generator, plan: Plan, storage: str) -> NDArray[Any]:
    """Bounds, small and random numbers, all of the storage."""
    dtype, count = plan.input_dtype, plan.elements
    low, high = bounds(storage)
    if storage.startswith("f"):
        high = (1 << int(storage[1])) - 1
    kinds = [np.array([low, high, max(low, 0), min(high, 1)]), rng.integers(max(low, -99), min(high, 99), 8)]
    kinds.append(rng.integers(low, high, 8, endpoint=True))
    return rng.choice(np.concatenate(kinds), count).astype(dtype)
