"""A request message, decoded to what a request over HTTP is decoded to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from pydantic import ValidationError

from requant.errors import InvalidRequestError, RequantError, TensorDataError
from requant_service.http.json_body import invalid_request
from requant_service.http.problems import pointer
from requant_service.oip import schemas
from requant_service.oip import wire as oip
from requant_service.oip.datatypes import DATATYPES, Datatype
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.models.model import Model
from requant_service.oip.parameters import Value, completed
from requant_service.oip.tensors import REGION_PARAMETERS, Array, InputTensor
from requant_service.oip.wire import InferenceHead
from requant_service.runtime.settings import Settings

_RAW = "/raw_input_contents"

# The fields of `InferTensorContents`, and the datatypes whose elements they hold.
_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}

# Elements of typed contents that are copied at a time.
_PIECE = 16 << 10


def head_of(parsed: pb.ModelInferRequest, model: Model, settings: Settings) -> InferenceHead:
    """Return the head of a request, checked against the model.

    Raise InvalidRequestError, TensorDataError or LimitError.
    """
    members = {
        "parameters": _values(parsed.parameters),
        "inputs": [_input(each) for each in islice(parsed.inputs, schemas.MAX_TENSORS + 1)],
        "outputs": [
            {"name": each.name, "parameters": _values(each.parameters)}
            for each in islice(parsed.outputs, schemas.MAX_TENSORS + 1)
        ],
    }
    try:
        request = schemas.InferenceRequest.model_validate(members)
    except ValidationError as error:
        raise invalid_request(error, schemas.InferenceRequest, settings.max_values) from None
    heads = oip.input_heads(request.inputs, model, settings.max_rank)
    inputs: dict[str, InputTensor] = {}
    for head, each in zip(heads, parsed.inputs, strict=True):
        if each.HasField("contents"):
            if head.region is not None:
                raise _invalid(f"{head.pointer}/contents", f"{head.name} has contents, and is in shared memory")
            inputs[head.name] = _typed(head, each.contents)
    return InferenceHead(
        heads=[replace(head, values=[]) if head.name in inputs else head for head in heads],
        inputs=inputs,
        parameters=completed(
            model.parameters, {name: value for name, value in request.parameters.items() if name != oip.BINARY_OUTPUT}
        ),
        wanted=dict.fromkeys(oip.wanted_outputs(request, model), True),
        all_wanted=not request.outputs,
        output_regions=oip.output_regions(request),
    )


def _values(parameters: Mapping[str, pb.InferParameter]) -> dict[str, Value | None]:
    """Return parameters by name. None, which no parameter takes, for one without a value."""
    few = islice(parameters.items(), schemas.MAX_PARAMETERS + 1)
    return {name: _value(parameter) for name, parameter in few}


def _value(parameter: pb.InferParameter) -> Value | None:
    choice = parameter.WhichOneof("parameter_choice")
    return None if choice is None else getattr(parameter, choice)


def _input(tensor: pb.ModelInferRequest.InferInputTensor) -> dict[str, Any]:
    """Return an input as over HTTP: in binary, with as many bytes as it has to have, which are counted later."""
    shape = list(islice(tensor.shape, schemas.MAX_DIMENSIONS + 1))
    datatype = DATATYPES.get(tensor.datatype)
    size = 0 if datatype is None or min(shape, default=0) < 0 else prod(shape) * datatype.dtype.itemsize
    parameters = _values(tensor.parameters)
    if oip.BINARY_SIZE not in parameters and not any(name in parameters for name in REGION_PARAMETERS):
        parameters[oip.BINARY_SIZE] = size
    return {"name": tensor.name, "shape": shape, "datatype": tensor.datatype, "parameters": parameters}


def _typed(head: oip.InputHead, contents: pb.InferTensorContents) -> InputTensor:
    """Return an input whose elements are in `contents`."""
    field = _CONTENTS.get(head.datatype.name)
    place = f"{head.pointer}/contents"
    if field is None:
        raise _invalid(place, f"{head.datatype.name} has no contents; send it in raw_input_contents")
    others = [each.name for each, _ in contents.ListFields() if each.name != field]
    if others:
        raise _invalid(f"{place}/{others[0]}", f"{head.datatype.name} is sent in {field}")
    values = getattr(contents, field)
    if len(values) != head.elements:
        raise TensorDataError(
            f"{field} has {len(values)} elements; the shape of {head.name} has {head.elements}",
            pointer=f"{place}/{field}",
        )
    return InputTensor(
        head.name, head.datatype, head.shape, _elements(values, head.datatype, place, field), head.pointer
    )


def _elements(values: Sequence[Any], datatype: Datatype, place: str, field: str) -> Array:
    dtype = datatype.dtype
    wide = {"int_contents": np.dtype(np.int32), "uint_contents": np.dtype(np.uint32)}.get(field, dtype)
    data = np.empty(len(values), wide)
    for start in range(0, len(data), _PIECE):
        # All at once would keep the GIL from the event loop.
        data[start : start + _PIECE] = values[start : start + _PIECE]
    if wide == dtype:
        return data
    bounds = np.iinfo(dtype)
    beyond = (data < bounds.min) | (data > bounds.max)
    if beyond.any():
        index = int(np.argmax(beyond))
        raise TensorDataError(
            f"element {index} is {data[index]}; {datatype.name} is {bounds.min} to {bounds.max}",
            pointer=f"{place}/{field}/{index}",
        )
    return data.astype(dtype)


def blobs_of(head: InferenceHead, raw: Sequence[memoryview]) -> oip.Blobs:
    """Return the raw contents, each with the input that it belongs to.

    Raise InvalidRequestError or TensorDataError.
    """
    expected = head.binary
    if raw and head.inputs:
        name = next(iter(head.inputs))
        raise _invalid(
            f"{head.inputs[name].pointer}/contents",
            f"{name} has contents, and the request has raw_input_contents; one of them holds all inputs",
        )
    if not raw and expected and head.blob_bytes:
        missing = next(each for each in expected if each.blob_bytes)
        raise TensorDataError(
            f"{missing.name} has no elements; they are sent in raw_input_contents or in contents",
            pointer=missing.pointer,
        )
    if raw and len(raw) != len(expected):
        raise _invalid(_RAW, f"there are {len(raw)} raw_input_contents; expected {_counted(expected, head)}")
    blobs: oip.Blobs = []
    for index, each in enumerate(expected):
        content = raw[index] if raw else b""
        if len(content) != each.blob_bytes:
            raise TensorDataError(
                f"raw_input_contents {index} has {len(content)} bytes; {each.name} has {each.elements} elements of "
                f"{each.datatype.dtype.itemsize} bytes, which is {each.blob_bytes}",
                pointer=_RAW + pointer(index),
            )
        blobs.append((each, np.frombuffer(content, np.uint8)))
    return blobs


def _counted(expected: Sequence[oip.InputHead], head: InferenceHead) -> str:
    shared = " that is not in shared memory" if head.input_regions else ""
    return f"{len(expected)}, one for each input{shared}"


def _invalid(place: str, detail: str) -> RequantError:
    return InvalidRequestError.of_field(place, "invalid", detail)
