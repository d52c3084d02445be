"""The tensors of a call: flat arrays with their names, datatypes and shapes, and for outputs what the elements are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import TensorDataError, excerpt
from requant.formats.elements import FloatElement
from requant.mlir import print_type
from requant.mlir.types import ElementType, TensorType
from requant.plan.lanes import widen
from requant.plan.operands import element_name, static_shape
from requant_service.oip.datatypes import DATATYPES, Datatype, datatype_of
from requant_service.oip.shared_memory.region_part import RegionPart

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
