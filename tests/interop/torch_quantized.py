"""Quantized tensors in torch: eager ones, and the operators of quantized_decomposed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from requant.integer.conv2d import Window
from tests.interop.integer.quantized_tensors import Quantized
from tests.interop.quantized_case import NUMPY, Case, bounds

Array = NDArray[Any]

EAGER = {"i8": "qint8", "u8": "quint8", "i32": "qint32"}


def as_tensor(array: Array) -> Any:
    if array.dtype == NUMPY["bf16"]:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))


def as_array(tensor: Any) -> Array:
    if tensor.dtype == torch.bfloat16:
        return np.array(tensor.contiguous().view(torch.uint16).numpy()).view(NUMPY["bf16"])
    return np.array(tensor.contiguous().numpy())


def eager_quantized(case: Case, source: Array) -> Any:
    kind = getattr(torch, EAGER[case.storage])
    if case.axis is None:
        return torch.quantize_per_tensor(as_tensor(source), float(case.scales), int(case.zero_points), kind)
    scales, points = torch.from_numpy(case.scales), torch.from_numpy(case.zero_points)
    return torch.quantize_per_channel(as_tensor(source), scales, points, case.axis, kind)


def eager_dequantized(case: Case, source: Array) -> Array:
    if case.axis is None:
        made = torch._make_per_tensor_quantized_tensor(as_tensor(source), float(case.scales), int(case.zero_points))
    else:
        scales, points = torch.from_numpy(case.scales), torch.from_numpy(case.zero_points)
        made = torch._make_per_channel_quantized_tensor(as_tensor(source), scales, points, case.axis)
    return as_array(made.dequantize())


def decomposed(case: Case, source: Array, operation: str) -> Array:
    """Run quantized_decomposed.quantize_... or dequantize_..., with 4 bits as bounds within 8."""
    import_module("torch.ao.quantization.fx._decomposed")
    operators = torch.ops.quantized_decomposed
    kind = as_tensor(np.empty(0, case.dtype)).dtype
    real = as_tensor(np.empty(0, NUMPY[case.expressed])).dtype
    lowest, highest = bounds(case.storage)
    x = as_tensor(source)
    if case.axis is None:
        operator = getattr(operators, f"{operation}_per_tensor")
        further = {"out_dtype": real} if operation == "dequantize" else {}
        return as_array(operator(x, float(case.scales), int(case.zero_points), lowest, highest, kind, **further))
    scales, points = (
        torch.from_numpy(case.scales.astype(np.float32)),
        torch.from_numpy(case.zero_points.astype(np.int32)),
    )
    if case.block is None:
        operator = getattr(operators, f"{operation}_per_channel")
        further = {"out_dtype": real} if operation == "dequantize" else {}
        return as_array(operator(x, scales, points, case.axis, lowest, highest, kind, **further))
    operator = getattr(operators, f"{operation}_per_channel_group")
    trailing = [real] if operation == "dequantize" else []
    return as_array(operator(x, scales, points, lowest, highest, kind, case.block, *trailing))


def activations(data: Array, side: Quantized) -> Any:
    scale, point = float(side.scales[0]), int(side.zero_points[0])
    return torch._make_per_tensor_quantized_tensor(torch.from_numpy(data), scale, point)


def weights(data: Array, side: Quantized) -> Any:
    if side.scales.size == 1:
        return activations(data, side)
    scales, points = torch.from_numpy(side.scales.astype(np.float64)), torch.from_numpy(side.zero_points)
    return torch._make_per_channel_quantized_tensor(torch.from_numpy(data), scales, points, 0)


def linear(
    lhs: tuple[Quantized, Array], rhs: tuple[Quantized, Array], output: Quantized, *, relu: bool = False
) -> Array:
    """The quantized linear; weights are [columns, depth]."""
    packed = torch.ops.quantized.linear_prepack(weights(rhs[1], rhs[0]), None)
    operator = torch.ops.quantized.linear_relu if relu else torch.ops.quantized.linear
    found = operator(activations(lhs[1], lhs[0]), packed, float(output.scales[0]), int(output.zero_points[0]))
    return np.asarray(found.int_repr().numpy())


def convolution(
    lhs: tuple[Quantized, Array], rhs: tuple[Quantized, Array], output: Quantized, window: Window,
    *, relu: bool = False,
) -> Array:  # fmt: skip
    """The quantized conv2d of NCHW by OIHW, with the same padding at both ends."""
    padding = list(window.pads[:2])
    packed = torch.ops.quantized.conv2d_prepack(
        weights(rhs[1], rhs[0]), None, list(window.strides), padding, list(window.dilations), window.groups
    )
    operator = torch.ops.quantized.conv2d_relu if relu else torch.ops.quantized.conv2d
    found = operator(activations(lhs[1], lhs[0]), packed, float(output.scales[0]), int(output.zero_points[0]))
    return np.asarray(found.int_repr().contiguous().numpy())


def added(sides: list[Quantized], a: Array, b: Array) -> Array:
    """dequantize_per_tensor of both, add, quantize_per_tensor."""
    import_module("torch.ao.quantization.fx._decomposed")
    operators = torch.ops.quantized_decomposed
    limits = np.iinfo(a.dtype)
    dtype = torch.from_numpy(a).dtype
    parameters = [(float(side.scales[0]), int(side.zero_points[0]), limits.min, limits.max, dtype) for side in sides]
    reals = [
        operators.dequantize_per_tensor(torch.from_numpy(array), *given)
        for array, given in zip((a, b), parameters, strict=False)
    ]
    found: Array = operators.quantize_per_tensor(torch.add(*reals), *parameters[2]).numpy()
    return found
