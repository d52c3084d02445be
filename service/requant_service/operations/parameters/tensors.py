"""Scales and zero points given as tensors, as ONNX gives them, instead of in the text of a type.

Errors point at the tensor at fault by its own pointer, and at `/storage_type`, `/axis`,
`/block_sizes` and `/x/datatype`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor, finish_type
from requant.errors import FieldFault, InvalidRequestError, LimitError, TypeFitError, UnsupportedError, default_pointer
from requant.formats.elements import FloatElement, IntegerElement
from requant.mlir.types import AnyType, ElementType, StorageType, TensorType, UniformQuantizedType
from requant.plan.float_arrays import widen
from requant.plan.plan import Packing, dense_width
from requant.schemes import Multiplier
from requant_service.operations.types import read_type
from requant_service.runtime.settings import MAX_ENTRIES, Settings

Array = NDArray[Any]


class ParameterTensor(NamedTuple):
    """A tensor of scales, zero points, multipliers or shifts: flat data, and where it is in the request."""

    data: Array
    shape: tuple[int, ...]
    element: ElementType
    pointer: str


class ParameterTensors(NamedTuple):
    """What stands in the place of a type text. `axis` or `block_sizes` say of what there is a scale each."""

    scale: ParameterTensor
    zero_point: ParameterTensor | None = None
    storage: StorageType | None = None
    axis: int | None = None
    block_sizes: tuple[int, ...] | None = None

    def type(self, expressed: FloatElement, shape: tuple[int, ...]) -> UniformQuantizedType:
        """Return the type of a tensor of this shape.

        Raise InvalidRequestError if the storage is missing, TypeFitError if the shapes disagree, LimitError if there
        are more than MAX_ENTRIES scales, PreconditionError for a scale that no type can have.
        """
        scale = self.scale
        with default_pointer(scale.pointer):
            granularity = self._granularity(shape)
            if scale.data.size > MAX_ENTRIES:
                raise LimitError(f"there are more than {MAX_ENTRIES} scales", limit=MAX_ENTRIES)
            if self.storage is None:
                detail = "required with scale"
                fault = FieldFault("/storage_type", "missing", detail)
                raise InvalidRequestError(f"storage_type: {detail}", (fault,))
            if not isinstance(scale.element, FloatElement):
                raise UnsupportedError("scale has integers; its elements are f16, bf16, f32 or f64")
            scales = widen(scale.data, scale.element)
            return finish_type(self.storage, expressed, scales, self._zero_points(), granularity)

    def type_of_stored(self, shape: tuple[int, ...], element: ElementType, packing: Packing) -> TensorType:
        """Return the type of a tensor of stored numbers, kept as `element`, which is the storage if none is named.

        The scales' own type is what they express. Raise InvalidRequestError for numbers that are no integers, and as
        `type` does.
        """
        expressed = self.scale.element
        if not isinstance(element, IntegerElement):
            detail = "with scale, x has integers of 8, 16 or 32 bits"
            raise InvalidRequestError.of_field("/x/datatype", "enum", detail)
        if not isinstance(expressed, FloatElement):
            raise UnsupportedError("its elements are f16, bf16, f32 or f64", pointer=self.scale.pointer)
        own = StorageType.unbounded(IntegerElement(element.width), signed=element.signed)
        type_ = TensorType(shape, self._replace(storage=self.storage or own).type(expressed, shape))
        if packing is Packing.DENSE and dense_width(type_) is not None:
            raise TypeFitError("packed numbers need a tensor type in input_type; bytes do not tell its shape")
        return type_

    def _granularity(self, shape: tuple[int, ...]) -> Granularity:
        actual, needed = self.scale.shape, "one element, or axis or block_sizes"
        granularity: Granularity = PerTensor()
        fits = actual in ((), (1,))
        if self.block_sizes is not None:
            if self.axis is not None:
                raise InvalidRequestError.of_field("/axis", "extra_forbidden", "blocks have block_sizes, and no axis")
            if len(self.block_sizes) != len(shape) or not shape:
                detail = f"there are {len(self.block_sizes)} block_sizes for a tensor of rank {len(shape)}"
                raise TypeFitError(detail, pointer="/block_sizes")
            granularity = PerBlock(shape, self.block_sizes)
            fits = actual == granularity.scale_shape
            needed = f"one for each block: {list(granularity.scale_shape)}"
        elif self.axis is not None:
            granularity = PerAxis(self.axis, self.scale.data.size)
            fits, needed = len(actual) == 1, "one dimension"
        if not fits:
            raise TypeFitError(f"scale has shape {list(actual)}; it needs {needed}")
        return granularity

    def _zero_points(self) -> Array:
        scale, zero_point = self.scale, self.zero_point
        if zero_point is None:
            return np.zeros(scale.data.size, np.int64)
        if zero_point.shape != scale.shape:
            detail = f"zero_point has shape {list(zero_point.shape)}, and scale {list(scale.shape)}"
            raise TypeFitError(detail, pointer=zero_point.pointer)
        if not isinstance(zero_point.element, IntegerElement):
            raise UnsupportedError("zero_point has real numbers; zero points are integers", pointer=zero_point.pointer)
        return zero_point.data


def read_storage_type(text: str, settings: Settings) -> StorageType:
    """Read the storage as the quant dialect reads it, in the type that says nothing else."""
    place = "/storage_type"
    type_ = read_type(f"!quant.any<{text}>", settings.max_type_bytes, place)
    if not isinstance(type_, AnyType) or type_.expressed is not None:
        detail = "expected a storage alone"
        message = "storage_type: a storage alone is expected, such as i8 or i8<-127:127>"
        raise InvalidRequestError.of_field(place, "storage", detail, message=message)
    return type_.storage


def multipliers_of_tensors(
    multiplier: ParameterTensor | None, shift: ParameterTensor | None
) -> tuple[Multiplier, ...] | None:
    """Return the multipliers that two tensors stand for, None where there are none.

    Raise TypeFitError unless both are there, of one dimension and length; LimitError for more than MAX_ENTRIES.
    """
    if multiplier is None and shift is None:
        return None
    if multiplier is None or shift is None or multiplier.shape != shift.shape or len(shift.shape) != 1:
        raise TypeFitError("multiplier and shift come together, of one dimension and one length")
    if shift.data.size > MAX_ENTRIES:
        raise LimitError(f"there are more than {MAX_ENTRIES} multipliers", limit=MAX_ENTRIES)
    return tuple(Multiplier(*pair) for pair in zip(multiplier.data.tolist(), shift.data.tolist(), strict=True))
