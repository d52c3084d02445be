"""What the block routes read and answer: one flat object for all formats, with the parts that a format has."""

from __future__ import annotations

from pydantic import Field

from core.blocks.block_tensor import BlockFormat
from core.blocks.mx import MxRule
from service.http.models import ABSENT, ReplyModel, RequestModel
from service.json_api.schemas.tensors import OutputTensor, Tensor

_ELEMENTS = "Codes, one to a byte; mxint8: integers, 64ths of the scale. Absent for GGUF."
_SCALES = "One scale for each block of the last axis: f8E8M0FNU, or f8E4M3FN for nvfp4. Absent for GGUF."
_BLOCKS = "GGUF only: the blocks as a GGUF file holds them, bytes along the last axis."
_GLOBAL = "nvfp4 only: decimal text of the second level of scale."


class QuantizeBlocksRequest(RequestModel):
    """A tensor of real numbers (f32, f16 or bf16) and a block format."""

    input: Tensor
    format: BlockFormat = Field(strict=False)
    rule: MxRule = Field(default=MxRule.OCP, strict=False, description="How the MX formats choose the shared exponent.")
    global_scale: str = Field(
        default="derived",
        description="For nvfp4: derived (from the largest magnitude), absent, or a number as text.",
        max_length=128,
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
    global_scale: str = Field(default="", description=f"{_GLOBAL} Absent: one level of scales.", max_length=128)


class DequantizeBlocksReply(ReplyModel):
    """The real numbers that a tensor in a block format stands for."""

    output: OutputTensor
