"""Dumps of LiteRT by its three resolvers: reference kernels, optimized kernels without delegates, and XNNPACK.

docs/cookbook/which_litert.md says which of our rules each has for an operator, and where there is none: those are left
out, and of the optimized kernels what lies behind the last full vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import OpResolverType

from requant.integer.conv2d import conv2d_integers
from tests.interop.blind import draws
from tests.interop.blind.dump import Array, Dump, RefusedError
from tests.interop.blind.products import Operand as Numbers
from tests.interop.blind.products import add_dump, conv2d_dump, matmul_dump, rectified
from tests.interop.integer import litert_operators
from tests.interop.integer.litert_operators import window_of
from tests.interop.integer.quantized_tensors import Quantized, per_axis, per_tensor
from tests.interop.litert_models import DEFAULT, DEQUANTIZE, QUANTIZE, REFERENCE, Operand, one_operator, run, run_inputs
from tests.interop.quantized_case import Case, bounds

OPTIMIZED = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
LITERT = {"profile": "litert"}
XNNPACK = {"profile": "litert_xnnpack"}
ARM_VECTOR = {"profile": "litert", "scheme": "arm_vector"}
REQUANTIZED = (
    ("i8", "i8"), ("i8", "u8"), ("u8", "i8"), ("u8", "u8"), ("i8", "i16"), ("i16", "i8"), ("i16", "i16"),
    ("i32", "i8"), ("i32", "i16"),
)  # fmt: skip
BY_DEFAULT = (("i8", "i8"), ("u8", "u8"), ("i8", "i16"), ("i16", "i8"), ("i16", "i16"))


def operand(of: Case) -> Operand:
    return Operand(of.storage, of.scales, of.zero_points, of.axis or 0)


def whole_vectors(shape: tuple[int, ...], length: int) -> tuple[int, ...]:
    """A shape whose last dimension is a multiple of a length."""
    return (*shape[:-1], -(-shape[-1] // length) * length)


def quantize(rng: np.random.Generator, resolver: Any) -> Dump:
    if resolver is REFERENCE:
        storage = str(rng.choice(["i4", "u4", "i8", "u8", "i16"]))
        of, label = draws.case(rng, storage, per_axis=None if storage[1:] in ("8", "16") else False), LITERT
    elif resolver is DEFAULT:
        of = draws.case(rng, str(rng.choice(["i8", "u8"])))
        label = XNNPACK if of.axis is None else LITERT
    else:
        # The optimized kernels take what int32 does not hold as the reference kernels do, and not as XNNPACK.
        sizes = whole_vectors(draws.shape(rng), 8)
        of, label = draws.case(rng, str(rng.choice(["i8", "u8"])), per_axis=False, sizes=sizes), XNNPACK
    source = draws.reals(rng, of, odd=resolver is not OPTIMIZED)
    model = one_operator(QUANTIZE, of.shape, Operand("f32"), operand(of))

    def given(reals: Array) -> Array:
        with np.errstate(all="ignore"):
            # Half of what int32 holds: the kernel's product with the reciprocal may reach what this division does not.
            odd = ~(np.abs(reals / np.float32(of.scales.min())) < 2.0**30)
        if resolver is OPTIMIZED and odd.any():
            raise RefusedError
        return run(model, reals, resolver)

    return draws.quantize_dump(of, source, given, label=label)


def dequantize(rng: np.random.Generator, resolver: Any) -> Dump:
    storage = str(rng.choice(["i4", "u4", "i8", "u8", "i16"] if resolver is REFERENCE else ["i8", "u8"]))
    one = storage == "i16" or resolver is not REFERENCE
    # Without delegates, what lies beside a zero point is inexact.
    symmetric = storage == "i16" or resolver is OPTIMIZED
    of = draws.case(rng, storage, per_axis=False if one else None, symmetric=symmetric)
    source = draws.stored(rng, of)
    model, label = one_operator(DEQUANTIZE, of.shape, operand(of), Operand("f32")), LITERT
    if resolver is DEFAULT:
        label = XNNPACK
    return draws.dequantize_dump(of, source, lambda q: run(model, q, resolver), label=label)


def requantize(rng: np.random.Generator, resolver: Any) -> Dump:
    pairs = {REFERENCE: REQUANTIZED, DEFAULT: BY_DEFAULT, OPTIMIZED: (("i8", "i8"), ("u8", "u8"), ("i16", "i8"))}
    source, target = pairs[resolver][rng.integers(len(pairs[resolver]))]
    symmetric = (source, target) == ("i16", "i16")
    sizes = whole_vectors(draws.shape(rng), 16) if resolver is OPTIMIZED else draws.shape(rng)
    given = draws.case(rng, source, per_axis=False, sizes=sizes, symmetric=symmetric or source == "i32")
    narrow = source != "i32" and source[1:] == target[1:]
    ratio = draws.scale(rng, -7.9, 6.9) if narrow else draws.scale(rng, -20 if source == "i32" else -9, 3)
    wanted = Case(
        sizes, target, "f32", np.array(np.float32(given.scales / ratio), np.float64),
        np.array(0 if symmetric else draws.zero_point(rng, target) if target != "i16" else int(rng.integers(-5, 6))),
    )  # fmt: skip
    stored = draws.stored(rng, given)
    model = one_operator(QUANTIZE, sizes, operand(given), operand(wanted))
    label = LITERT
    if resolver is DEFAULT:
        label = XNNPACK
    elif resolver is OPTIMIZED and source != "i16":
        label = ARM_VECTOR
    return draws.requantize_dump(given, wanted.element, stored, lambda q: run(model, q, resolver), label=label)


def products_label(resolver: Any, storage: str) -> dict[str, str]:
    """XNNPACK leaves 16 bits to the optimized kernels, and its profile has them."""
    if resolver is REFERENCE:
        return LITERT
    return XNNPACK if resolver is DEFAULT or storage == "i16" else ARM_VECTOR


def input_side(rng: np.random.Generator, storage: str) -> Quantized:
    return per_tensor(storage, draws.scale(rng, -7, 0), 0 if storage == "i16" else draws.zero_point(rng, storage))


def output_side(rng: np.random.Generator, storage: str, sums: Array, per_sum: float) -> tuple[Quantized, int]:
    """An output, and its fused activation."""
    of = draws.output_scale(rng, sums, per_sum, bounds(storage)[1])
    point = 0 if storage == "i16" else draws.zero_point(rng, storage)
    side, name = rectified(rng, per_tensor(storage, of, point), limited=True)
    return side, int(getattr(schema.ActivationFunctionType, name))


def weights(rng: np.random.Generator, *shape: int) -> Array:
    limit = int(rng.choice([2, 16, 128]))
    return rng.integers(1 - limit, limit, shape).astype(np.int8)


def fully_connected(rng: np.random.Generator, resolver: Any) -> Dump:
    storage = "i8" if rng.random() < 0.75 else "i16"
    rows, depth, columns = (int(each) for each in np.exp2(rng.uniform(0, 6, 3)))
    columns += 1
    x_side = input_side(rng, storage)
    scales = draws.scales(rng, columns if rng.random() < 0.6 else 1)
    x, w = draws.numbers(rng, x_side, rows, depth), weights(rng, columns, depth)
    sums = (x.astype(np.int64) - x_side.zero_points[0]) @ w.T.astype(np.int64)
    y_side, activation = output_side(rng, storage, sums, float(x_side.scales[0]) * float(scales.max()))
    bias = None
    if rng.random() < 0.7 or storage == "i8":
        reach = 1 + int(np.abs(sums).max()) // 2
        bias = rng.integers(-reach, reach, columns).astype(np.int32)

    def product(lhs: Numbers, rhs: Numbers, added: Array | None) -> Array:
        of_weights = per_axis("i8", rhs[0].scales, 0), np.ascontiguousarray(rhs[1].T)
        model = litert_operators.fully_connected(
            lhs[0], len(lhs[1]), of_weights, y_side, added, activation=activation, version=5 if storage == "i8" else 11
        )
        return run_inputs(model, [lhs[1]], resolver)

    rhs = per_axis("i8", scales, 1), np.ascontiguousarray(w.T)
    return matmul_dump((x_side, x), rhs, y_side, product, bias=bias, label=products_label(resolver, storage))


def batch_matmul(rng: np.random.Generator, resolver: Any) -> Dump:
    storage = "i8" if rng.random() < 0.7 else "i16"
    batch, rows, depth, columns = (int(each) for each in rng.integers(2, 20, 4))
    a_side, b_side = input_side(rng, storage), input_side(rng, storage)
    a, b = draws.numbers(rng, a_side, batch, rows, depth), draws.numbers(rng, b_side, batch, depth, columns)
    sums = np.matmul(a.astype(np.int64) - a_side.zero_points[0], b.astype(np.int64) - b_side.zero_points[0])
    per_sum = float(a_side.scales[0]) * float(b_side.scales[0])
    point = 0 if storage == "i16" else draws.zero_point(rng, storage)
    y_side = per_tensor(storage, draws.output_scale(rng, sums, per_sum, bounds(storage)[1]), point)

    def product(lhs: Numbers, rhs: Numbers, _: Array | None) -> Array:
        model = litert_operators.batch_matmul((lhs[0], rhs[0], y_side), lhs[1], rhs[1])
        return run_inputs(model, [lhs[1], rhs[1]], resolver)

    label = XNNPACK if resolver is DEFAULT else LITERT
    return matmul_dump((a_side, a), (b_side, b), y_side, product, label=label)


def convolution(rng: np.random.Generator, resolver: Any) -> Dump:
    """Full or depthwise, by weights of 8 bits."""
    depthwise, storage = rng.random() < 0.5, "i8" if rng.random() < 0.75 else "i16"
    height, width, channels = int(rng.integers(5, 12)), int(rng.integers(5, 12)), int(rng.integers(2, 9))
    multiplier = int(rng.integers(1, 3)) if depthwise else None
    if depthwise and resolver is OPTIMIZED:
        channels, multiplier = 8, 1
    outputs = channels * multiplier if multiplier is not None else int(rng.integers(2, 17))
    window = window_of(rng, channels if depthwise else 1)
    x_side, w_side = input_side(rng, storage), per_axis("i8", draws.scales(rng, outputs), 3 if depthwise else 0)
    w = weights(rng, *((1, 3, 2, outputs) if depthwise else (outputs, 3, 2, channels)))
    x = draws.numbers(rng, x_side, 1, height, width, channels)
    sums = conv2d_integers(x.astype(np.int16), w, int(x_side.zero_points[0]), 0, window=window)
    per_sum = float(x_side.scales[0]) * float(w_side.scales.max())
    y_side, activation = output_side(rng, storage, sums, per_sum)
    reach = 1 + int(np.abs(sums.astype(np.int64)).max()) // 2
    bias = rng.integers(-reach, reach, outputs).astype(np.int32 if storage == "i8" else np.int64)

    def product(lhs: Numbers, rhs: Numbers, added: Array | None) -> Array:
        shape = conv2d_integers(lhs[1].astype(np.int16), rhs[1], int(x_side.zero_points[0]), 0, window=window).shape
        assert added is not None
        model = litert_operators.convolution(
            (lhs[0], lhs[1].shape), rhs, (y_side, shape), added, window, multiplier=multiplier, activation=activation
        )
        return run_inputs(model, [lhs[1]], resolver)

    label = products_label(resolver, storage)
    return conv2d_dump((x_side, x), (w_side, w), y_side, product, window=window, bias=bias, label=label)


def add(rng: np.random.Generator, resolver: Any) -> Dump:
    storage = str(rng.choice(["i8", "u8", "i16"] if resolver is REFERENCE else ["i8", "u8"]))
    shape = draws.shape(rng)
    points = [0 if storage == "i16" else draws.zero_point(rng, storage) for _ in range(3)]
    sides = [per_tensor(storage, draws.scale(rng, -4, 0), point) for point in points]
    sides[2], name = rectified(rng, sides[2], limited=True)
    a, b = draws.numbers(rng, sides[0], *shape), draws.numbers(rng, sides[1], *shape)

    def total(lhs: Numbers, rhs: Numbers, _: Array | None) -> Array:
        activation = int(getattr(schema.ActivationFunctionType, name))
        model = litert_operators.add(lhs[1].shape, [lhs[0], rhs[0], sides[2]], activation=activation)
        return run_inputs(model, [lhs[1], rhs[1]], resolver)

    label = LITERT if resolver is REFERENCE else XNNPACK
    return add_dump((sides[0], a), (sides[1], b), sides[2], total, label=label)


KINDS = (quantize, requantize, fully_connected, convolution, add, dequantize, batch_matmul)


def dumps(rng: np.random.Generator, count: int, resolver: Any) -> Iterator[Dump]:
    """`count` dumps of a resolver. The ADD without delegates has no rule of ours."""
    kinds = [kind for kind in KINDS if resolver is not OPTIMIZED or kind is not add]
    return draws.some(rng, count, [partial(kind, resolver=resolver) for kind in kinds])
