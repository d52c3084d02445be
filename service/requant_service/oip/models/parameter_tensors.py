"""The inputs and parameters of models whose scales and zero points may be tensors."""

from __future__ import annotations

from requant.errors import InvalidRequestError
from requant_service.oip.call import Call
from requant_service.oip.datatypes import REALS, STORED
from requant_service.oip.models.model import Slot
from requant_service.oip.parameters import Kind, Parameter, pointer_to
from requant_service.operations.calibration.options import read_block_sizes
from requant_service.operations.parameters.tensors import ParameterTensor, ParameterTensors, read_storage_type

SCALE = Slot(
    name="scale",
    description="Instead of a type: one scale, or one per index along the parameter axis, or one per block.",
    datatypes=REALS,
    optional=True,
)
ZERO_POINT = Slot(
    name="zero_point",
    description="With scale: one zero point per scale. Default: 0.",
    datatypes=("INT32", *(name for name in STORED if name not in ("INT32", "UINT32")), "INT64"),
    optional=True,
)
STORAGE_TYPE = Parameter(
    name="storage_type",
    description="With scale: the storage, such as i8, u4 or i8<-127:127>.",
    optional=True,
)
AXIS = Parameter(name="axis", kind=Kind.INTEGER, description="With scale: the axis of the channels.", optional=True)
BLOCK_SIZES = Parameter(
    name="block_sizes",
    description="With scale: the size of a block along each dimension of x, such as 1,32.",
    optional=True,
)


def check_one_source(call: Call, type_parameter: str) -> bool:
    """Return whether the parameters of a quantized type are tensors. Raise InvalidRequestError if they are text too."""
    by_tensor = "scale" in call.inputs
    if by_tensor == (call.has(type_parameter)):
        detail = f"exactly one of the parameter {type_parameter} and the input scale is required"
        code = "type_form" if by_tensor else "missing"
        raise InvalidRequestError.of_field(pointer_to(type_parameter), code, detail)
    if not by_tensor and "zero_point" in call.inputs:
        raise InvalidRequestError("input zero_point needs the input scale")
    return by_tensor


def check_unused(call: Call, *parameters: str) -> None:
    """Raise InvalidRequestError if there is one of the parameters that only the input scale gives a meaning."""
    for name in parameters:
        if call.has(name):
            raise InvalidRequestError(f"parameter {name} needs the input scale")


def parameter_tensors(call: Call) -> ParameterTensors:
    """Return the inputs scale and zero_point with the parameters that belong to them. Raise as their reading does."""
    return ParameterTensors(
        scale=parameter_tensor(call, "scale"),
        zero_point=parameter_tensor(call, "zero_point") if "zero_point" in call.inputs else None,
        storage=read_storage_type(call.text("storage_type"), call.settings) if call.has("storage_type") else None,
        axis=call.integer("axis") if call.has("axis") else None,
        block_sizes=read_block_sizes(call.text("block_sizes")) if call.has("block_sizes") else None,
    )


def parameter_tensor(call: Call, name: str) -> ParameterTensor:
    """Return an input as operations know it."""
    tensor = call.inputs[name]
    return ParameterTensor(tensor.data, tensor.shape, tensor.datatype.element, tensor.pointer)
