"""Dumps of products and additions: what all systems' have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from requant.formats.elements import IntegerElement
from requant.integer.conv2d import Layout, Padding, Window
from requant.mlir import parse_type
from requant.mlir.types import TensorType, UniformPerAxisType, UniformType
from tests.interop.blind.dump import Array, Arrays, Dump, Types, dumped, tensor_text
from tests.interop.integer.quantized_tensors import DTYPES, Quantized

Operand = tuple[Quantized, Array]
"""An operand's type and its stored numbers."""
Product = Callable[[Operand, Operand, Array | None], Array]
"""A system's product or addition of two operands, and a bias if there is one."""


def text(operand: Operand) -> str:
    side, numbers = operand
    return tensor_text(numbers.shape, side.text)


def side_of(type_: str) -> Quantized:
    """The side that the type of a tensor states."""
    parsed = parse_type(type_)
    assert isinstance(parsed, TensorType)
    element = parsed.element
    assert isinstance(element, UniformType | UniformPerAxisType)
    axis = element.axis if isinstance(element, UniformPerAxisType) else 0
    storage = element.storage
    assert isinstance(storage.element, IntegerElement)
    name = f"{'i' if storage.signed else 'u'}{storage.element.width}"
    return Quantized(name, np.array(element.scales, np.float32), np.array(element.zero_points), axis)


def _dump(
    operation: str, operands: dict[str, Operand], output: Quantized, options: dict[str, Any], run: Product,
    bias: Array | None, label: dict[str, str],
) -> Dump:  # fmt: skip
    first, second = operands

    def answer(arrays: Arrays, types: Types) -> dict[str, Array]:
        lhs, rhs = ((side_of(types[name]), arrays[name]) for name in (first, second))
        return {"output": run(lhs, rhs, arrays.get("bias"))}

    arrays = {name: numbers for name, (_, numbers) in operands.items()}
    types = {name: text(each) for name, each in operands.items()}
    if bias is not None:
        arrays["bias"], types["bias"] = bias, tensor_text(bias.shape, f"i{8 * bias.itemsize}")
    given = {"output_type": output.text, **options}
    return dumped(operation, arrays, types, given, answer, label=label)


def matmul_dump(
    lhs: Operand, rhs: Operand, output: Quantized, run: Product, *, bias: Array | None = None, label: dict[str, str]
) -> Dump:
    return _dump("matmul", {"lhs": lhs, "rhs": rhs}, output, {}, run, bias, label)


def conv2d_dump(
    x: Operand, weights: Operand, output: Quantized, run: Product, *, window: Window, bias: Array | None = None,
    label: dict[str, str],
) -> Dump:  # fmt: skip
    options: dict[str, Any] = {
        "weights_layout": str(window.weights_layout),
        "strides": window.strides,
        "dilations": window.dilations,
        "groups": window.groups,
    }
    if window.layout is not Layout.NHWC:
        options["layout"] = str(window.layout)
    if window.padding is not Padding.EXPLICIT:
        options["padding"] = str(window.padding)
    elif any(window.pads):
        options["pads"] = window.pads
    return _dump("conv2d", {"input": x, "weights": weights}, output, options, run, bias, label)


def add_dump(lhs: Operand, rhs: Operand, output: Quantized, run: Product, *, label: dict[str, str]) -> Dump:
    return _dump("add", {"lhs": lhs, "rhs": rhs}, output, {}, run, None, label)


def rectified(rng: np.random.Generator, output: Quantized, *, limited: bool) -> tuple[Quantized, str]:
    """The output with the bounds of a fused activation, and its name: in half of the cases none.

    `limited`: ReLU6 and ReLU between -1 and 1 too. Both bounds lie apart, and no end of the activation on a tie, which
    systems round in different ways.
    """
    limits = np.iinfo(DTYPES[output.storage])
    of, zero = float(output.scales[0]), int(output.zero_points[0])
    name = str(rng.choice(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"] if limited else ["NONE", "RELU"]))
    low, high = {"NONE": (-np.inf, np.inf), "RELU": (0, np.inf), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}[name]
    ends = np.array([low, high]) / of
    lowest, highest = (int(each) for each in np.clip(np.rint(np.clip(ends, -1e9, 1e9)) + zero, limits.min, limits.max))
    tied = np.isfinite(ends).all() and bool((np.abs(ends - np.floor(ends) - 0.5) < 1e-4).any())
    if name == "NONE" or lowest >= highest or tied or rng.random() < 0.3:
        return output, "NONE"
    whole = (lowest, highest) == (limits.min, limits.max)
    return (output if whole else replace(output, bounds=(lowest, highest))), name
