"""What the block routes read and answer: one flat object for all formats, with the parts that a format has."""

from __future__ import annotations

from pydantic import Field

from requant.convert.blocks.block_tensor import BlockFormat
from requant.convert.blocks.mx import MxRule
from requant_service.http.models import ABSENT, NumberOrText, ReplyModel, RequestModel
from requant_service.json_api.schemas.tensors import OutputTensor, Tensor

_ELEMENTS = "Codes, one per byte; for mxint8 integers in units of 1/64 of the scale. Absent for GGUF."
_SCALES = "One scale per block along the last axis: f8E8M0FNU, or f8E4M3FN for nvfp4. Absent for GGUF."
_BLOCKS = "GGUF only: the blocks as a GGUF file holds them, bytes along the last axis."
_GLOBAL = "nvfp4 only: the tensor-level scale, as decimal text."


class QuantizeBlocksRequest(RequestModel):
    """A tensor of real numbers (f32, f16 or bf16) and a block format."""

    input: Tensor
    format: BlockFormat = Field(strict=False)
    rule: MxRule = Field(default=MxRule.OCP, strict=False, description="MX formats: the rule for the shared exponent.")
    global_scale: NumberOrText = Field(
        default="derived",
        description="nvfp4 only: `derived` (the default: from the largest magnitude), `absent`, or a number, also as "
        "text. It is read as the nearest binary64, which is rounded to f32.",
    )


class BlockParts(ReplyModel):
    """A tensor in a block format."""

    format: BlockFormat
    elements: OutputTensor = Field(default=ABSENT, description=_ELEMENTS)
    scales: OutputTensor = Field(default=ABSENT, description=_SCALES)
    blocks: OutputTensor = Field(default=ABSENT, description=_BLOCKS)
    global_scale: str = Field(default="", description=_GLOBAL)


class DequantizeBlocksRequest(RequestModel):
    """A tensor in a block format: elements and scales, or for GGUF the type of the result and its blocks."""

    format: BlockFormat = Field(strict=False)
    output_type: str = Field(description="The type of the result, such as tensor<4x64xf32>.")
    elements: Tensor = Field(default=ABSENT, description=_ELEMENTS)
    scales: Tensor = Field(default=ABSENT, description=_SCALES)
    blocks: Tensor = Field(default=ABSENT, description=_BLOCKS)
    global_scale: NumberOrText = Field(
        default="", description="nvfp4 only: the tensor-level scale, a number or its text. Default: block scales only."
    )


class DequantizeBlocksReply(ReplyModel):
    """The dequantized tensor."""

    output: OutputTensor
