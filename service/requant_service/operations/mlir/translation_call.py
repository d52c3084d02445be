"""A call of the translation of types, and its answer: each system's operands, by the same names both ways."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from requant_service.http.models import ABSENT, Int32, Int64, Numbers, ReplyModel, RequestModel, component
from requant_service.runtime.settings import MAX_ENTRIES

_Whole = Annotated[Int64, Field(ge=-(2**63), le=2**63 - 1)]
_Size = Annotated[Int64, Field(ge=0, le=2**63 - 1)]
_Block = Annotated[Int64, Field(ge=1, le=2**63 - 1)]
Integers = Annotated[list[_Whole], FailFast(), Field(max_length=MAX_ENTRIES)]
Shape = Annotated[list[_Size], FailFast(), Field(max_length=64)]
Blocks = Annotated[list[_Block], FailFast(), Field(max_length=64)]
_AXIS = "The dimension that the scales go along; a negative one counts from the end, and needs the shape."


class TranslationSystem(StrEnum):
    """The systems whose operands a type is translated to. Each has a file of its own in `requant.translation`."""

    MLIR = "mlir"
    STABLEHLO = "stablehlo"
    ONNX = "onnx"
    ONEDNN = "onednn"
    LITERT = "litert"
    TORCH = "torch"
    TOSA = "tosa"


class OnnxParameters(RequestModel):
    """x_scale and x_zero_point of DequantizeLinear, which are y_scale and y_zero_point of QuantizeLinear."""

    x_type: Annotated[str, component("OnnxStoredType", "The element type of x and its zero points, as MLIR writes it.")]
    scale_type: Annotated[str, component("OnnxRealType", "The element type of scales. Default: f32.")] = "f32"
    scale_shape: Shape = Field(default=[], description="The shape of scales and zero points. Absent: rank 0.")
    x_scale: Numbers = Field(description="Scales in row-major order.")
    x_zero_point: Integers = Field(default=ABSENT, description="One zero point per scale. Default: zeros.")
    axis: Int32 = Field(default=1, ge=-64, le=63, description=f"{_AXIS} Default: 1.")
    block_size: Int64 = Field(default=0, ge=0, le=2**63 - 1, description="Elements of a block along the axis.")
    output_dtype: Int32 = Field(
        default=0, ge=0, le=255, description="The type of y by its number in TensorProto. Absent: that of scales."
    )
    opset: Int32 = Field(default=ABSENT, ge=0, le=2**31 - 1, description="An opset that must support all operands.")


class OnednnParameters(RequestModel):
    """Attributes and tensors of oneDNN Graph's quantizing operators."""

    data_type: Annotated[str, component("OnednnStoredType", "The data type of stored numbers, as MLIR writes it.")]
    scales_type: Annotated[str, component("OnednnRealType", "The data type of scales. Default: f32.")] = "f32"
    qtype: Annotated[str, component("OnednnGroupedQtype", "Default: per_tensor.")] = "per_tensor"
    axis: Int32 = Field(default=1, ge=-64, le=63, description=f"{_AXIS} Default: 1.")
    group_shape: Blocks = Field(default=ABSENT, description="per_group: the size of a group along each dimension.")
    scales_shape: Shape = Field(default=ABSENT, description="per_group: how many groups along each dimension.")
    scales: Numbers = Field(description="Scales in row-major order.")
    zps: Integers = Field(default=ABSENT, description="One zero point per scale; not allowed with f8. Default: zeros.")


class LitertParameters(RequestModel):
    """QuantizationParameters of a LiteRT tensor."""

    type: Annotated[str, component("LitertTensorType", "The tensor's type.")]
    scale: Numbers
    zero_point: Integers = Field(default=ABSENT, description="One zero point per scale. Default: zeros.")
    quantized_dimension: Int32 = Field(
        default=0, ge=0, le=63, description="The dimension that several scales go along."
    )


class TorchParameters(RequestModel):
    """Parameters of a torch tensor: of quantized_decomposed, and of an eager quantized tensor."""

    qscheme: Annotated[str, component("TorchQscheme", "Default: per_tensor_affine.")] = "per_tensor_affine"
    dtype: Annotated[str, component("TorchStoredType", "The stored dtype of quantized_decomposed.")] = ABSENT
    quantized_dtype: Annotated[str, component("TorchQuantizedType", "The dtype of an eager quantized tensor.")] = ABSENT
    quant_min: Int64 = Field(default=ABSENT, ge=-(2**63), le=2**63 - 1, description="Absent: the lowest of dtype.")
    quant_max: Int64 = Field(default=ABSENT, ge=-(2**63), le=2**63 - 1, description="Absent: the highest of dtype.")
    scale: Numbers
    zero_point: Integers = Field(default=ABSENT, description="One zero point per scale. Default: zeros.")
    axis: Int32 = Field(default=0, ge=-64, le=63, description=f"{_AXIS} per_channel_affine only.")


class TosaParameters(RequestModel):
    """Zero points, and multipliers and shifts of a RESCALE. Zero points are numbers, not bit patterns."""

    input: str = Field(default=ABSENT, description="Only in requests: the MLIR type that is rescaled.")
    input_type: Annotated[str, component("TosaStoredType", "The element type of the input.")] = ABSENT
    input_unsigned: bool = Field(default=False, description="Whether its bits are unsigned numbers.")
    input_zp: Int64 = Field(default=0, ge=-(2**63), le=2**63 - 1)
    output_type: Annotated[str, component("TosaStoredType", "The element type of the output.")] = ABSENT
    output_unsigned: bool = Field(default=False, description="Whether its bits are unsigned numbers.")
    output_zp: Int64 = Field(default=0, ge=-(2**63), le=2**63 - 1)
    multiplier: Integers = Field(default=ABSENT, description="One, or one for each index of the last dimension.")
    shift: Integers = Field(default=ABSENT, description="Right shifts, as many.")
    scale32: bool = Field(default=True, description="Whether multipliers have 32 bits; else 16.")
    per_channel: bool = Field(default=False, description="Whether there is one for each index of the last dimension.")


_OPERANDS = ("onnx", "onednn", "litert", "torch", "tosa")


class TranslateRequest(RequestModel):
    """A quantized type, or a system's operands for one, and the systems to translate to."""

    type: str = Field(
        default=ABSENT,
        description="MLIR text: !quant.uniform<...>, or a tensor of it.",
        examples=["tensor<4x64x!quant.uniform<i8:f32:0, {0.5:3, 0.25, 0.125, 1.0}>>"],
    )
    onnx: OnnxParameters = ABSENT
    onednn: OnednnParameters = ABSENT
    litert: LitertParameters = ABSENT
    torch: TorchParameters = ABSENT
    tosa: TosaParameters = ABSENT
    shape: Shape = Field(default=ABSENT, description="With operands: the shape of the tensor, if known.")
    rescale_to: str = Field(
        default=ABSENT, description="MLIR text: the output type of TOSA's RESCALE, for multipliers and shifts."
    )
    systems: list[Annotated[TranslationSystem, Field(strict=False)]] = Field(
        default=ABSENT, max_length=16, description="The systems to translate to, each at most once. Default: all."
    )

    @model_validator(mode="after")
    def _one_source(self) -> TranslateRequest:
        given = self.model_fields_set & {"type", *_OPERANDS}
        if len(given) != 1:
            listed = ", ".join(("type", *_OPERANDS))
            raise PydanticCustomError("translation_source", "exactly one of {listed} is required", {"listed": listed})
        if "shape" in self.model_fields_set and "type" in given:
            raise PydanticCustomError("translation_shape", "the shape is part of the type: write tensor<...> around it")
        if "systems" in self.model_fields_set and len(set(self.systems)) != len(self.systems):
            raise PydanticCustomError("translation_systems", "systems has one of them twice")
        return self

    @property
    def source(self) -> str:
        """The system whose operands are given, or mlir for a type."""
        return next((name for name in _OPERANDS if name in self.model_fields_set), "mlir")


def _answer(schema: dict[str, Any]) -> None:
    """Describe operands as a reply: without defaults and the bounds of what is taken, and perhaps more one day."""
    for field in schema["properties"].values():
        field.pop("default", None)
        field.pop("maxItems", None)
        for node in (field, field.get("items", {})):
            node.pop("minimum", None)
            node.pop("maximum", None)
    schema["additionalProperties"] = True


_ANSWERED = ConfigDict(json_schema_extra=_answer)


class OnnxOperands(OnnxParameters):
    """ONNX's operands for a type. They can be sent back; fields may be added."""

    model_config = _ANSWERED


class OnednnOperands(OnednnParameters):
    """oneDNN's operands for a type. They can be sent back; fields may be added."""

    model_config = _ANSWERED


class LitertOperands(LitertParameters):
    """LiteRT's parameters for a type. They can be sent back; fields may be added."""

    model_config = _ANSWERED


class TorchOperands(TorchParameters):
    """torch's parameters for a type. They can be sent back; fields may be added."""

    model_config = _ANSWERED


class TosaOperands(TosaParameters):
    """TOSA's operands for a type. They can be sent back; fields may be added."""

    model_config = _ANSWERED


class RoundedScale(ReplyModel):
    """A scale that the system rounds."""

    index: Int32 = Field(description="Its index among the scales.")
    scale: str = Field(description="The scale as shortest decimal text; a quotient of scales as numerator/denominator.")
    becomes: str = Field(description="The exact rounded value: decimal text that reads back to it, or a fraction.")


class Translation(ReplyModel):
    """The translation to one system."""

    system: TranslationSystem
    expressible: bool
    exact: bool = Field(description="Whether the operands express everything in the type.")
    reason: str = Field(default="", description="Why the system has no operands for the type.")
    rounded: list[RoundedScale] = Field(description="The first 16 scales that the system cannot represent exactly.")
    rounded_count: Int32 = Field(description="The total number.")
    losses: list[str] = Field(description="What else of the type the operands cannot express.")
    operators: list[str] = Field(default=[], description="The operators that accept these operands, if not all do.")
    opset: Int32 = Field(default=ABSENT, description="onnx: the first opset that has them.")
    type: str = Field(default="", description="mlir and stablehlo: the text.")
    onnx: OnnxOperands = ABSENT
    onednn: OnednnOperands = ABSENT
    litert: LitertOperands = ABSENT
    torch: TorchOperands = ABSENT
    tosa: TosaOperands = ABSENT


class TranslateReply(ReplyModel):
    """The type, and each system's operands for it."""

    type: str = Field(description="Canonical text; a tensor type if the shape is known.")
    source: TranslationSystem = Field(description="The operands it was read from.")
    rounded: list[RoundedScale] = Field(
        description="The first 16 given scales that their type cannot represent exactly."
    )
    rounded_count: Int32 = Field(description="The total number.")
    translations: list[Translation] = Field(description="One per requested system, in order.")
