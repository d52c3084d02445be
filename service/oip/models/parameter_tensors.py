"""Scales and zero points given as tensors, as ONNX gives them, instead of in the text of a type."""

from __future__ import annotations

import numpy as np

from core.errors import FieldFault, InvalidRequestError, LimitError, TypeFitError, at
from core.formats.elements import FloatElement
from core.mlir.types import AnyType, StorageType, UniformQuantizedType
from core.parameters.finished_type import PerAxis, PerTensor, finish_type
from core.plan.lanes import widen
from service.oip.call import Call
from service.oip.datatypes import REALS, STORED
from service.oip.models.model import Slot
from service.oip.parameters import Kind, Parameter, pointer_to
from service.oip.tensors import Array, InputTensor
from service.operations.types import read_type
from service.runtime.settings import MOST_ENTRIES

SCALE = Slot(
    name="scale",
    description="Instead of a type text: one scale, or one for each index along the parameter axis.",
    datatypes=REALS,
    optional=True,
)
ZERO_POINT = Slot(
    name="zero_point",
    description="With scale: as many zero points. Default: 0.",
    datatypes=("INT32", *(name for name in STORED if name not in ("INT32", "UINT32")), "INT64"),
    optional=True,
)
STORAGE_TYPE = Parameter(
    name="storage_type",
    description="With scale: the storage, such as i8, u4 or i8<-127:127>.",
    optional=True,
)
AXIS = Parameter(name="axis", kind=Kind.INTEGER, description="With scale: the axis of the channels.", optional=True)


def check_one_source(call: Call, type_parameter: str) -> bool:
    """Return whether the parameters of a quantized type are tensors. Raise InvalidRequestError if they are text too."""
    by_tensor = "scale" in call.inputs
    if by_tensor == (call.has(type_parameter)):
        detail = f"exactly one of the parameter {type_parameter} and the input scale is required"
        raise InvalidRequestError(detail, (FieldFault(pointer_to(type_parameter), "type_form", detail),))
    if not by_tensor:
        lost = [f"input {name}" for name in ("zero_point",) if name in call.inputs]
        lost += [f"parameter {name}" for name in ("storage_type", "axis") if call.has(name)]
        if lost:
            raise InvalidRequestError(f"{lost[0]} needs the input scale")
    return by_tensor


def type_of_tensors(call: Call, expressed: FloatElement, storage: StorageType | None = None) -> UniformQuantizedType:
    """Return the quantized type that the inputs scale and zero_point stand for. `storage`: where none is named.

    Raise InvalidRequestError if `storage_type` or `axis` is missing, TypeFitError if the shapes disagree, LimitError if
    there are more than MOST_ENTRIES, PreconditionError for a scale that no type can have.
    """
    scale = call.inputs["scale"]
    count = scale.data.size
    per_axis = call.has("axis")
    with at(scale.pointer):
        if scale.shape not in (((count,),) if per_axis else ((), (1,))):
            needed = "one dimension" if per_axis else "one element, or the parameter axis"
            raise TypeFitError(f"the input scale has shape {list(scale.shape)}; it needs {needed}")
        if count > MOST_ENTRIES:
            raise LimitError(f"there are more than {MOST_ENTRIES} scales", limit=MOST_ENTRIES)
        if call.has("storage_type"):
            storage = _storage(call)
        elif storage is None:
            detail = "required with the input scale"
            fault = FieldFault(pointer_to("storage_type"), "missing", detail)
            raise InvalidRequestError(f"parameter storage_type: {detail}", (fault,))
        element = scale.datatype.element
        assert isinstance(element, FloatElement)
        granularity = PerAxis(call.integer("axis"), count) if per_axis else PerTensor()
        return finish_type(storage, expressed, widen(scale.data, element), _zero_points(call, scale), granularity)


def _storage(call: Call) -> StorageType:
    """Read the storage as the quant dialect reads it, in the type that says nothing else."""
    place = pointer_to("storage_type")
    found = read_type(f"!quant.any<{call.text('storage_type')}>", call.settings.max_type_bytes, place)
    if not isinstance(found, AnyType) or found.expressed is not None:
        raise InvalidRequestError(
            "parameter storage_type: a storage alone is expected, such as i8 or i8<-127:127>",
            (FieldFault(place, "storage", "expected a storage alone"),),
        )
    return found.storage


def _zero_points(call: Call, scale: InputTensor) -> Array:
    given = call.inputs.get("zero_point")
    if given is None:
        return np.zeros(scale.data.size, np.int64)
    if given.shape != scale.shape:
        detail = f"the input zero_point has shape {list(given.shape)}, and scale {list(scale.shape)}"
        raise TypeFitError(detail, pointer=given.pointer)
    return given.data
