"""A type as one flat object, for clients whose language has no unions.

Scalars that a kind does not have are absent, lists that it does not have are empty. Real numbers are decimal texts that
read back to the same binary64, because JSON cannot promise that in every language; scales and zero points come as bit
patterns besides.
"""

from __future__ import annotations

from pydantic import Field

from requant_service.http.models import Int32, Int64, ReplyModel, RequestModel
from requant_service.operations.mlir.type_description import TypeCheckName, TypeKind


class ParseTypeRequest(RequestModel):
    """A type text to parse."""

    text: str = Field(description="MLIR text.", examples=["tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 0.125}>>"])


class TypeCheck(ReplyModel):
    """One check and its result."""

    name: TypeCheckName
    passes: bool
    reason: str = Field(default="", description="Why the check failed. Only if it failed.")


class ParsedType(ReplyModel):
    """A parsed type. For a tensor, the fields after `encoding` describe its element type."""

    canonical: str = Field(description="The type as MLIR prints it.")
    kind: TypeKind
    ranked: bool = Field(default=False, description="Whether the rank is known. Tensors only.")
    shape: list[Int64] = Field(
        description="Dimensions of a tensor; -1 is dynamic. JSON readers that use binary64 round values beyond "
        "2^53; canonical is always exact."
    )
    encoding: str = Field(default="", description="The encoding attribute of a tensor.")
    element: str = Field(default="", description="The element type of a tensor, in canonical text.")
    element_kind: TypeKind = Field(default=TypeKind.INDEX, description="The kind of a tensor's element type.")
    bits: Int32 = Field(default=0, description="Bits per element, or per stored element.")
    signed: bool = Field(default=False, description="Whether elements, or stored elements, are signed.")
    storage: str = Field(default="", description="The storage type as spelled: i8, u8, si8, ui8, ...")
    storage_min: Int64 = Field(default=0, description="Lower storage bound.")
    storage_max: Int64 = Field(default=0, description="Upper storage bound.")
    expressed: str = Field(default="", description="The float type that stored values represent.")
    axis: Int32 = Field(default=0, description="The quantized axis of uniform_per_axis.")
    block_axes: list[Int32] = Field(description="uniform_sub_channel: the axes divided into blocks.")
    block_sizes: list[Int64] = Field(description="The block size of each of block_axes.")
    scale_shape: list[Int64] = Field(description="The shape of the scales of uniform_sub_channel.")
    scales: list[str] = Field(description="One scale, or one per channel or block.")
    scale_bits: list[str] = Field(description="The scales as binary64 bit patterns, 0x and 16 digits.")
    zero_points: list[Int64] = Field(
        description="One zero point per scale. JSON readers that use binary64 round values beyond 2^53; "
        "zero_point_bits is always exact."
    )
    zero_point_bits: list[str] = Field(
        description="The zero points as 64-bit two's complement patterns, 0x and 16 digits."
    )
    range_min: str = Field(default="", description="Lower end of a calibrated range.")
    range_max: str = Field(default="", description="Upper end of a calibrated range.")
    value: str = Field(default="", description="The type of a quantile's table entries.")
    table: list[str] = Field(description="The table of a quantile.")
    members: list[str] = Field(description="The member types of a tuple, in canonical text.")
    checks: list[TypeCheck] = Field(
        description="Whether the type is valid MLIR (always, since an invalid text gets 422), and whether "
        "quant.qcast, quant.dcast, quant.scast and StableHLO accept it.",
    )
