"""Dumps of torch: eager quantized tensors, quantized_decomposed, FBGEMM's own requantization, and casts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from requant.integer.conv2d import Layout, WeightsLayout, Window, conv2d_integers
from tests.interop.blind import draws
from tests.interop.blind.dump import Dump, RefusedError
from tests.interop.blind.products import Operand, add_dump, conv2d_dump, matmul_dump, rectified
from tests.interop.casts import torch_cast
from tests.interop.casts.cast_data import WIDE, is_nan
from tests.interop.integer.quantized_tensors import Array, Quantized, per_axis, per_tensor
from tests.interop.quantized_case import Case, parameter_counts
from tests.interop.schemes.fbgemm_library import WHOLE, RequantizationParams, by_fbgemm
from tests.interop.torch_quantized import (
    EAGER,
    added,
    as_array,
    convolution,
    decomposed,
    eager_dequantized,
    eager_quantized,
    linear,
)
from tests.interop.torch_version import EAGER_PROFILE

LABEL = {"profile": EAGER_PROFILE}
DECOMPOSED = {"profile": "torch_decomposed"}
STORAGES = ("i4", "u4", "i8", "u8", "i16", "u16", "i32")
FORMATS = ("f16", "bf16", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU")


def eager_quantize(rng: np.random.Generator) -> Dump:
    of = draws.case(rng, str(rng.choice(list(EAGER))))
    source = draws.reals(rng, of)
    return draws.quantize_dump(of, source, lambda x: as_array(eager_quantized(of, x).int_repr()), label=LABEL)


def eager_dequantize(rng: np.random.Generator) -> Dump:
    of = draws.case(rng, str(rng.choice(list(EAGER))))
    source = draws.stored(rng, of)
    return draws.dequantize_dump(of, source, lambda q: eager_dequantized(of, q), label=LABEL)


def _decomposed_case(rng: np.random.Generator, storages: tuple[str, ...]) -> Case:
    """One scale, one for each index of an axis, or in groups along the last of two dimensions.

    Scales are f64 that no f32 holds in some: the operators take them so but for groups.
    """
    storage, expressed = str(rng.choice(storages)), str(rng.choice(["f32", "f32", "f16", "bf16"]))
    if rng.random() < 0.8:
        of = draws.case(rng, storage, expressed)
        return of if rng.random() < 0.7 or of.axis is not None else replace(of, scales=of.scales * 1.0003)
    rows, group, count = (int(each) for each in rng.integers(2, 9, 3))
    shape = (rows, group * count)
    counts = parameter_counts(shape, 1, group)
    scales = np.array([draws.scale(rng, -7, 3, expressed) for _ in range(rows * count)]).reshape(counts)
    points = np.array([draws.zero_point(rng, storage) for _ in range(rows * count)]).reshape(counts)
    return Case(shape, storage, expressed, scales, points, 1, group)


def decomposed_quantize(rng: np.random.Generator) -> Dump:
    """Groups with NaN are refused."""
    of = _decomposed_case(rng, STORAGES)
    source = draws.reals(rng, of)
    if of.block is not None:
        source[np.isnan(source)] = 0

    def run(reals: Array) -> Array:
        if of.block is not None and np.isnan(reals).any():
            raise RefusedError
        return decomposed(of, reals, "quantize")

    return draws.quantize_dump(of, source, run, label=DECOMPOSED)


def decomposed_dequantize(rng: np.random.Generator) -> Dump:
    """torch has no arithmetic of zero points along an axis for uint16."""
    of = _decomposed_case(rng, tuple(each for each in STORAGES if each != "u16"))
    source = draws.stored(rng, of)
    return draws.dequantize_dump(of, source, lambda q: decomposed(of, q, "dequantize"), label=DECOMPOSED)


def decomposed_requantize(rng: np.random.Generator) -> Dump:
    sizes = draws.shape(rng)
    given, wanted = (draws.case(rng, str(rng.choice(STORAGES)), per_axis=False, sizes=sizes) for _ in range(2))
    source = draws.stored(rng, given)

    def run(stored: Array) -> Array:
        return decomposed(wanted, decomposed(given, stored, "dequantize"), "quantize")

    return draws.requantize_dump(given, wanted.element, source, run, label=DECOMPOSED)


def decomposed_add(rng: np.random.Generator) -> Dump:
    storage, shape = str(rng.choice(["i8", "u8"])), draws.shape(rng)
    sides = [per_tensor(storage, draws.scale(rng), draws.zero_point(rng, storage)) for _ in range(3)]
    a, b = draws.numbers(rng, sides[0], *shape), draws.numbers(rng, sides[1], *shape)

    def total(lhs: Operand, rhs: Operand, _: Array | None) -> Array:
        return added([lhs[0], rhs[0], sides[2]], lhs[1], rhs[1])

    return add_dump((sides[0], a), (sides[1], b), sides[2], total, label=DECOMPOSED)


def fbgemm_requantize(rng: np.random.Generator) -> Dump:
    """Of accumulators, as FBGEMM does behind each product, by a factor below 1."""
    size, of = int(np.exp2(rng.uniform(1, 11))), draws.scale(rng, -3, 3)
    factor = float(np.float32(2.0 ** rng.integers(-20, -3) if rng.random() < 0.5 else np.exp2(rng.uniform(-20, -3))))
    of = float(2.0 ** np.floor(np.log2(of)))
    point = draws.zero_point(rng, "u8")
    given = Case((size,), "i32", "f32", np.array(factor * of), np.array(0))
    wanted = Case((size,), "u8", "f32", np.array(of), np.array(point))
    # Halves of an output's step, and others.
    halves = (rng.integers(-300, 600, size) + 0.5) / factor + rng.integers(-1, 2, size)
    spread = rng.uniform(-300, 600, size) / factor
    source = np.clip(np.where(rng.random(size) < 0.6, halves, spread), -(2.0**31), 2.0**31 - 1).astype(np.int32)
    parameters = RequantizationParams(factor, 0, 0, 1.0, point, 8)

    def run(sums: Array) -> Array:
        return by_fbgemm(WHOLE["fbgemm", "u8"], sums, parameters, whole=True)

    return draws.requantize_dump(given, wanted.element, source, run, label=LABEL)


def _sides(rng: np.random.Generator, outputs: int, axis: int) -> tuple[Quantized, Quantized]:
    lhs = per_tensor("u8", draws.scale(rng), int(rng.integers(0, 128)))
    each = rng.random() < 0.5
    rhs = per_axis("i8", draws.scales(rng, outputs), axis) if each else per_tensor("i8", draws.scale(rng, -8, -3))
    return lhs, rhs


def _output(rng: np.random.Generator, sums: Array, lhs: Quantized, rhs: Quantized) -> tuple[Quantized, bool]:
    per_sum = float(lhs.scales[0]) * float(rhs.scales.max())
    found = per_tensor("u8", draws.output_scale(rng, sums, per_sum, 127.0), draws.zero_point(rng, "u8"))
    side, name = rectified(rng, found, limited=False)
    return side, name == "RELU"


LIMITS = (0, 127), (-128, 127), 1


def _activations(rng: np.random.Generator, *shape: int) -> Array:
    """Of 7 bits: FBGEMM's sums of pairs saturate with 8, where there is no VNNI."""
    return rng.integers(0, int(rng.choice([16, 128])), shape).astype(np.uint8)


def quantized_linear(rng: np.random.Generator) -> Dump:
    rows, depth, columns = (1 + int(each) for each in np.exp2(rng.uniform(0, 6, 3)))
    lhs, rhs = _sides(rng, columns, 1)
    x, w = _activations(rng, rows, depth), rng.integers(-128, 128, (columns, depth)).astype(np.int8)
    sums = (x.astype(np.int64) - lhs.zero_points[0]) @ w.T.astype(np.int64)
    output, relu = _output(rng, sums, lhs, rhs)

    def product(a: Operand, b: Operand, _: Array | None) -> Array:
        return linear(a, (b[0], np.ascontiguousarray(b[1].T)), output, relu=relu)

    found = matmul_dump((lhs, x), (rhs, np.ascontiguousarray(w.T)), output, product, label=LABEL)
    return replace(found, limits=LIMITS)


def quantized_conv2d(rng: np.random.Generator) -> Dump:
    """Full or depthwise."""
    depthwise = rng.random() < 0.4
    groups = int(rng.integers(2, 9)) if depthwise else 1
    depth, outputs = (1, groups) if depthwise else (int(rng.integers(1, 9)), int(rng.integers(2, 9)))
    height, width = (int(size) for size in rng.integers(6, 12, 2))
    stride, dilation, pad = int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(rng.integers(0, 2))
    lhs, rhs = _sides(rng, outputs, 0)
    x = _activations(rng, 1, groups * depth, height, width)
    w = rng.integers(-128, 128, (outputs, depth, 3, 2)).astype(np.int8)
    window = Window(
        layout=Layout.NCHW, weights_layout=WeightsLayout.OIHW, strides=(stride, stride),
        dilations=(dilation, dilation), pads=(pad, pad, pad, pad), groups=groups,
    )  # fmt: skip
    sums = conv2d_integers(x, w, int(lhs.zero_points[0]), 0, window=window)
    output, relu = _output(rng, sums, lhs, rhs)

    def product(a: Operand, b: Operand, _: Array | None) -> Array:
        return convolution(a, b, output, window, relu=relu)

    found = conv2d_dump((lhs, x), (rhs, w), output, product, window=window, label=LABEL)
    return replace(found, limits=LIMITS)


def narrow(rng: np.random.Generator) -> Dump:
    """The NaN of bf16 depends on the instruction set and on its place."""
    target = str(rng.choice(FORMATS))
    source = str(rng.choice([each for each in WIDE if each != target]))
    data = draws.reals_to_cast(rng, source, target)
    if target == "bf16":
        data[is_nan(data)] = 0
    return draws.cast_dump(data, source, target, lambda x: torch_cast.run(x, source, target), label=LABEL)


def widen(rng: np.random.Generator) -> Dump:
    source, target = str(rng.choice(FORMATS)), str(rng.choice(["f32", "f64"]))
    codes = draws.codes_to_cast(rng, source)
    return draws.cast_dump(codes, source, target, lambda q: torch_cast.run(q, source, target), label=LABEL)


EAGER_KINDS = (
    eager_quantize, quantized_linear, quantized_conv2d, fbgemm_requantize, narrow, eager_dequantize, eager_quantize,
    widen,
)  # fmt: skip
DECOMPOSED_KINDS = (decomposed_quantize, decomposed_requantize, decomposed_add, decomposed_dequantize)


def eager_dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps of eager tensors, by FBGEMM in one thread: each thread's share of a large tensor has a tail of its
    own.
    """
    threads, engine = torch.get_num_threads(), torch.backends.quantized.engine
    torch.set_num_threads(1)
    torch.backends.quantized.engine = "fbgemm"
    try:
        yield from draws.some(rng, count, EAGER_KINDS)
    finally:
        torch.set_num_threads(threads)
        torch.backends.quantized.engine = engine


def decomposed_dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps of quantized_decomposed."""
    return draws.some(rng, count, DECOMPOSED_KINDS)
