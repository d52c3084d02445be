"""Dumps of onnxruntime and of ONNX's reference evaluator, by models of one node, and of three for an addition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from requant.integer.conv2d import Layout, WeightsLayout, Window, conv2d_integers
from requant.integer.matmul import matmul_integers
from tests.interop import onnx_reference_linear, onnxruntime_linear
from tests.interop.blind import draws
from tests.interop.blind.dump import Array, Dump
from tests.interop.blind.products import Operand, add_dump, conv2d_dump, matmul_dump
from tests.interop.casts import onnx_reference_cast, onnxruntime_cast
from tests.interop.casts.cast_data import DTYPES, RESULTS, WIDE, is_nan, onnx_choices
from tests.interop.integer.onnx_graphs import System, addition, node, parameters, with_onnxruntime, with_reference
from tests.interop.integer.quantized_tensors import DTYPES as INTEGERS
from tests.interop.integer.quantized_tensors import Quantized, per_axis, per_tensor
from tests.interop.onnx_nodes import column_inputs, one_product
from tests.interop.onnxruntime_products import SATURATES, exact_together
from tests.interop.onnxruntime_version import PROFILE
from tests.interop.quantized_case import Case, bounds, parameter_counts

STORAGES = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "f8E4M3FN", "f8E5M2")
PAIRS = (("u8", "i8"), ("u8", "u8"), ("i8", "i8"))
"""Of a product's operands: what onnxruntime takes."""


@dataclass(frozen=True)
class OnnxSystem:
    """A system that runs models: how it runs each kind, what it takes, and the profile that stands for it."""

    profile: str
    linear: Callable[..., Array]
    expressed: tuple[str, ...]
    column: Callable[[Any, dict[str, Array]], Array]
    graph: System
    cast: Callable[..., Array]
    cast_formats: tuple[str, ...]

    @property
    def label(self) -> dict[str, str]:
        return {"profile": self.profile}

    @property
    def saturates(self) -> bool:
        return SATURATES and self.profile == PROFILE

    def exact_together(self, a: Array, b: Array) -> tuple[Array, Array]:
        return exact_together(a, b) if self.saturates else (a, b)

    def limited(self, dump: Dump, of_a: str, of_b: str) -> Dump:
        """A dump of a product that is asked anew only with weights for which sums are exact."""
        if self.saturates and (of_a, of_b) == ("u8", "i8"):
            return replace(dump, limits=(bounds(of_a), (-64, 63), 1))
        return dump


def _column_of_onnxruntime(model: Any, inputs: dict[str, Array]) -> Array:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def _column_of_reference(model: Any, inputs: dict[str, Array]) -> Array:
    return np.asarray(ReferenceEvaluator(model).run(None, inputs)[0])


ONNXRUNTIME = OnnxSystem(
    PROFILE, onnxruntime_linear.run, ("f32", "f16"), _column_of_onnxruntime, with_onnxruntime, onnxruntime_cast.run,
    ("f16", "bf16", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU"),
)  # fmt: skip
REFERENCE = OnnxSystem(
    "onnx_reference", onnx_reference_linear.run, ("f32", "f16", "bf16"), _column_of_reference, with_reference,
    onnx_reference_cast.run, (*ONNXRUNTIME.cast_formats, "f4E2M1FN", "f6E2M3FN", "f6E3M2FN"),
)  # fmt: skip


def drawn_case(rng: np.random.Generator, system: OnnxSystem, storages: tuple[str, ...]) -> Case:
    """One scale, one for each index of an axis, or for integers one for each block along one."""
    storage, expressed = str(rng.choice(storages)), str(rng.choice(system.expressed, p=_mostly_f32(system)))
    if storage.startswith("f") or storage == "i32" or rng.random() < 0.8:
        return draws.case(rng, storage, expressed, symmetric=storage == "i32")
    shape = draws.shape(rng, rank=2)
    axis, block = int(rng.integers(2)), int(rng.choice([2, 3, 16]))
    counts = parameter_counts(shape, axis, block)
    scales, points = np.empty(counts), np.empty(counts, np.int64)
    for place in np.ndindex(counts):
        scales[place], points[place] = draws.scale(rng, -7, 3, expressed), draws.zero_point(rng, storage)
    return Case(shape, storage, expressed, scales, points, axis, block)


def _mostly_f32(system: OnnxSystem) -> list[float]:
    others = len(system.expressed) - 1
    return [0.7, *([0.3 / others] * others)]


def quantize(system: OnnxSystem, rng: np.random.Generator) -> Dump:
    of = drawn_case(rng, system, STORAGES)
    source = draws.reals(rng, of)
    options = {}
    if of.storage.startswith("f") and system is ONNXRUNTIME and rng.random() < 0.5:
        options["saturate"] = bool(rng.random() < 0.5)

    def run(reals: Array) -> Array:
        return system.linear("QuantizeLinear", of, reals, **options)

    return draws.quantize_dump(of, source, run, label=system.label, **options)


def dequantize(system: OnnxSystem, rng: np.random.Generator) -> Dump:
    of = drawn_case(rng, system, (*STORAGES, "i32"))
    source = draws.stored(rng, of)
    return draws.dequantize_dump(of, source, lambda q: system.linear("DequantizeLinear", of, q), label=system.label)


def requantize(system: OnnxSystem, rng: np.random.Generator) -> Dump:
    """By a product with a matrix of one 1."""
    storage = str(rng.choice(["i8", "u8"]))
    given = draws.case(rng, storage, per_axis=False, sizes=(int(np.exp2(rng.uniform(2, 11))),))
    wanted = draws.case(rng, storage, per_axis=False, sizes=given.shape)
    source = draws.stored(rng, given)
    pairs = [(float(each.scales), int(each.zero_points)) for each in (given, wanted)]

    def run(stored: Array) -> Array:
        return system.column(one_product(storage), column_inputs(stored, *pairs))[:, 0]

    return draws.requantize_dump(given, wanted.element, source, run, label=system.label)


def weights_side(rng: np.random.Generator, storage: str, count: int, axis: int) -> Quantized:
    """onnxruntime takes one zero point for all channels."""
    return per_axis(storage, draws.scales(rng, count), axis, np.full(count, draws.zero_point(rng, storage)))


def activations_side(rng: np.random.Generator, storage: str) -> Quantized:
    return per_tensor(storage, draws.scale(rng), draws.zero_point(rng, storage))


def output_side(rng: np.random.Generator, storage: str, sums: Array, per_sum: float) -> Quantized:
    low, high = bounds(storage)
    return per_tensor(storage, draws.output_scale(rng, sums, per_sum, (high - low) / 2), draws.zero_point(rng, storage))


def qlinear_matmul(system: OnnxSystem, rng: np.random.Generator) -> Dump:
    of_a, of_b = PAIRS[rng.integers(len(PAIRS))]
    rows, depth, columns = (1 + int(each) for each in np.exp2(rng.uniform(0, 6, 3)))
    each = rng.random() < 0.5
    a_side, b_side = activations_side(rng, of_a), weights_side(rng, of_b, columns if each else 1, 1)
    a, b = draws.numbers(rng, a_side, rows, depth), draws.numbers(rng, b_side, depth, columns)
    a, b = system.exact_together(a, b)
    sums = matmul_integers(a, b, int(a_side.zero_points[0]), b_side.zero_points)
    y_side = output_side(rng, of_a, sums, float(a_side.scales[0]) * float(b_side.scales.max()))

    def product(lhs: Operand, rhs: Operand, _: Array | None) -> Array:
        along = (rhs[0].scales.size,) if each else ()
        inputs = {
            "a": lhs[1], **parameters("a", lhs[0], ()), "b": rhs[1], **parameters("b", rhs[0], along),
            **parameters("y", y_side, ()),
        }  # fmt: skip
        return system.graph(node("QLinearMatMul", inputs, INTEGERS[of_a]), inputs)

    return system.limited(matmul_dump((a_side, a), (b_side, b), y_side, product, label=system.label), of_a, of_b)


def qlinear_conv(system: OnnxSystem, rng: np.random.Generator) -> Dump:
    """In groups too; depthwise where each has one channel."""
    of_w = str(rng.choice(["i8", "u8"]))
    groups, depth, outputs = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    if rng.random() < 0.3:
        depth = 1
    height, width = (int(size) for size in rng.integers(5, 12, 2))
    strides, dilations, pads = (tuple(rng.integers(low, high, count).tolist()) for low, high, count in _WINDOW)
    window = Window(
        layout=Layout.NCHW, weights_layout=WeightsLayout.OIHW, strides=strides, dilations=dilations, pads=pads,
        groups=groups,
    )  # fmt: skip
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    each = groups * outputs > 1 and rng.random() < 0.6
    x_side, w_side = activations_side(rng, "u8"), weights_side(rng, of_w, groups * outputs if each else 1, 0)
    x = draws.numbers(rng, x_side, 1, groups * depth, height, width)
    x, w = system.exact_together(x, draws.numbers(rng, w_side, groups * outputs, depth, 3, 2))
    sums = conv2d_integers(x, w, int(x_side.zero_points[0]), w_side.zero_points, window=window)
    y_side = output_side(rng, "u8", sums, float(x_side.scales[0]) * float(w_side.scales.max()))
    reach = 1 + int(np.abs(sums.astype(np.int64)).max()) // 2
    bias = rng.integers(-reach, reach, groups * outputs).astype(np.int32) if rng.random() < 0.7 else None

    def product(lhs: Operand, rhs: Operand, added: Array | None) -> Array:
        along = (rhs[0].scales.size,) if each else ()
        inputs = {
            "x": lhs[1], **parameters("x", lhs[0], ()), "w": rhs[1], **parameters("w", rhs[0], along),
            **parameters("y", y_side, ()), **({} if added is None else {"bias": added}),
        }  # fmt: skip
        return system.graph(node("QLinearConv", inputs, INTEGERS["u8"], **attributes), inputs)

    found = conv2d_dump((x_side, x), (w_side, w), y_side, product, window=window, bias=bias, label=system.label)
    return system.limited(found, "u8", of_w)


_WINDOW = ((1, 3, 2), (1, 3, 2), (0, 3, 4))


def add(system: OnnxSystem, rng: np.random.Generator) -> Dump:
    storage, (size,) = str(rng.choice(["i8", "u8"])), draws.shape(rng, rank=1)
    sides = [activations_side(rng, storage) for _ in range(3)]
    a, b = draws.numbers(rng, sides[0], size), draws.numbers(rng, sides[1], size)

    def total(lhs: Operand, rhs: Operand, _: Array | None) -> Array:
        return system.graph(addition([lhs[0], rhs[0], sides[2]]), {"a": lhs[1], "b": rhs[1]})

    return add_dump((sides[0], a), (sides[1], b), sides[2], total, label=system.label)


def narrow(system: OnnxSystem, rng: np.random.Generator) -> Dump:
    """A cast to at most 16 bits. NaN are left out where their bits depend on their place, or lose a sign."""
    source, target = str(rng.choice(WIDE)), str(rng.choice(system.cast_formats))
    if source == target:
        source = "f32"
    saturate, rounding = onnx_choices(target)[rng.integers(len(onnx_choices(target)))]
    data = draws.reals_to_cast(rng, source, target)
    if system is ONNXRUNTIME and (target == "f16" or source == "bf16"):
        data[is_nan(data)] = 0

    def run(reals: Array) -> Array:
        bits = reals.view(np.uint16) if source == "bf16" else reals
        return system.cast(bits, source, target, saturate, rounding).view(DTYPES[target])

    options = {} if saturate is None else {"saturate": saturate}
    label = system.label if rounding is None else {**system.label, "rounding": str(rounding)}
    return draws.cast_dump(data, source, target, run, label=label, **options)


def widen(system: OnnxSystem, rng: np.random.Generator) -> Dump:
    source, target = str(rng.choice(system.cast_formats)), str(rng.choice(["f32", "f64"]))
    codes = draws.codes_to_cast(rng, source)

    def run(stored: Array) -> Array:
        return np.asarray(system.cast(stored, source, target)).view(RESULTS[target])

    return draws.cast_dump(codes, source, target, run, label=system.label)


KINDS = (quantize, requantize, qlinear_matmul, qlinear_conv, add, dequantize, narrow, quantize, widen)


def dumps(rng: np.random.Generator, count: int, system: OnnxSystem) -> Iterator[Dump]:
    """`count` dumps of a system."""
    return draws.some(rng, count, [partial(kind, system) for kind in KINDS])
