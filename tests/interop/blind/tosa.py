"""Dumps of TOSA's reference model: RESCALE, and what compilers make of quantized products and additions with it.

The model is given the multipliers of the oracle (tests/oracles), with either rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from requant.convert.blocks import mx
from requant.integer.conv2d import conv2d_integers, plan_conv2d
from tests.interop.blind import blocks, draws
from tests.interop.blind.dump import Array, Dump, RefusedError
from tests.interop.blind.products import Operand, add_dump, conv2d_dump, matmul_dump
from tests.interop.blocks.block_cases import finite_blocks
from tests.interop.casts.cast_data import DTYPES as DTYPES_OF
from tests.interop.integer import tosa_graphs
from tests.interop.integer.quantized_tensors import DTYPES, Quantized, per_axis, per_tensor, run_product, tensor
from tests.interop.integer.tosa_graphs import (
    ROUNDINGS,
    WIDE,
    numbers,
    ours,
    output_of,
    per_sums,
    rescale_by,
    rescale_of,
    windows,
    zero_point,
)
from tests.interop.quantized_case import Case
from tests.interop.tosa_block_casts import cast_to_blocks
from tests.interop.tosa_model import Verdict, rescale

PRODUCTS = (("i8", "i8", "i8"), ("i8", "i8", "i16"), ("i16", "i16", "i16"), ("i16", "i16", "i8"))
CONVOLUTIONS = (("i8", "i8"), ("i8", "i16"), ("i16", "i16"), ("i16", "i8"))


def _rounding(rng: np.random.Generator) -> str:
    return str(rng.choice(list(ROUNDINGS)))


def _valid(found: tuple[Verdict, Array | None]) -> Array:
    verdict, output = found
    if verdict is not Verdict.VALID:
        raise RefusedError(str(verdict))
    assert output is not None
    return output


def requantize(rng: np.random.Generator) -> Dump:
    """RESCALE by one factor, or by one for each channel. Sums of 32 bits have no zero point."""
    profile, source, target = _rounding(rng), *(str(each) for each in rng.choice(["i8", "i16", "i32"], 2))
    channels = int(rng.integers(2, 9)) if rng.random() < 0.4 else 1
    sizes = (int(np.exp2(rng.uniform(1, 8))), channels)
    low = -20 if source == "i32" else -7
    factors = np.array([draws.scale(rng, low, 3 if target == "i8" else 0) for _ in range(channels)])
    of = float(2.0 ** rng.integers(-5, 5))
    points = zero_point(rng, source), zero_point(rng, target)
    scales, axis = (factors * of, 1) if channels > 1 else (np.array(factors[0] * of), None)
    given = Case(sizes, source, "f32", scales, np.full(scales.shape, points[0]), axis)
    wanted = Case(sizes, target, "f32", np.array(of), np.array(points[1]))
    each = [rescale_by(profile, factor, source, target, points) for factor in (scales / of).reshape(-1).tolist()]
    case = replace(
        each[0], shape=sizes, multiplier=tuple(one.multiplier[0] for one in each),
        shift=tuple(one.shift[0] for one in each), per_channel=channels > 1,
    )  # fmt: skip
    stored = draws.stored(rng, given)
    if source == "i32":
        # What RESCALE takes, and in some of which halves of a step of the output are.
        halves = np.rint((rng.integers(-300, 300, sizes) + 0.5) / factors) + rng.integers(-1, 2, sizes)
        bound = np.array([1 << min(31, shift - 1) for shift in case.shift]) - 1
        stored = np.clip(halves if rng.random() < 0.6 else stored, -bound, bound).astype(np.int32)

    def run(numbers: Array) -> Array:
        return _valid(rescale(case, numbers)).reshape(sizes)

    return draws.requantize_dump(given, wanted.element, stored, run, label={"profile": profile})


def _weights(rng: np.random.Generator, storage: str, count: int, axis: int, point: int) -> Quantized:
    if count == 1:
        return per_tensor(storage, draws.scale(rng), point)
    return per_axis(storage, draws.scales(rng, count), axis, np.full(count, point))


def matmul(rng: np.random.Generator) -> Dump:
    profile, (of_a, of_b, of_y) = _rounding(rng), PRODUCTS[rng.integers(len(PRODUCTS))]
    accumulator = "i32" if of_a == "i8" else WIDE
    batch, rows, depth, columns = (int(size) for size in rng.integers(1, 20, 4))
    a_side = per_tensor(of_a, draws.scale(rng), zero_point(rng, of_a))
    b_side = _weights(rng, of_b, columns if rng.random() < 0.5 else 1, 2, zero_point(rng, of_b))
    a, b = numbers(rng, a_side, batch, rows, depth), numbers(rng, b_side, batch, depth, columns)
    zeros = int(a_side.zero_points[0]), int(b_side.zero_points[0])
    sums = np.matmul(a.astype(np.int64) - zeros[0], b.astype(np.int64) - zeros[1])
    y_side = output_of(rng, of_y, sums, per_sums((a_side, b_side)), accumulator)

    def product(lhs: Operand, rhs: Operand, _: Array | None) -> Array:
        # MATMUL takes three dimensions.
        left, right = (each.reshape(*(1,) * (3 - each.ndim), *each.shape) for each in (lhs[1], rhs[1]))
        shape = (*left.shape[:-1], right.shape[-1])
        case = rescale_of(profile, shape, accumulator, (lhs[0], rhs[0]), y_side)
        found = _valid(tosa_graphs.matmul(left, right, zeros, case))
        return found.reshape(*lhs[1].shape[:-1], shape[-1])

    return matmul_dump((a_side, a), (b_side, b), y_side, product, label={"profile": profile})


def convolution(rng: np.random.Generator) -> Dump:
    """Full or depthwise, with a bias as wide as the sums."""
    profile, (of_x, of_y) = _rounding(rng), CONVOLUTIONS[rng.integers(len(CONVOLUTIONS))]
    depthwise = rng.random() < 0.5
    accumulator, of_bias = ("i32", "i32") if of_x == "i8" else (WIDE, "i64")
    height, width = (int(size) for size in rng.integers(4, 12, 2))
    kernel = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    channels, multiples = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    outputs = channels * multiples if depthwise else int(rng.integers(2, 9))
    window = windows(rng, (height, width), kernel, depthwise=depthwise)
    x_side = per_tensor(of_x, draws.scale(rng), zero_point(rng, of_x))
    axis = 3 if depthwise else 0
    w_side = _weights(rng, "i8", outputs if rng.random() < 0.5 else 1, axis, zero_point(rng, "i8"))
    x = numbers(rng, x_side, 1, height, width, channels)
    w = numbers(rng, w_side, *((1, *kernel, outputs) if depthwise else (outputs, *kernel, channels)))
    reach = 1 << int(rng.integers(4, 20))
    bias = rng.integers(-reach, reach, outputs).astype(DTYPES[of_bias])
    used, types = ours(window, channels if depthwise else 1), (x_side.tensor(*x.shape), w_side.tensor(*w.shape))
    plain = plan_conv2d(
        *types, tensor(f"1x{of_bias}").element, profile, window=used, bias=tensor(f"{outputs}x{of_bias}")
    )
    sums = run_product(plain, x, w, bias)
    y_side = output_of(rng, of_y, sums, per_sums((x_side, w_side)), accumulator)
    zeros = int(x_side.zero_points[0]), int(w_side.zero_points[0])

    def product(lhs: Operand, rhs: Operand, added: Array | None) -> Array:
        shape = conv2d_integers(lhs[1].astype(np.int16), rhs[1], 0, 0, window=used).shape
        case = rescale_of(profile, shape, accumulator, (lhs[0], rhs[0]), y_side)
        _, rows, columns, outputs = rhs[1].shape
        given = rhs[1].reshape(rows, columns, channels, outputs // channels) if depthwise else rhs[1]
        added = np.zeros(shape[-1], DTYPES[of_bias]) if added is None else added
        return _valid(tosa_graphs.conv2d(lhs[1], given, added, zeros, window, case))

    label = {"profile": profile}
    return conv2d_dump((x_side, x), (w_side, w), y_side, product, window=used, bias=bias, label=label)


def add(rng: np.random.Generator) -> Dump:
    """Of one shape, or broadcast."""
    profile, storage = _rounding(rng), str(rng.choice(["i8", "i8", "i16"]))
    sides = [per_tensor(storage, draws.scale(rng, -4, 0), zero_point(rng, storage)) for _ in range(3)]
    shapes = [draws.shape(rng)] * 2
    if rng.random() < 0.3:
        shapes = [(5, 1, 7), (5, 4, 1)]
    a, b = draws.numbers(rng, sides[0], *shapes[0]), draws.numbers(rng, sides[1], *shapes[1])

    def total(lhs: Operand, rhs: Operand, _: Array | None) -> Array:
        return _valid(tosa_graphs.addition(profile, [lhs[0], rhs[0], sides[2]], lhs[1], rhs[1]))

    return add_dump((sides[0], a), (sides[1], b), sides[2], total, label={"profile": profile})


def quantize_blocks(rng: np.random.Generator) -> Dump:
    """CAST_TO_BLOCK_SCALED. The model's elements and scales are read as what they stand for."""
    name = str(rng.choice(list(mx.MX_ELEMENTS)))
    element = mx.MX_ELEMENTS[name] or "i8"
    values = blocks.drawn_rows(rng, finite_blocks(rng, mx.BLOCK, -15, 15))
    # Quotients that the model rounds in another way, and integers, which have no zero with a sign.
    values[np.abs(values) < 2.0**-30] = 0

    def run(reals: Array) -> dict[str, Array]:
        found, scales = cast_to_blocks(reals, "f32", element)
        return {
            "elements": (found * 64).astype(np.int8) if element == "i8" else found.astype(DTYPES_OF[element]),
            "scales": scales.reshape(len(reals), -1, mx.BLOCK)[:, :, 0].astype(DTYPES_OF["f8E8M0FNU"]),
        }

    return blocks.quantize_dump(values, run, label={"format": name, "rule": "tosa"})


KINDS = (quantize_blocks, requantize, matmul, convolution, add)


def dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps."""
    return draws.some(rng, count, KINDS)
