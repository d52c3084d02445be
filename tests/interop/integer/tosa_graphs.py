"""MATMUL, CONV2D, DEPTHWISE_CONV2D and ADD with their RESCALEs, each one graph for TOSA's reference model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tosa_serializer as tosa

from tests.interop.integer.quantized_tensors import Array
from tests.interop.tosa_model import TYPES, Verdict, add_rescale, constant, run
from tests.oracles.tosa import Rescale

_ACCUMULATORS = {"i32": tosa.DType.INT32, "i48": tosa.DType.INT48}


@dataclass(frozen=True, kw_only=True)
class Window:
    """Attributes of a convolution. `pads` are top, bottom, left and right."""

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    depthwise: bool = False


def _element(data: Array) -> str:
    return f"i{data.dtype.itemsize * 8}"


def matmul(a: Array, b: Array, zeros: tuple[int, int], rescale: Rescale) -> tuple[Verdict, Array | None]:
    """MATMUL of [N, H, C] by [N, C, W], and RESCALE of its accumulators, whose shape and type `rescale` has."""
    graph = tosa.TosaSerializer()
    names = [graph.addPlaceholder(list(each.shape), TYPES[_element(each)]).name for each in (a, b)]
    names += [constant(graph, _element(each), [zero]) for each, zero in zip((a, b), zeros, strict=True)]
    attributes = tosa.TosaSerializerAttribute()
    attributes.MatMulAttribute()
    sums = graph.addIntermediate(list(rescale.shape), TYPES[rescale.in_t])
    graph.addOperator(tosa.Op.MATMUL, names, [sums.name], attributes)
    output = graph.addOutput(list(rescale.shape), TYPES[rescale.out_t])
    add_rescale(graph, rescale, sums.name, output.name)
    return run(graph, [a, b])


def conv2d(
    x: Array, weights: Array, bias: Array, zeros: tuple[int, int], window: Window, rescale: Rescale
) -> tuple[Verdict, Array | None]:
    """CONV2D with weights OHWI, or DEPTHWISE_CONV2D with weights HWCM, and RESCALE of the accumulators."""
    graph = tosa.TosaSerializer()
    names = [graph.addPlaceholder(list(each.shape), TYPES[_element(each)]).name for each in (x, weights)]
    names.append(constant(graph, rescale.in_t, bias))
    names += [constant(graph, _element(each), [zero]) for each, zero in zip((x, weights), zeros, strict=True)]
    attributes = tosa.TosaSerializerAttribute()
    operator = tosa.Op.DEPTHWISE_CONV2D if window.depthwise else tosa.Op.CONV2D
    make = attributes.DepthwiseConv2dAttribute if window.depthwise else attributes.Conv2dAttribute
    make(list(window.pads), list(window.strides), list(window.dilations), False, _ACCUMULATORS[rescale.in_t])
    sums = graph.addIntermediate(list(rescale.shape), TYPES[rescale.in_t])
    graph.addOperator(operator, names, [sums.name], attributes)
    output = graph.addOutput(list(rescale.shape), TYPES[rescale.out_t])
    add_rescale(graph, rescale, sums.name, output.name)
    return run(graph, [x, weights])


def add(a: Array, b: Array, sides: tuple[Rescale, Rescale], last: Rescale) -> tuple[Verdict, Array | None]:
    """A RESCALE of each side to i32, ADD, which broadcasts, and RESCALE of the sum."""
    graph = tosa.TosaSerializer()
    scaled = []
    for data, rescale in zip((a, b), sides, strict=True):
        given = graph.addPlaceholder(list(data.shape), TYPES[_element(data)])
        wide = graph.addIntermediate(list(data.shape), TYPES["i32"])
        add_rescale(graph, rescale, given.name, wide.name)
        scaled.append(wide.name)
    attributes = tosa.TosaSerializerAttribute()
    attributes.AddAttribute()
    shape = list(np.broadcast_shapes(a.shape, b.shape))
    total = graph.addIntermediate(shape, TYPES["i32"])
    graph.addOperator(tosa.Op.ADD, scaled, [total.name], attributes)
    output = graph.addOutput(shape, TYPES[last.out_t])
    add_rescale(graph, last, total.name, output.name)
    return run(graph, [a, b])


def output_size(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int | None:
    """Of a convolution, in one dimension. None where it is not exact, which TOSA refuses, or there is none."""
    steps, rest = divmod(size - 1 + sum(pads) - (kernel - 1) * dilation, stride)
    return None if rest or steps < 0 else steps + 1
