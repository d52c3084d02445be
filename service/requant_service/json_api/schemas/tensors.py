"""Tensors in JSON."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from requant_service.http.models import ABSENT, ReplyModel, RequestModel, copied_lists
from requant_service.runtime.settings import MAX_ENTRIES


def _number_or_list(value: Any) -> Any:
    """Check a number, or copy a list, of which the shape decides whether it is right
    (`requant_service.json_api.tensors`).
    """
    if type(value) is list:
        return copied_lists(value)
    if type(value) not in (int, float, str):
        raise PydanticCustomError("number", 'input should be a number, "NaN", "Infinity" or "-Infinity"')
    return value


Values = Annotated[
    list[Annotated[Any, BeforeValidator(_number_or_list)]],
    FailFast(),
    Field(
        max_length=MAX_ENTRIES,
        description="The elements in row-major order as numbers, in a flat list or in lists nested exactly as the "
        "shape; replies are flat. A decimal number is rounded once to the element type, to nearest, ties to even; "
        'non-finite floats are the strings "NaN", "Infinity" and "-Infinity". At most `max_values` elements (4096 by '
        "default).",
    ),
]
Data = Annotated[
    str,
    Field(
        description="The elements in row-major order, little-endian, as standard base64 with padding.",
        json_schema_extra={"contentEncoding": "base64"},
    ),
]


class Tensor(RequestModel):
    """A tensor: its type, and either `data` or `values`."""

    type: str = Field(
        description="MLIR text: the shape and the element type.",
        examples=["tensor<2x3xf32>", "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"],
    )
    data: Data = ""
    # A list as the default would be copied for each tensor that is sent as data.
    values: Values = Field(default=ABSENT)

    @model_validator(mode="after")
    def _one_form(self) -> Tensor:
        sent = self.__pydantic_fields_set__
        if ("data" in sent) == ("values" in sent):
            raise PydanticCustomError("tensor_form", "exactly one of data and values is required")
        return self

    @property
    def in_values(self) -> bool:
        """Whether the elements are sent as `values`."""
        return "values" in self.__pydantic_fields_set__


class ObservedTensor(Tensor):
    """A tensor that was observed: its type may be absent where something else tells it."""

    type: str = ""


class OutputTensor(ReplyModel):
    """A tensor: its type in canonical text, and `data` or `values`, in the form of the input."""

    type: str
    data: Data = ""
    values: Values = Field(default=[])
