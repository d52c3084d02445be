"""Scales and zero points from data."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.errors import (
    InvalidRequestError,
    LimitError,
    ParameterError,
    PreconditionError,
    TypeFitError,
    UnknownNameError,
    UnsupportedError,
    at,
    sides,
)
from core.mlir.lexer import MAXIMUM_LIST_LENGTH
from core.mlir.types import TensorType
from core.parameters.calibration import (
    CalibrationMethod,
    CalibrationOptions,
    Observed,
    Target,
    blocks_of,
    calibration_method_named,
)
from core.parameters.finished_type import Granularity, PerAxis, PerBlock, PerTensor
from core.plan.operands import float_element, static_shape
from service.http.json_body import receive_json
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.http.responses import json_response
from service.json_api.schemas.calibration import GranularityName, TensorParametersReply, TensorParametersRequest
from service.json_api.schemas.tensors import Tensor
from service.json_api.tensors import read_elements
from service.operations.parameters import finished_parameters, read_rule
from service.operations.types import read_tensor_type
from service.runtime.runtime import require_ready
from service.runtime.settings import Settings

router = APIRouter(prefix="/v1/parameters", tags=["params"], dependencies=[Depends(no_query)])

_wrong = InvalidRequestError.of_field

_EXAMPLE = {
    "input": {"type": "tensor<6xf32>", "values": [-1.5, -0.25, 0.0, 0.5, 0.75, 2.0]},
    "storage": "i8",
    "granularity": "per_tensor",
    "method": "mse",
    "scheme": "torch_observer",
}


@dataclass(frozen=True, slots=True)
class _Search:
    """What is to be found, before any element is read."""

    method: CalibrationMethod
    options: CalibrationOptions
    target: Target
    tensor: TensorType


@router.post(
    "/tensor", **json_operation("deriveFromTensor", TensorParametersRequest, TensorParametersReply, example=_EXAMPLE)
)
async def derive_from_tensor(request: Request) -> Response:
    """Calibrate: find ranges in data by the method of a system, and derive scales and zero points."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, TensorParametersRequest, running)
    tensors = [call.input] if "input" in call.model_fields_set else call.inputs
    paths = ["input"] if "input" in call.model_fields_set else [f"inputs/{index}" for index in range(len(tensors))]

    def work() -> Response:
        shape, element, target = static_shape(search.tensor), float_element(search.tensor, "input"), search.target
        arrays = tuple(
            read_elements(tensor, search.tensor, element.tensor_dtype, path, body, settings)
            for tensor, path in zip(tensors, paths, strict=True)
        )
        blocks = blocks_of(target.granularity, shape)
        observed = Observed(element, shape, blocks, arrays, tuple(f"/{path}" for path in paths))
        with at("/storage", UnsupportedError), sides(input=f"/{paths[0]}/type", output="/storage"):
            with at("/profile", UnknownNameError):
                ranges = search.method.find_ranges(observed, search.options, target)
            with at("/scheme", ParameterError, PreconditionError):
                found = search.method.parameters(ranges, target)
        return json_response(
            TensorParametersReply(
                **finished_parameters(target.rule, target.expressed, found, target.granularity),
                method=search.method.name,
                minimums=ranges.minimums.tolist(),
                maximums=ranges.maximums.tolist(),
                left_out=ranges.left_out,
            )
        )

    search = await running.executor.run_text(
        sum(len(tensor.type) for tensor in tensors), lambda: _decide(call, tensors, paths, settings)
    )
    weight = len(body) if search.method.one_pass else max(len(body), settings.inline_bytes + 1)
    return await running.executor.run_array(weight, work)


def _decide(call: TensorParametersRequest, tensors: list[Tensor], paths: list[str], settings: Settings) -> _Search:
    tensor = _common_type(tensors, paths, settings)
    place = f"/{paths[0]}/type"
    with at(place):
        shape = static_shape(tensor)
        element = float_element(tensor, "input")
    granularity = _granularity(call, shape)
    with at("/method"):
        method = calibration_method_named(call.method)
    in_blocks = isinstance(granularity, PerBlock)
    named = {"scheme": method.scheme_for(blocks=in_blocks), "expressed": element.name}
    named |= call.given("scheme", "expressed")
    rule, storage, expressed, range_options = read_rule(**named, storage=call.storage, options=call.options)
    with at("/scheme"):
        rule.check_blocks(blocks=in_blocks)
    return _Search(
        method,
        CalibrationOptions(**call.given(*(field.name for field in fields(CalibrationOptions)))),
        Target(rule, range_options, storage, expressed, granularity),
        tensor,
    )


def _common_type(tensors: list[Tensor], paths: list[str], settings: Settings) -> TensorType:
    """Return the type of all tensors, or raise TypeFitError for the first that has another."""
    first = read_tensor_type(tensors[0].type, settings, f"/{paths[0]}/type")
    for tensor, path in zip(tensors[1:], paths[1:], strict=True):
        pointer = f"/{path}/type"
        if tensor.type != tensors[0].type and read_tensor_type(tensor.type, settings, pointer) != first:
            raise TypeFitError("the tensors must have one type; this one differs from the first", pointer=pointer)
    return first


def _granularity(call: TensorParametersRequest, shape: tuple[int, ...]) -> Granularity:
    """Return what has a range of its own in a tensor of this shape."""
    kind, given = call.granularity, call.model_fields_set
    for name, owner in (("axis", GranularityName.PER_AXIS), ("block_sizes", GranularityName.SUB_CHANNEL)):
        if name in given and kind is not owner:
            raise _wrong(f"/{name}", "extra_forbidden", f"{name} is for granularity {owner}; this is {kind}")
        if name not in given and kind is owner:
            raise _wrong(f"/{name}", "missing", f"granularity {kind} needs {name}")
    found: Granularity = PerTensor()
    if kind is GranularityName.PER_AXIS:
        if call.axis >= len(shape):
            raise TypeFitError(f"axis {call.axis} is not below the rank {len(shape)} of the tensor", pointer="/axis")
        found = PerAxis(call.axis, shape[call.axis])
    if kind is GranularityName.SUB_CHANNEL:
        if len(call.block_sizes) != len(shape) or not shape:
            raise TypeFitError(
                f"there are {len(call.block_sizes)} block_sizes for a tensor of rank {len(shape)}; one for each "
                "dimension, and at least one",
                pointer="/block_sizes",
            )
        found = PerBlock(shape, tuple(call.block_sizes))
    if found.count > MAXIMUM_LIST_LENGTH:
        raise LimitError(
            f"there would be {found.count} scales; a type has at most {MAXIMUM_LIST_LENGTH}",
            limit=MAXIMUM_LIST_LENGTH,
            pointer="/granularity",
        )
    return found
