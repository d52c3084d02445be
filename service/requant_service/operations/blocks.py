"""Quantization to block formats and back: which types are taken, and the parts that a format has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.blocks.block_tensor import (
    BlockFormat,
    BlockTensor,
    dequantize_blocks,
    expected_parts,
    quantize_blocks,
)
from requant.convert.blocks.mx import MxRule
from requant.convert.blocks.nvfp4 import GlobalScale
from requant.errors import UnsupportedError
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir.types import TensorType
from requant.plan.compute_dtype import widen
from requant.plan.operands import float_element, static_shape
from requant.schemes.scheme import parse_factor

Array = NDArray[Any]


def read_global_scale(text: str) -> float | GlobalScale:
    """Return where NVFP4's second level of scale comes from, or the number that the text is. Raise ParameterError."""
    return GlobalScale(text) if text in tuple(GlobalScale) else parse_factor(text)


def real_element(tensor: TensorType) -> FloatElement:
    """Return the element type of real numbers. Raise TypeFitError or UnsupportedError."""
    static_shape(tensor)
    element = float_element(tensor, "input")
    if element.name == "f64":
        raise UnsupportedError("the input has elements of f64; block formats are made from f32, f16 and bf16")
    return element


def quantize(
    source: Array, tensor: TensorType, format_: BlockFormat, rule: MxRule, global_scale: float | GlobalScale
) -> BlockTensor:
    """Quantize the flat elements of a tensor of real numbers (`requant.convert.blocks.block_tensor`)."""
    values = widen(source, real_element(tensor)).reshape(static_shape(tensor))
    return quantize_blocks(values, format_, rule=rule, global_scale=global_scale)


@dataclass(frozen=True, slots=True)
class Dequantization:
    """A tensor of f32 that is made from the parts of a block format. `parts`: the type that each of them has."""

    format: BlockFormat
    output: TensorType
    parts: dict[str, TensorType]

    @classmethod
    def to(cls, output: TensorType, format_: BlockFormat) -> Dequantization:
        """Raise UnsupportedError unless the output is f32, TypeFitError if blocks do not divide it."""
        shape = static_shape(output)
        if output.element != FLOATS["f32"]:
            raise UnsupportedError("blocks are dequantized to f32")
        return cls(format_, output, expected_parts(format_, shape))

    def dtype(self, part: str) -> np.dtype[Any]:
        """Return the dtype that the elements of a part are kept in."""
        element = self.parts[part].element
        assert isinstance(element, (FloatElement, IntegerElement))
        return element.tensor_dtype

    def run(self, parts: dict[str, Array], global_scale: float | None) -> Array:
        """Return the flat f32 numbers. See `requant.convert.blocks.block_tensor.dequantize_blocks`."""
        return dequantize_blocks(self.format, static_shape(self.output), parts, global_scale).reshape(-1)
