"""The protocol's JSON as pydantic models: what requests may hold, what replies hold, and how both look in OpenAPI.

Fields that the protocol does not know are refused, like everywhere in Requant. Parameters are maps from names to texts,
numbers or booleans; the model defines the names.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, FailFast, Field
from pydantic_core import PydanticCustomError

from requant_service.http.models import ABSENT, Int64, ReplyModel, RequestModel, copied_lists

MAX_TENSORS = 256
LONGEST_NAME = 64
LONGEST_ID = 256
MAX_PARAMETERS = 32

# More dimensions than any limit on the rank allows, so that the error is about that limit.
MAX_DIMENSIONS = 1024


def _flat(value: Any) -> Any:
    """Check a map of parameters before it is copied."""
    if not isinstance(value, dict):
        raise PydanticCustomError("parameters", "input should be an object")
    if len(value) > MAX_PARAMETERS:
        raise PydanticCustomError("parameters", "there are more than {most} parameters", {"most": MAX_PARAMETERS})
    if not all(isinstance(member, (str, int, float)) for member in value.values()):
        raise PydanticCustomError("parameters", "the value of a parameter is a text, a number or a boolean")
    return value


def _list_or_null(value: Any) -> Any:
    """Return a copy of nested lists.

    Null stands for absence: KServe's client writes it beside an empty tensor.
    """
    if value is None:
        return None
    if not isinstance(value, list):
        raise PydanticCustomError("list_type", "input should be an array")
    return copied_lists(value)


# openapi-generator stumbles over a property of this name whose members are described as `true`.
ParameterMap = Annotated[dict[str, Any], Field(json_schema_extra={"additionalProperties": {}})]
Parameters = Annotated[ParameterMap, BeforeValidator(_flat)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]
TensorData = Annotated[
    Any,
    BeforeValidator(_list_or_null),
    Field(
        description='The elements in row-major order, flat or nested. Non-finite floats are the strings "NaN", '
        '"Infinity" and "-Infinity". At most `max_values` elements (4096 by default); send larger '
        "tensors in binary.",
        json_schema_extra={"type": "array", "items": {}},
    ),
]
_SHAPE = "The number of elements along each dimension."


class InferenceInput(RequestModel):
    """An input tensor, with its elements in `data` or in binary after the JSON."""

    name: Name
    shape: Annotated[list[Int64], FailFast(), Field(max_length=MAX_DIMENSIONS)] = Field(description=_SHAPE)
    datatype: Name
    parameters: Parameters = Field(
        default={},
        description="binary_data_size: the bytes of the tensor after the JSON. shared_memory_region, "
        "shared_memory_byte_size and shared_memory_offset (default 0): where in a registered region the tensor is.",
    )
    data: TensorData = ABSENT


class InferenceRequestedOutput(RequestModel):
    """A requested output."""

    name: Name
    parameters: Parameters = Field(
        default={},
        description="binary_data: whether to return the output in binary. shared_memory_region, "
        "shared_memory_byte_size and shared_memory_offset (default 0): where in a registered region to put it.",
    )


class InferenceRequest(RequestModel):
    """A request to run a model."""

    id: str = Field(default="", max_length=LONGEST_ID, description="Returned in the response.")
    model_name: str = Field(default="", max_length=LONGEST_NAME, description="If present, the name in the path.")
    parameters: Parameters = Field(
        default={},
        description="The model's parameters, as listed in its metadata, and binary_data_output: whether to return "
        "all outputs in binary.",
    )
    inputs: list[InferenceInput] = Field(max_length=MAX_TENSORS)
    outputs: list[InferenceRequestedOutput] = Field(
        default=[], max_length=MAX_TENSORS, description="The requested outputs. Default: all."
    )


class InferenceOutput(ReplyModel):
    """An output tensor."""

    name: str
    shape: list[Int64] = Field(description=_SHAPE)
    datatype: str
    parameters: ParameterMap = Field(
        description="element_type: the MLIR type of the elements. binary_data_size: the bytes after the JSON. "
        "shared_memory_region, shared_memory_byte_size and shared_memory_offset: where in shared memory the output is."
    )
    data: list[Any] = Field(default=[], description="The elements in row-major order, flat.")


class InferenceReply(ReplyModel):
    """The response of a model."""

    id: str = ""
    model_name: str
    model_version: str
    parameters: ParameterMap = Field(description="The model's report.")
    outputs: list[InferenceOutput]


class ServerMetadata(ReplyModel):
    """Name, version and protocol extensions of the server."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(ReplyModel):
    """The process responds."""

    live: bool


class ServerReady(ReplyModel):
    """Every model can be used."""

    ready: bool
    live: bool


class SharedMemoryRegistration(RequestModel):
    """The part of a shared memory object that becomes a region."""

    key: str = Field(max_length=512, description="The name of the object, as given to shm_open.")
    offset: Int64 = Field(default=0, ge=0, description="The first byte of the region in the object.")
    byte_size: Int64 = Field(ge=1, description="The bytes of the region.")


class SharedMemoryRegion(ReplyModel):
    """A registered region of system shared memory."""

    name: str
    key: str
    offset: Int64
    byte_size: Int64


class Done(ReplyModel):
    """Success, with nothing to return."""


class ModelList(ReplyModel):
    """The names of all models."""

    models: list[str]


class ModelReady(ReplyModel):
    """The model can be used."""

    name: str
    ready: bool


class ModelState(ReplyModel):
    """A version of a model and its state."""

    name: str
    version: str
    state: str
    reason: str


class TensorMetadata(ReplyModel):
    """An input or output tensor of a model."""

    name: str
    datatype: str = Field(description="The most common datatype. parameters/datatypes lists all.")
    shape: list[Int64] = Field(description="-1: any shape of any rank.")
    parameters: ParameterMap = Field(
        description="datatypes, optional, description, and variadic if there may be several."
    )


class ParameterMetadata(ReplyModel):
    """A parameter of a model."""

    name: str
    kind: str = Field(description="string, integer, boolean or number.")
    required: bool
    default: str = Field(default="", description="As text.")
    choices: list[str] = Field(default=[], description="The allowed values, if restricted.")
    description: str


class ModelMetadata(ReplyModel):
    """The inputs, outputs and parameters of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    description: str
    request_parameters: list[ParameterMetadata]
