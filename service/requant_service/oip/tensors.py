"""The tensors of a call: flat arrays with names, datatypes and shapes, and where in shared memory a tensor is.

`shared_memory_region`, `shared_memory_byte_size` and `shared_memory_offset` stand among the parameters of an input or a
requested output, and of an output in the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import InvalidRequestError, TensorDataError, excerpt
from requant.formats.elements import FloatElement
from requant.mlir import print_type
from requant.mlir.types import ElementType, TensorType
from requant.plan.float_arrays import widen
from requant.plan.operands import element_name, static_shape
from requant_service.http.problems import pointer
from requant_service.oip.datatypes import DATATYPES, Datatype, datatype_of

REGION = "shared_memory_region"
BYTE_SIZE = "shared_memory_byte_size"
OFFSET = "shared_memory_offset"
REGION_PARAMETERS = (REGION, BYTE_SIZE, OFFSET)


@dataclass(frozen=True, slots=True)
class RegionPart:
    """The part of a region that a request names for a tensor. `place` is the pointer of the tensor in the request."""

    region: str
    offset: int
    byte_size: int
    place: str

    @property
    def parameters(self) -> dict[str, str | int]:
        """The parameters that name this part. An offset of 0 is left out."""
        offset = {OFFSET: self.offset} if self.offset else {}
        return {REGION: self.region, BYTE_SIZE: self.byte_size, **offset}

    def pointer_to(self, parameter: str) -> str:
        """Return the pointer of one of the parameters that name this part."""
        return f"{self.place}{pointer('parameters', parameter)}"


def region_part(parameters: Mapping[str, Any], place: str) -> RegionPart | None:
    """Return the part of a region that the parameters of a tensor name, None if they name none.

    Raise InvalidRequestError for values that none can have, or if one is given without another.
    """
    if not any(name in parameters for name in REGION_PARAMETERS):
        return None
    stated = {OFFSET: 0, **parameters}
    for name, kind, says in ((REGION, str, "a string"), (BYTE_SIZE, int, "a number"), (OFFSET, int, "a number")):
        where = f"{place}{pointer('parameters', name)}"
        if name not in stated:
            raise InvalidRequestError.of_field(where, "missing", f"{REGION} and {BYTE_SIZE} are given together")
        if type(stated[name]) is not kind or (kind is int and stated[name] < 0):
            raise InvalidRequestError.of_field(where, "invalid", f"expected {says}{' of bytes' if kind is int else ''}")
    return RegionPart(stated[REGION], stated[OFFSET], stated[BYTE_SIZE], place)


Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class InputTensor:
    """A tensor of a request. `data` is flat, of the datatype's dtype; the input of a conversion has none while it still
    arrives. `pointer` is its place in the request's JSON.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: Array
    pointer: str

    def kept_as(self, element: ElementType, dtype: np.dtype[Any]) -> Array:
        """Return the data, if its dtype is the one that elements of a type are kept in, else raise TensorDataError."""
        self.check_kept(element, dtype)
        return self.data

    def check_kept(self, element: ElementType, dtype: np.dtype[Any]) -> None:
        """Raise TensorDataError unless elements of a type, which are kept as `dtype`, travel in this datatype."""
        if self.datatype.dtype != dtype:
            raise TensorDataError(
                f"input {self.name} is {self.datatype.name}; elements of {excerpt(print_type(element))} "
                f"travel as {datatype_of(element, dtype).name}",
                pointer=f"{self.pointer}/datatype",
            )


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """A tensor of a reply. `data` is flat and contiguous, None if it is made while the reply is sent, or if it is in
    `region` of shared memory. `element_type`: what its elements are, in MLIR's words.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: Array | None
    element_type: str
    region: RegionPart | None = None

    @property
    def byte_count(self) -> int:
        """The bytes of the data."""
        return prod(self.shape) * self.datatype.dtype.itemsize


def real_numbers(tensor: InputTensor) -> NDArray[np.float64]:
    """Return the elements of a tensor of reals as flat f64."""
    element = tensor.datatype.element
    assert isinstance(element, FloatElement)
    return widen(tensor.data, element).astype(np.float64)


def reals_output(name: str, shape: tuple[int, ...], values: Array) -> OutputTensor:
    """Return an output of f64."""
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    return OutputTensor(name, DATATYPES["FP64"], shape, flat, "f64")


def integers_output(name: str, shape: tuple[int, ...], values: Array) -> OutputTensor:
    """Return an output of i64."""
    flat = np.ascontiguousarray(values, np.int64).reshape(-1)
    return OutputTensor(name, DATATYPES["INT64"], shape, flat, "i64")


def output_tensor(name: str, tensor: TensorType, data: Array) -> OutputTensor:
    """Return an output of a static tensor type."""
    element = tensor.element
    return OutputTensor(name, datatype_of(element, data.dtype), static_shape(tensor), data, element_name(element))
