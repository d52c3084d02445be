"""Block formats by name: the shared scales derived and the elements quantized in one call, and back.

Each part of the result has a type of its own: elements and scales for the MX formats and NVFP4, packed blocks for GGUF.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.blocks.blocking import block_count
from requant.convert.blocks.gguf import GGUF_FORMATS, GgufTensor, dequantize_gguf, quantize_gguf
from requant.convert.blocks.mx import BLOCK as MX_BLOCK
from requant.convert.blocks.mx import MX_ELEMENTS, MxRule, MxTensor, dequantize_mx, mx_element, quantize_mx
from requant.convert.blocks.nvfp4 import BLOCK as NVFP4_BLOCK
from requant.convert.blocks.nvfp4 import GlobalScale, Nvfp4Rule, Nvfp4Tensor, dequantize_nvfp4, quantize_nvfp4
from requant.errors import UnsupportedError
from requant.formats.elements import FLOATS, Element, IntegerElement, Signedness
from requant.mlir.types import TensorType

Array = NDArray[Any]


class BlockFormat(StrEnum):
    """Block formats, by their established names."""

    MXFP8_E4M3 = "mxfp8_e4m3"
    MXFP8_E5M2 = "mxfp8_e5m2"
    MXFP6_E2M3 = "mxfp6_e2m3"
    MXFP6_E3M2 = "mxfp6_e3m2"
    MXFP4_E2M1 = "mxfp4_e2m1"
    MXINT8 = "mxint8"
    NVFP4 = "nvfp4"
    Q8_0 = "Q8_0"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q5_0 = "Q5_0"
    Q5_1 = "Q5_1"


class BlockRule(StrEnum):
    """Rules for the scales of all formats."""

    OCP = MxRule.OCP
    """The default of all formats. For NVFP4 and GGUF it stands for the format's own arithmetic."""

    TOSA = MxRule.TOSA
    FLOOR = MxRule.FLOOR
    CEIL = MxRule.CEIL
    EVEN = MxRule.EVEN
    RCEIL = MxRule.RCEIL
    TORCHAO = Nvfp4Rule.TORCHAO
    COMPRESSED_TENSORS = Nvfp4Rule.COMPRESSED_TENSORS
    MODEL_OPTIMIZER = Nvfp4Rule.MODEL_OPTIMIZER
    FOUROVERSIX = Nvfp4Rule.FOUROVERSIX
    FOUROVERSIX_MAE = Nvfp4Rule.FOUROVERSIX_MAE
    FOUROVERSIX_ABS_MAX = Nvfp4Rule.FOUROVERSIX_ABS_MAX
    TRANSFORMER_ENGINE = Nvfp4Rule.TRANSFORMER_ENGINE


@dataclass(frozen=True, slots=True)
class Part:
    """A flat array and the type of the tensor that it is."""

    type: TensorType
    data: Array


@dataclass(frozen=True, slots=True)
class BlockTensor:
    """A tensor in a block format. GGUF has `blocks`; the others `elements` and `scales`, NVFP4 a global scale too."""

    format: BlockFormat
    elements: Part | None = None
    scales: Part | None = None
    blocks: Part | None = None
    global_scale: float | None = None

    @property
    def parts(self) -> dict[str, Part]:
        """The parts that the format has, by name."""
        named = {"elements": self.elements, "scales": self.scales, "blocks": self.blocks}
        return {name: part for name, part in named.items() if part is not None}


def element_types(format_: BlockFormat) -> tuple[Element, Element]:
    """Return the types of elements and scales of an MX format or of NVFP4."""
    if format_ is BlockFormat.NVFP4:
        return FLOATS["f4E2M1FN"], FLOATS["f8E4M3FN"]
    name = mx_element(format_)
    return FLOATS[name] if name else IntegerElement(8), FLOATS["f8E8M0FNU"]


def _scaled(format_: BlockFormat, shape: tuple[int, ...], elements: Array, scales: Array, block: int) -> BlockTensor:
    element, scale = element_types(format_)
    stored = elements.view(np.int8) if isinstance(element, IntegerElement) else elements
    return BlockTensor(
        format_,
        elements=Part(TensorType(shape, element), stored),
        scales=Part(TensorType((*shape[:-1], shape[-1] // block), scale), scales),
    )


def _check_rule(format_: BlockFormat, rule: BlockRule) -> None:
    others = MxRule if format_ in MX_ELEMENTS else Nvfp4Rule if format_ is BlockFormat.NVFP4 else ()
    known = dict.fromkeys(("ocp", *others))
    if rule not in known:
        raise UnsupportedError(f"{format_} has no rule {rule}, but {', '.join(known)}", pointer="/rule")


def quantize_blocks(
    values: Array,
    format_: BlockFormat,
    *,
    rule: BlockRule = BlockRule.OCP,
    global_scale: float | GlobalScale = GlobalScale.DERIVED,
) -> BlockTensor:
    """Quantize an f32 tensor. `global_scale` is for NVFP4.

    Raise UnsupportedError for a rule that the format does not have, and what `requant.convert.blocks.mx`,
    `requant.convert.blocks.nvfp4` and `requant.convert.blocks.gguf` raise.
    """
    _check_rule(format_, rule)
    if format_ in GGUF_FORMATS:
        packed = quantize_gguf(values, format_)
        shape = (*values.shape[:-1], values.shape[-1] // MX_BLOCK, GGUF_FORMATS[format_].block_bytes)
        return BlockTensor(format_, blocks=Part(TensorType(shape, IntegerElement(8, Signedness.UNSIGNED)), packed.data))
    if format_ is BlockFormat.NVFP4:
        two_level = quantize_nvfp4(values, global_scale, None if rule is BlockRule.OCP else Nvfp4Rule(rule))
        tensor = _scaled(format_, values.shape, two_level.elements, two_level.scales, NVFP4_BLOCK)
        return BlockTensor(format_, tensor.elements, tensor.scales, global_scale=two_level.global_scale)
    micro = quantize_mx(values, format_, MxRule(rule))
    return _scaled(format_, values.shape, micro.elements, micro.scales, MX_BLOCK)


def expected_parts(format_: BlockFormat, shape: tuple[int, ...]) -> dict[str, TensorType]:
    """Return the types that the parts of a tensor of `shape` have. Raise TypeFitError if blocks do not divide it."""
    if format_ in GGUF_FORMATS:
        count = block_count(shape, MX_BLOCK, format_) // max(prod(shape[:-1]), 1)
        packed = (*shape[:-1], count, GGUF_FORMATS[format_].block_bytes)
        return {"blocks": TensorType(packed, IntegerElement(8, Signedness.UNSIGNED))}
    block = NVFP4_BLOCK if format_ is BlockFormat.NVFP4 else MX_BLOCK
    block_count(shape, block, format_)
    element, scale = element_types(format_)
    return {
        "elements": TensorType(shape, element),
        "scales": TensorType((*shape[:-1], shape[-1] // block), scale),
    }


def dequantize_blocks(
    format_: BlockFormat,
    shape: tuple[int, ...],
    parts: dict[str, Array],
    global_scale: float | None,
    rule: Nvfp4Rule | None = None,
) -> Array:
    """Return the f32 values of a tensor of `shape`. `parts`: flat arrays by name, as `expected_parts` lists them.

    Raise UnsupportedError for a global scale or a rule where the format has none, and what the formats' own modules
    raise.
    """
    if rule is not None and format_ is not BlockFormat.NVFP4:
        raise UnsupportedError(f"{format_} is dequantized alike by all rules", pointer="/rule")
    if global_scale is not None and format_ is not BlockFormat.NVFP4:
        raise UnsupportedError(f"{format_} has no global scale")
    if format_ in GGUF_FORMATS:
        return dequantize_gguf(GgufTensor(format_, shape, parts["blocks"]))
    elements = parts["elements"].view(np.uint8)
    if format_ is BlockFormat.NVFP4:
        return dequantize_nvfp4(Nvfp4Tensor(shape, global_scale, parts["scales"], elements), rule)
    return dequantize_mx(MxTensor(format_, shape, parts["scales"], elements))
