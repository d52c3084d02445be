"""Dumps of oneDNN, limited to AVX2, whose kernels the profile has.

There sums of two products saturate, and i8 beside i8 are halved: weights have 7 bits, and those beside i8 are even.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from requant.integer.conv2d import WeightsLayout, Window, conv2d_integers
from tests.interop.blind import draws
from tests.interop.blind.dump import Array, Dump
from tests.interop.blind.products import Operand, add_dump, conv2d_dump, matmul_dump
from tests.interop.integer.quantized_tensors import Quantized, per_axis, per_tensor
from tests.interop.onednn.cases import NAMES, around, left_out
from tests.interop.onednn.graphs import added, by_onednn
from tests.interop.onednn.library import Onednn, Operator
from tests.interop.quantized_case import Case, bounds

SETTING = "AVX2"
LABEL = {"profile": "onednn"}
STORAGES = ("i8", "u8", "f8E4M3FN", "f8E5M2")


def kind_of(storage: str) -> str:
    return NAMES[storage.replace("u", "ui")]


def attributes_of(of: Case) -> dict[str, Any]:
    scales = of.scales.ravel().tolist()
    if of.axis is not None:
        return {"qtype": "per_channel", "axis": of.axis, "scales": scales}
    points = {} if of.storage.startswith("f") else {"zps": [int(of.zero_points)]}
    return {"qtype": "per_tensor", "scales": scales, **points}


def scale(rng: np.random.Generator) -> float:
    """One near 1, which the library may leave out, or another."""
    return float(rng.choice(around(1.0, 12))) if rng.random() < 0.15 else draws.scale(rng)


def _quantized(library: Onednn, of: Case, reals: Array) -> Array:
    return library.run("Quantize", [("f32", reals)], kind_of(of.storage), **attributes_of(of))


def _dequantized(library: Onednn, of: Case, stored: Array) -> Array:
    return library.run("Dequantize", [(kind_of(of.storage), stored)], "f32", **attributes_of(of))


def quantize(library: Onednn, rng: np.random.Generator) -> Dump:
    """Along an axis it takes no zero points. What NaN gives without any scale depends on the shape."""
    of = draws.case(rng, str(rng.choice(STORAGES)))
    if of.axis is not None:
        of = Case(of.shape, of.storage, "f32", of.scales, np.zeros_like(of.zero_points), of.axis)
    source = draws.reals(rng, of)
    if left_out(of.scales) and of.axis is not None:
        source[np.isnan(source)] = 0
    return draws.quantize_dump(of, source, lambda x: _quantized(library, of, x), label=LABEL)


def dequantize(library: Onednn, rng: np.random.Generator) -> Dump:
    of = draws.case(rng, str(rng.choice(STORAGES)))
    if of.axis is not None:
        of = Case(of.shape, of.storage, "f32", of.scales, np.zeros_like(of.zero_points), of.axis)
    source = draws.stored(rng, of)
    return draws.dequantize_dump(of, source, lambda q: _dequantized(library, of, q), label=LABEL)


def requantize(library: Onednn, rng: np.random.Generator) -> Dump:
    """Dequantize, and Quantize."""
    sizes = draws.shape(rng)
    given, wanted = (draws.case(rng, str(rng.choice(["i8", "u8"])), per_axis=False, sizes=sizes) for _ in range(2))
    source = draws.stored(rng, given)

    def run(stored: Array) -> Array:
        return _quantized(library, wanted, _dequantized(library, given, stored))

    return draws.requantize_dump(given, wanted.element, source, run, label=LABEL)


def side(rng: np.random.Generator, storage: str) -> Quantized:
    return per_tensor(storage, scale(rng), draws.zero_point(rng, storage))


def weights_side(rng: np.random.Generator, count: int, axis: int, *, symmetric: bool = False) -> Quantized:
    """Along an axis the library takes no zero points, and convolutions take none at all."""
    if count == 1:
        return per_tensor("i8", scale(rng), 0 if symmetric else int(rng.choice([0, 3, -7, 19])))
    return per_axis("i8", draws.scales(rng, count), axis)


def output_side(rng: np.random.Generator, storage: str, sums: Array, sides: tuple[Quantized, Quantized]) -> Quantized:
    per_sum = float(sides[0].scales[0]) * float(sides[1].scales.max())
    low, high = bounds(storage)
    of = draws.output_scale(rng, sums, per_sum, (high - low) / 2)
    return per_tensor(storage, of, draws.zero_point(rng, storage))


def limits(source: str) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Of the operands; weights beside i8 are even, so that also of a matmul no half is lost."""
    return bounds(source), (-64, 63), 2 if source == "i8" else 1


def matmul(library: Onednn, rng: np.random.Generator) -> Dump:
    source, target = (str(each) for each in rng.choice(["i8", "u8"], 2))
    rows, depth, columns = (1 + int(each) for each in np.exp2(rng.uniform(0, 6, 3)))
    lhs, rhs = side(rng, source), weights_side(rng, columns if rng.random() < 0.5 else 1, 1)
    x, w = draws.numbers(rng, lhs, rows, depth), rng.integers(-64, 64, (depth, columns)).astype(np.int8)
    sums = (x.astype(np.int64) - lhs.zero_points[0]) @ (w.astype(np.int64) - rhs.zero_points[0])
    output = output_side(rng, target, sums, (lhs, rhs))

    def product(a: Operand, b: Operand, _: Array | None) -> Array:
        operator = Operator("MatMul", ("lhs_real", "rhs_real"), "real", "f32", (len(a[1]), b[1].shape[1]))
        return by_onednn(library, operator, (a[0], b[0], output), a[1], b[1])

    found = matmul_dump((lhs, x), (rhs, w), output, product, label=LABEL)
    return replace(found, limits=limits(source))


def convolution(library: Onednn, rng: np.random.Generator) -> Dump:
    """Full or depthwise: others in groups may go by a kernel that multiplies by one scale after the other."""
    source, target = (str(each) for each in rng.choice(["i8", "u8"], 2))
    height, width = (int(size) for size in rng.integers(8, 13, 2))
    depthwise = rng.random() < 0.4
    groups = int(rng.integers(2, 9)) if depthwise else 1
    depth, outputs = (1, groups) if depthwise else (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
    strides, dilations = rng.integers(1, 3, 2).tolist(), rng.integers(1, 3, 2).tolist()
    top, left, bottom, right = rng.integers(0, 3, 4).tolist()
    lhs, rhs = side(rng, source), weights_side(rng, outputs if rng.random() < 0.5 else 1, 3, symmetric=True)
    x = draws.numbers(rng, lhs, 1, height, width, groups * depth)
    w = rng.integers(-64, 64, (3, 2, depth, outputs)).astype(np.int8) * np.int8(2 if source == "i8" else 1)
    window = Window(
        weights_layout=WeightsLayout.HWIO, strides=(strides[0], strides[1]), groups=groups,
        dilations=(dilations[0], dilations[1]), pads=(top, left, bottom, right),
    )  # fmt: skip
    sums = conv2d_integers(x, w, int(lhs.zero_points[0]), 0, window=window)
    output = output_side(rng, target, sums, (lhs, rhs))
    attributes = {
        "strides": strides, "dilations": dilations, "pads_begin": [top, left], "pads_end": [bottom, right],
        "groups": groups, "data_format": "NXC", "weights_format": "XIO",
    }  # fmt: skip

    def product(a: Operand, b: Operand, _: Array | None) -> Array:
        shape = conv2d_integers(a[1], b[1], int(lhs.zero_points[0]), 0, window=window).shape
        operator = Operator("Convolution", ("lhs_real", "rhs_real"), "real", "f32", shape, attributes)
        return by_onednn(library, operator, (a[0], b[0], output), a[1], b[1])

    found = conv2d_dump((lhs, x), (rhs, w), output, product, window=window, label=LABEL)
    return replace(found, limits=limits(source))


def add(library: Onednn, rng: np.random.Generator) -> Dump:
    sides = [side(rng, str(rng.choice(["i8", "u8"]))) for _ in range(3)]
    shape = draws.shape(rng)
    a, b = draws.numbers(rng, sides[0], *shape), draws.numbers(rng, sides[1], *shape)

    def total(lhs: Operand, rhs: Operand, _: Array | None) -> Array:
        return added(library, [lhs[0], rhs[0], sides[2]], lhs[1], rhs[1])

    return add_dump((sides[0], a), (sides[1], b), sides[2], total, label=LABEL)


def cast(library: Onednn, rng: np.random.Generator) -> Dump:
    """Quantize or Dequantize with scale 1. Of -0, which Dequantize makes +0, there is none."""
    element = str(rng.choice(["f8E4M3FN", "f8E5M2"]))
    one = {"qtype": "per_tensor", "scales": [1.0]}
    if rng.random() < 0.5:
        data = draws.reals_to_cast(rng, "f32", element)
        return draws.cast_dump(
            data, "f32", element, lambda x: library.run("Quantize", [("f32", x)], kind_of(element), **one), label=LABEL
        )
    codes = draws.codes_to_cast(rng, element)
    codes[codes == 0x80] = 0
    return draws.cast_dump(
        codes, element, "f32", lambda q: library.run("Dequantize", [(kind_of(element), q)], "f32", **one), label=LABEL
    )


KINDS = (quantize, matmul, convolution, requantize, add, dequantize, cast)


def dumps(rng: np.random.Generator, count: int, library: Onednn) -> Iterator[Dump]:
    """`count` dumps of the library in a process of its own."""
    return draws.some(rng, count, [partial(kind, library) for kind in KINDS])
