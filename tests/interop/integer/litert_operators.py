"""FULLY_CONNECTED, BATCH_MATMUL, CONV_2D, DEPTHWISE_CONV_2D and ADD of LiteRT, each a model of one operator."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from requant.integer.conv2d import Padding, WeightsLayout, Window
from tests.interop.integer.quantized_tensors import Array, Quantized
from tests.interop.litert_models import TYPES, Operand, model_of, packed_model

Constant = tuple[tuple[int, ...], Operand, Array]

NO_ACTIVATION = int(schema.ActivationFunctionType.NONE)


def operand(side: Quantized) -> Operand:
    return Operand(side.storage, side.scales, side.zero_points, side.axis)


def bias_of(numbers: Array, x: Quantized, weights: Quantized) -> Constant:
    """A bias of int32 or int64, whose scale is that of the sums."""
    scales = (x.scales[0] * weights.scales).astype(np.float32)
    kind = Operand(f"i{8 * numbers.itemsize}", scales, np.zeros(scales.size, np.int64))
    return numbers.shape, kind, numbers


def window_of(rng: np.random.Generator, groups: int) -> Window:
    """Strides or dilations, and one of the paddings; depthwise, if in groups."""
    spread = rng.random() < 0.3
    stride = 1 if spread else int(rng.integers(1, 3))
    return Window(
        weights_layout=WeightsLayout.IHWO if groups > 1 else WeightsLayout.OHWI,
        strides=(stride, stride),
        dilations=(2, 2) if spread else (1, 1),
        padding=Padding.SAME_UPPER if rng.random() < 0.5 else Padding.VALID,
        groups=groups,
    )


def fully_connected(
    x: Quantized,
    rows: int,
    weights: tuple[Quantized, Array],
    output: Quantized,
    bias: Array | None = None,
    *,
    activation: int = NO_ACTIVATION,
    version: int = 5,
) -> bytes:
    """`weights`: [columns, depth], with scales along the first dimension."""
    side, numbers = weights
    columns, depth = numbers.shape
    inputs: list[Any] = [((rows, depth), operand(x)), (numbers.shape, operand(side), numbers)]
    options = schema.FullyConnectedOptionsT()
    options.fusedActivationFunction = activation
    if bias is not None:
        inputs.append(bias_of(bias, x, side))
        options.quantizedBiasType = TYPES[f"i{8 * bias.itemsize}"]
    return model_of(
        int(schema.BuiltinOperator.FULLY_CONNECTED),
        inputs,
        ((rows, columns), operand(output)),
        (int(schema.BuiltinOptions.FullyConnectedOptions), options),
        version=version,
    )


def blockwise_fully_connected(rows: int, weights: Array, scales: Array) -> bytes:
    """Of f32, by weights of 4 bits [columns, depth] with a scale of f16 for each block of a row."""
    columns, depth = weights.shape
    model = schema.ModelT.InitFromObj(
        schema.Model.GetRootAs(
            model_of(
                int(schema.BuiltinOperator.FULLY_CONNECTED),
                [((rows, depth), Operand("f32")), (weights.shape, Operand("i4"), weights)],
                ((rows, columns), Operand("f32")),
                (int(schema.BuiltinOptions.FullyConnectedOptions), schema.FullyConnectedOptionsT()),
                version=13,
            )
        )
    )
    tensors = model.subgraphs[0].tensors
    blocks = schema.BlockwiseQuantizationT()
    blocks.scales, blocks.zeroPoints, blocks.blockSize = len(tensors), -1, depth // scales.shape[1]
    parameters = schema.QuantizationParametersT()
    parameters.detailsType, parameters.details = int(schema.QuantizationDetails.BlockwiseQuantization), blocks
    tensors[1].quantization = parameters
    buffer, of_scales = schema.BufferT(), schema.TensorT()
    buffer.data = scales.astype(np.float16).view(np.uint8).ravel()
    of_scales.name, of_scales.shape, of_scales.type = "scales", list(scales.shape), schema.TensorType.FLOAT16
    of_scales.buffer = len(model.buffers)
    model.buffers.append(buffer)
    tensors.append(of_scales)
    return packed_model(model)


def batch_matmul(sides: tuple[Quantized, Quantized, Quantized], a: Array, b: Array) -> bytes:
    """Of [.., rows, depth] by [.., depth, columns], neither of them constant."""
    shape = (*a.shape[:-1], b.shape[-1])
    return model_of(
        int(schema.BuiltinOperator.BATCH_MATMUL),
        [(a.shape, operand(sides[0])), (b.shape, operand(sides[1]))],
        (shape, operand(sides[2])),
        (int(schema.BuiltinOptions.BatchMatMulOptions), schema.BatchMatMulOptionsT()),
        version=2 if sides[0].storage == "i8" else 3,
    )


def convolution(
    x: tuple[Quantized, tuple[int, ...]],
    weights: tuple[Quantized, Array],
    output: tuple[Quantized, tuple[int, ...]],
    bias: Array,
    window: Window,
    *,
    multiplier: int | None = None,
    activation: int = NO_ACTIVATION,
) -> bytes:
    """With weights OHWI, or of a `multiplier` the depthwise one, with weights 1HWO. Sides come with their shape."""
    depthwise = multiplier is not None
    options: Any = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
    options.padding = schema.Padding.SAME if window.padding is Padding.SAME_UPPER else schema.Padding.VALID
    options.strideH, options.strideW = window.strides
    options.dilationHFactor, options.dilationWFactor = window.dilations
    options.fusedActivationFunction = activation
    if depthwise:
        options.depthMultiplier = multiplier
    else:
        options.quantizedBiasType = TYPES[f"i{8 * bias.itemsize}"]
    side, numbers = weights
    operator = schema.BuiltinOperator.DEPTHWISE_CONV_2D if depthwise else schema.BuiltinOperator.CONV_2D
    kind = schema.BuiltinOptions.DepthwiseConv2DOptions if depthwise else schema.BuiltinOptions.Conv2DOptions
    return model_of(
        int(operator),
        [(x[1], operand(x[0])), (numbers.shape, operand(side), numbers), bias_of(bias, x[0], side)],
        (output[1], operand(output[0])),
        (int(kind), options),
        version=6 if depthwise else 7,
    )


def add(shape: tuple[int, ...], sides: list[Quantized], *, activation: int = NO_ACTIVATION) -> bytes:
    """Of two tensors of one shape; the last side is the output."""
    options = schema.AddOptionsT()
    options.potScaleInt16 = False
    options.fusedActivationFunction = activation
    inputs = [(shape, operand(side)) for side in sides[:2]]
    kind = (int(schema.BuiltinOptions.AddOptions), options)
    return model_of(int(schema.BuiltinOperator.ADD), inputs, (shape, operand(sides[2])), kind, version=2)
