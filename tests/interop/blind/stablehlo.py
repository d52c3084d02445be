"""Dumps of StableHLO: by its interpreter, and compiled by XLA.

Both run what StableHLO's own passes have made of a quantized operation. XLA is left out where it has no rule of ours:
it multiplies by the reciprocal of a scale that is a constant, keeps f16 and bf16 in f32 between operations, fuses a
product and a sum, takes subnormal numbers for zeros, and casts f64 to 16 bits by way of f32. So it is given the scale
of a quantize as an operand, in f32 or f64, nothing to add, and no f64 to cast.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.interop.blind import draws
from tests.interop.blind.dump import Array, Dump
from tests.interop.blind.products import Operand, add_dump
from tests.interop.casts.cast_data import RESULTS, WIDE
from tests.interop.casts.stablehlo_convert import convert
from tests.interop.integer.quantized_tensors import per_tensor
from tests.interop.quantized_case import Case
from tests.interop.stablehlo_quantized import (
    Runner,
    added,
    dequantized_by_formula,
    dequantized_by_pass,
    quantized_by_formula,
    quantized_by_pass,
    requantized,
)
from tests.interop.stablehlo_upstream import interpreted
from tests.interop.xla import compiled_and_run

LABEL = {"profile": "stablehlo"}
STORAGES = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "i32", "u32")
PAIRS = (("i8", "i8"), ("i8", "i16"), ("i16", "i8"), ("i16", "i16"), ("i32", "i8"))
FORMATS = ("f16", "bf16", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ")
MOST = 1000
"""Elements of a tensor: the interpreter takes microseconds for each."""


def _case(rng: np.random.Generator, *expressed: str, per_axis: bool) -> Case:
    """Parameters lie along the last axis, and other expressed types than f32 have one scale."""
    of = str(rng.choice(expressed))
    per_axis = per_axis and of == "f32" and rng.random() < 0.3
    sizes = draws.shape(rng, rank=2 if per_axis else 0, most=MOST)
    return draws.case(rng, str(rng.choice(STORAGES)), of, per_axis=per_axis, last_axis=True, sizes=sizes)


def quantize(rng: np.random.Generator) -> Dump:
    of = _case(rng, "f32", "f32", "f32", "f16", "bf16", "f64", per_axis=True)
    source = draws.reals(rng, of)
    by = quantized_by_pass if of.expressed == "f32" else quantized_by_formula
    return draws.quantize_dump(of, source, lambda x: by(of, x), label=LABEL)


def quantize_by_xla(rng: np.random.Generator) -> Dump:
    of = _case(rng, "f32", "f32", "f64", per_axis=False)
    source = draws.reals(rng, of, odd=False)
    return draws.quantize_dump(of, source, lambda x: quantized_by_formula(of, x, compiled_and_run), label=LABEL)


def dequantize(rng: np.random.Generator) -> Dump:
    of = _case(rng, "f32", "f32", "f32", "f16", "bf16", "f64", per_axis=True)
    source = draws.stored(rng, of)
    by = dequantized_by_pass if of.expressed == "f32" else dequantized_by_formula
    return draws.dequantize_dump(of, source, lambda q: by(of, q), label=LABEL)


def dequantize_by_xla(rng: np.random.Generator) -> Dump:
    of = _case(rng, "f32", "f32", "f64", per_axis=True)
    source = draws.stored(rng, of)
    by = dequantized_by_pass if of.expressed == "f32" else dequantized_by_formula
    return draws.dequantize_dump(of, source, lambda q: by(of, q, compiled_and_run), label=LABEL)


def requantize(run: Runner, rng: np.random.Generator) -> Dump:
    source, target = PAIRS[rng.integers(len(PAIRS))]
    (size,), of = draws.shape(rng, rank=1, most=MOST), draws.scale(rng)
    ratio = draws.scale(rng, -20 if source == "i32" else -7, 3)
    points = 0 if source == "i32" else draws.zero_point(rng, source), draws.zero_point(rng, target)
    if run is compiled_and_run:
        # The sum of a product and the merged zero point is rounded once: fma(q, f, z), where the interpreter has
        # f32(f32(q * f) + z).
        points = 0, 0
    given = Case((size,), source, "f32", np.array(np.float32(of * ratio), np.float64), np.array(points[0]))
    stored = draws.stored(rng, given)
    sides = [per_tensor(source, float(given.scales), points[0]), per_tensor(target, of, points[1])]
    return draws.requantize_dump(given, sides[1].text, stored, lambda q: requantized(sides, q, run), label=LABEL)


def add(rng: np.random.Generator) -> Dump:
    storage, (size,) = str(rng.choice(["i8", "i16"])), draws.shape(rng, rank=1, most=MOST)
    sides = [per_tensor(storage, draws.scale(rng), draws.zero_point(rng, storage)) for _ in range(3)]
    a, b = draws.numbers(rng, sides[0], size), draws.numbers(rng, sides[1], size)

    def total(lhs: Operand, rhs: Operand, _: Array | None) -> Array:
        return added([lhs[0], rhs[0], sides[2]], lhs[1], rhs[1])

    return add_dump((sides[0], a), (sides[1], b), sides[2], total, label=LABEL)


def cast(run: Runner, rng: np.random.Generator) -> Dump:
    if rng.random() < 0.7:
        target = str(rng.choice(FORMATS))
        sources = WIDE if run is interpreted else ("f32", "f16", "bf16")
        source = str(rng.choice([each for each in sources if each != target]))
        data = draws.reals_to_cast(rng, source, target)
        if run is compiled_and_run:
            data[_below(data, 2.0**-14)] = 0
        return draws.cast_dump(data, source, target, lambda x: convert(x, source, target, run=run), label=LABEL)
    source, target = str(rng.choice(FORMATS)), str(rng.choice(["f32", "f64"]))
    codes = draws.codes_to_cast(rng, source)
    if run is compiled_and_run and source == "bf16":
        codes[_below(codes.view(RESULTS[source]), 2.0**-126)] = 0
    kind = RESULTS[target]
    return draws.cast_dump(codes, source, target, lambda q: convert(q, source, target, run=run).view(kind), label=LABEL)


def _below(numbers: Array, normal: float) -> Array:
    """Where numbers are subnormal."""
    with np.errstate(invalid="ignore"):
        found: Array = np.abs(numbers.astype(np.float64)) < normal
    return found


def dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps of the interpreter."""
    kinds = (quantize, partial(requantize, interpreted), add, dequantize, partial(cast, interpreted))
    return draws.some(rng, count, kinds)


def dumps_of_xla(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps of XLA."""
    by_xla = [partial(kind, compiled_and_run) for kind in (requantize, cast)]
    return draws.some(rng, count, (quantize_by_xla, dequantize_by_xla, *by_xla))
