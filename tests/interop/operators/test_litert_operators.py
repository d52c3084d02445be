"""LiteRT's quantized operators beside its three resolvers, each with a million elements in the exhaustive mode."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.interop.seed_of_the_day import generator
from tests.support.cases import EXHAUSTIVE

pytest.importorskip("flatbuffers")
pytest.importorskip("ai_edge_litert")

from ai_edge_litert import schema_py_generated as schema

from tests.interop.litert_models import Array
from tests.interop.operators.litert_node import Node, Quant, check

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the kernels are those of x86-64"),
]

BYTES = ("i8", "u8")
STORAGES = (*BYTES, "i16")
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")
Nodes = Iterator[Node]


def beside(rng: np.random.Generator, scale: float) -> float:
    """A scale, or one ulp beside it."""
    toward = np.float32([-np.inf, scale, np.inf][rng.integers(3)])
    return float(np.nextafter(np.float32(scale), toward))


def quant(rng: np.random.Generator, storage: str, scale: float) -> Quant:
    limits = np.iinfo(Quant(storage, 1.0).dtype)
    ends: tuple[int, ...] = int(limits.min), int(limits.max), 0
    zero = 0 if storage == "i16" else int(rng.choice([int(rng.integers(limits.min, limits.max + 1)), *ends]))
    return Quant(storage, beside(rng, scale), zero)


def any_scale(rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(-7, 1)))


def activation(rng: np.random.Generator) -> tuple[str, int]:
    name = str(rng.choice(ACTIVATIONS)) if rng.random() < 0.5 else "NONE"
    return name, int(getattr(schema.ActivationFunctionType, name))


def rounds(exhaustive: int, quick: int = 6) -> int:
    return exhaustive if EXHAUSTIVE else quick


def binary_nodes(rng: np.random.Generator, operator: str) -> Nodes:
    shapes: Any = (
        ((40, 401 if EXHAUSTIVE else 41),) * 2,
        ((7, 15), (7, 15)),
        ((1,), (33,)),
        ((5, 1, 9), (5, 4, 9)),
        ((3,), (3,)),
    )
    for number in range(rounds(200)):
        storage = STORAGES[number % 3]
        of_a, of_b = quant(rng, storage, any_scale(rng)), quant(rng, storage, any_scale(rng))
        product = of_a.scale * of_b.scale
        if operator == "MUL":
            # Whole and half numbers, and factors at the ends of what kernels take.
            factor = rng.choice([1.0, 0.5, 0.25, 2.0**-7, 2.0**-16, 2.0**8, 2.0**-12, rng.uniform(0.0005, 0.3)])
            scale = product / factor
        else:
            scale = max(of_a.scale, of_b.scale) * rng.choice([1.0, 2.0, 0.5, 2.0**-8, 2.0**9, rng.uniform(0.3, 3)])
        if rng.random() < 0.2:
            scale = float(rng.choice([0.25, 4.0, 12.0, 0.75]))  # bounds of activations that are ties
        of_y = quant(rng, storage, scale)
        shape_a, shape_b = shapes[0] if rng.random() < 0.3 else shapes[rng.integers(len(shapes))]
        name, code = activation(rng)
        options: dict[str, Any] = {"fusedActivationFunction": code}
        if operator == "SUB":
            options["potScaleInt16"] = False
        inputs = (of_a.draw(rng, *shape_a), of_a), (of_b.draw(rng, *shape_b), of_b)
        shape = tuple(np.broadcast_shapes(shape_a, shape_b))
        if operator == "PRELU":
            yield Node(operator, dict(zip(("input", "alpha"), inputs, strict=True)), of_y, shape, version=1)
            continue
        yield Node(
            operator,
            dict(zip(("input1", "input2"), inputs, strict=True)),
            of_y,
            shape,
            {"fused_activation_function": name},
            ("MulOptions" if operator == "MUL" else "SubOptions", options),
        )


def test_mul() -> None:
    check(binary_nodes(generator(1), "MUL"), 1_000_000)


def test_prelu() -> None:
    check(binary_nodes(generator(6), "PRELU"), 1_000_000)


def test_sub() -> None:
    check(binary_nodes(generator(2), "SUB"), 1_000_000)


def pool_nodes(rng: np.random.Generator, operator: str) -> Nodes:
    for number in range(rounds(200)):
        storage, padding = STORAGES[number % 3], str(rng.choice(["SAME", "VALID"]))
        size, taps, stride = rng.integers(1, 12, 2), rng.integers(1, 6, 2), rng.integers(1, 4, 2)
        taps = np.minimum(taps, size)
        places = -(-size // stride) if padding == "SAME" else (size - taps) // stride + 1
        images, channels = (int(each) for each in rng.choice([1, 2, 16, 67], 2))
        of_x = quant(rng, storage, float(rng.choice([any_scale(rng), 4.0, 12.0, 0.75])))
        x = of_x.draw(rng, images, int(size[0]), int(size[1]), channels)
        if rng.random() < 0.5:
            x = x // 64  # small sums, many of whose means are ties
        name, code = activation(rng)
        height, width, down, right = (int(each) for each in (*taps, *stride))
        yield Node(
            operator,
            {"input": (x, of_x)},
            of_x,
            (images, int(places[0]), int(places[1]), channels),
            {"padding": padding, "filter_height": height, "filter_width": width, "stride_h": down, "stride_w": right,
             "fused_activation_function": name},
            ("Pool2DOptions",
             {"padding": int(getattr(schema.Padding, padding)), "filterHeight": height, "filterWidth": width,
              "strideH": down, "strideW": right, "fusedActivationFunction": code}),
            retyped=False,
        )  # fmt: skip


def test_average_pool() -> None:
    check(pool_nodes(generator(3), "AVERAGE_POOL_2D"), 1_000_000)


def test_max_pool() -> None:
    check(pool_nodes(generator(4), "MAX_POOL_2D"), 1_000_000)


UNARY = ("LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "HARD_SWISH")
FUNCTIONS: dict[str, Any] = {"LOGISTIC": lambda x: 1 / (1 + np.exp(-x)), "TANH": np.tanh}


def unary_nodes(rng: np.random.Generator, operator: str) -> Nodes:
    """All codes of 8 bits, and of 16 where the operator has them."""
    wide = operator not in ("HARD_SWISH", "RELU6", "RELU_N1_TO_1")
    for number in range(rounds(180)):
        storage = "i16" if wide and number % 30 == 0 else BYTES[number % 2]
        of_x = quant(rng, storage, any_scale(rng) / (200 if storage == "i16" else 1))
        limits = np.iinfo(of_x.dtype)
        codes = np.arange(limits.min, limits.max + 1).astype(of_x.dtype)
        x = np.concatenate([rng.permutation(codes) for _ in range(1 if storage == "i16" else 10)])
        ratio = rng.choice([1.0, 2.0, 0.5, 1 / 3, rng.uniform(0.05, 4), 2.0**-7, 2.0**8, 1.5 * 2.0**-10])
        attributes: dict[str, Any] = {}
        options = None
        of_y = quant(rng, storage, of_x.scale * ratio)
        if operator in ("LOGISTIC", "TANH"):
            one = 2.0**-7 if operator == "TANH" else 2.0**-8
            of_y = (
                Quant(storage, one, {"i8": 0, "u8": 128}[storage] if operator == "TANH" else Quant(storage, 1).low)
                if storage != "i16"
                else Quant("i16", 2.0**-15)
            )
            if storage == "i16" and rng.random() < 0.4:
                of_x = Quant("i16", float(rng.choice([2.0**-12, 2.0**-11, 2.0**-10, 2.0**-14])))
        if operator == "LEAKY_RELU":
            attributes["alpha"] = float(np.float32(rng.choice([0.01, 0.1, 0.5, -0.25, 2.0, 0.0, 1.0, rng.normal()])))
            options = ("LeakyReluOptions", dict(attributes))
        version = 1 if operator in ("HARD_SWISH", "RELU_N1_TO_1") else 2
        if operator in FUNCTIONS and storage != "i16":
            # Beside a tie the last bit of the C library's function decides.
            real = np.float32(of_x.scale) * (x.astype(np.int32) - of_x.zero_point).astype(np.float32)
            steps = FUNCTIONS[operator](real.astype(np.float64)) / of_y.scale
            x = x[np.abs(steps - np.floor(steps) - 0.5) > 1e-4]
        yield Node(operator, {"input": (x, of_x)}, of_y, x.shape, attributes, options, version=version)


@pytest.mark.parametrize("operator", UNARY)
def test_unary(operator: str) -> None:
    check(unary_nodes(generator(5), operator), 1_000_000)


def softmax_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(rounds(180)):
        storage = STORAGES[number % 3]
        of_x = quant(rng, storage, float(np.exp(rng.uniform(-9, 1))) / (200 if storage == "i16" else 1))
        of_y = Quant("i16", 2.0**-15) if storage == "i16" else Quant(storage, 2.0**-8, Quant(storage, 1).low)
        shape = [(70, 100), (1500, 5), (3, 1001), (50, 2, 17), (9,), (33, 1)][rng.integers(6)]
        x = of_x.draw(rng, *shape)
        if rng.random() < 0.5:
            x = x // rng.choice([2, 16, 256]).astype(x.dtype) if storage == "i16" else x // rng.choice([2, 16])
        beta = float(np.float32(rng.choice([1.0, 0.5, rng.uniform(0.1, 3)])))
        x = x.astype(of_x.dtype)
        yield Node("SOFTMAX", {"input": (x, of_x)}, of_y, shape, {"beta": beta}, ("SoftmaxOptions", {"beta": beta}))


def test_softmax() -> None:
    check(softmax_nodes(generator(7)), 1_000_000)


def reduced_nodes(rng: np.random.Generator, operator: str) -> Nodes:
    shapes: Any = ((3, 7, 5, 40), (2, 4, 4, 9000), (5, 3, 3, 4000), (400, 33), (9, 40, 30), (1000,))
    for number in range(rounds(150)):
        storage, shape = STORAGES[number % 3], shapes[rng.integers(len(shapes))]
        axes = sorted(rng.choice(len(shape), rng.integers(1, len(shape) + 1), replace=False).tolist())
        if len(shape) == 4 and rng.random() < 0.8:
            axes = [1, 2] if rng.random() < 0.7 else [-1]
        keep = bool(rng.random() < 0.5)
        of_x = quant(rng, storage, any_scale(rng))
        reduced = {axis % len(shape) for axis in axes}
        count = int(np.prod([shape[axis] for axis in reduced]))
        ratio = rng.choice([1.0, 2.0, 0.5, 1 / 3, rng.uniform(0.05, 4)])
        of_y = quant(rng, storage, of_x.scale * ratio * (count if operator == "SUM" and rng.random() < 0.7 else 1))
        x = of_x.draw(rng, *shape)
        if rng.random() < 0.5:
            x = (x // 32).astype(x.dtype)
        kept = [1 if axis in reduced else size for axis, size in enumerate(shape) if keep or axis not in reduced]
        yield Node(
            operator,
            {"input": (x, of_x), "axis": (np.array(axes, np.int32), None)},
            of_y,
            tuple(kept),
            {"keep_dims": keep},
            ("ReducerOptions", {"keepDims": keep}),
        )


@pytest.mark.parametrize("operator", ["MEAN", "SUM"])
def test_reduced(operator: str) -> None:
    check(reduced_nodes(generator(8), operator), 1_000_000)


def joined_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(rounds(120)):
        storage, axis = STORAGES[number % 3], int(rng.integers(-3, 3))
        of_y = quant(rng, storage, any_scale(rng))
        shape = [int(each) for each in rng.choice([1, 7, 16, 40], 3)]
        inputs: dict[str, tuple[Array, Quant | None]] = {}
        for part in range(int(rng.integers(1, 7))):
            shape[axis] = int(rng.integers(1, 40))
            of_x = (
                of_y
                if storage == "i8" or rng.random() < 0.2
                else quant(rng, storage, of_y.scale * rng.choice([0.5, 1.0, 1.5, 2.25, rng.uniform(0.1, 3)]))
            )
            inputs[f"input_{part}"] = (of_x.draw(rng, *shape), of_x)
        total = [*shape]
        total[axis] = sum(array.shape[axis] for array, _ in inputs.values())
        options = ("ConcatenationOptions", {"axis": axis})
        yield Node("CONCATENATION", inputs, of_y, tuple(total), {"axis": axis}, options)


def test_concatenation() -> None:
    check(joined_nodes(generator(9)), 1_000_000)


def padded_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(rounds(90)):
        of_x = quant(rng, STORAGES[number % 3], any_scale(rng))
        shape = tuple(int(each) for each in rng.choice([1, 5, 17, 40], rng.integers(1, 5)))
        widths = rng.integers(0, 4, (len(shape), 2)).astype(np.int32)
        after = tuple(int(each) for each in np.array(shape) + widths.sum(1))
        yield Node(
            "PAD", {"input": (of_x.draw(rng, *shape), of_x), "paddings": (widths, None)}, of_x, after, {},
            ("PadOptions", {}), retyped=False,
        )  # fmt: skip


def test_pad() -> None:
    check(padded_nodes(generator(10)), 1_000_000)


def resized_nodes(rng: np.random.Generator, operator: str) -> Nodes:
    for number in range(rounds(180)):
        of_x = quant(rng, STORAGES[number % 3], any_scale(rng))
        before, after = rng.integers(1, 24, 2), rng.integers(1, 40, 2)
        if rng.random() < 0.3:
            after = before * rng.integers(1, 4)
        images, channels = (int(each) for each in rng.choice([1, 2, 3, 16], 2))
        align, half = [(False, False), (True, False), (False, True)][rng.integers(3)]
        flags = {"align_corners": align, "half_pixel_centers": half}
        kind = "ResizeBilinearOptions" if operator == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
        yield Node(
            operator,
            {"input": (of_x.draw(rng, images, *(int(each) for each in before), channels), of_x),
             "size": (after.astype(np.int32), None)},
            of_x,
            (images, int(after[0]), int(after[1]), channels),
            flags,
            (kind, {"alignCorners": align, "halfPixelCenters": half}),
            retyped=False,
            version=3,
        )  # fmt: skip


@pytest.mark.parametrize("operator", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_resized(operator: str) -> None:
    check(resized_nodes(generator(11), operator), 1_000_000)


def matmul_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(rounds(120)):
        storage = ("i8", "i8", "i16")[number % 3]
        of_a, of_b = quant(rng, storage, any_scale(rng)), quant(rng, storage, any_scale(rng))
        constant = bool(rng.random() < 0.5)
        if rng.random() < 0.5:
            of_b = Quant(storage, of_b.scale)
        m, k, n = (int(each) for each in rng.choice([1, 5, 60, 130], 3))
        batch = () if rng.random() < 0.5 else (3,)
        a, b = of_a.draw(rng, *batch, m, k), of_b.draw(rng, *batch, k, n)
        adj_x, adj_y = bool(rng.random() < 0.3), bool(rng.random() < 0.3)
        if adj_x:
            a = np.ascontiguousarray(a.swapaxes(-1, -2))
        if adj_y:
            b = np.ascontiguousarray(b.swapaxes(-1, -2))
        ratio = rng.choice([2.0**-3, 2.0**-7, 0.01, 2.0**-10, rng.uniform(0.001, 0.1)])
        of_y = quant(rng, storage, of_a.scale * of_b.scale / ratio * (200 if storage == "i16" else 1))
        yield Node(
            "BATCH_MATMUL", {"lhs": (a, of_a), "rhs": (b, of_b)}, of_y, (*batch, m, n),
            {"adj_x": adj_x, "adj_y": adj_y},
            ("BatchMatMulOptions", {"adjX": adj_x, "adjY": adj_y}), ("rhs",) if constant else (),
        )  # fmt: skip


def test_batch_matmul() -> None:
    check(matmul_nodes(generator(12)), 1_000_000)


def transposed_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(rounds(150)):
        storage, padding = STORAGES[number % 3], str(rng.choice(["SAME", "VALID"]))
        images, inner, outer = 1 + number % 2, int(rng.choice([1, 3, 16])), int(rng.choice([1, 5, 8, 16, 24]))
        size, taps, strides = rng.integers(1, 14, 2), rng.integers(1, 5, 2), rng.integers(1, 4, 2)
        places = size * strides if padding == "SAME" else (size - 1) * strides + np.maximum(taps, strides)
        of_x = quant(rng, storage, any_scale(rng))
        if storage == "u8":
            of_w = quant(rng, "u8", any_scale(rng))
        else:
            of_w = Quant("i8", np.array([any_scale(rng) for _ in range(outer)], np.float32))
        w = of_w.draw(rng, outer, int(taps[0]), int(taps[1]), inner)
        ratio = rng.choice([2.0**-3, 2.0**-7, 0.01, 2.0**-10, rng.uniform(0.001, 0.1)])
        of_y = quant(rng, storage, of_x.scale * float(np.mean(of_w.scale)) / ratio)
        shape = (images, int(places[0]), int(places[1]), outer)
        inputs: dict[str, Any] = {
            "output_shape": (np.array(shape, np.int32), None),
            "weights": (w, of_w),
            "input": (of_x.draw(rng, images, int(size[0]), int(size[1]), inner), of_x),
        }
        if storage != "i16" and rng.random() < 0.5:
            of_bias = Quant("i32", np.float32(of_x.scale) * np.atleast_1d(np.asarray(of_w.scale, np.float32)))
            inputs["bias"] = (rng.integers(-9000, 9000, outer).astype(np.int32), of_bias)
        code = int(getattr(schema.Padding, padding))
        yield Node(
            "TRANSPOSE_CONV", inputs, of_y, shape,
            {"padding": padding, "stride_h": int(strides[0]), "stride_w": int(strides[1])},
            ("TransposeConvOptions", {"padding": code, "strideH": int(strides[0]), "strideW": int(strides[1])}),
            ("weights", "bias"), version=3,
        )  # fmt: skip


def test_transpose_conv() -> None:
    check(transposed_nodes(generator(13)), 1_000_000)
