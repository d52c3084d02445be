"""Requests of the Open Inference Protocol as messages, and a client that calls methods by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from requant_service.oip.grpc import inference_pb2 as pb
from tests.support.oip_wire import DTYPES, datatype

Array = NDArray[Any]

SERVICE = "inference.GRPCInferenceService"


def parameters_into(found: Any, given: Mapping[str, Any]) -> None:
    """Set parameters, each in the field of its kind."""
    fields = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    for name, value in given.items():
        setattr(found[name], fields[type(value)], value)


def request_of(
    model: str, inputs: Mapping[str, Array], parameters: Mapping[str, Any], outputs: Sequence[str] = (), **members: Any
) -> pb.ModelInferRequest:
    """A request with raw inputs. An input's datatype is its dtype's; BF16 where its name says so, `x:BF16`."""
    request = pb.ModelInferRequest(model_name=model, **members)
    parameters_into(request.parameters, parameters)
    for key, array in inputs.items():
        name, _, named = key.partition(":")
        request.inputs.add(name=name, datatype=named or datatype(array), shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    for name in outputs:
        request.outputs.add(name=name)
    return request


def outputs_of(reply: pb.ModelInferResponse) -> dict[str, Array]:
    """The outputs of a reply by name."""
    assert len(reply.outputs) == len(reply.raw_output_contents)
    return {
        output.name: np.frombuffer(raw, DTYPES[output.datatype]).reshape(output.shape)
        for output, raw in zip(reply.outputs, reply.raw_output_contents, strict=True)
    }


def values_of(parameters: Any) -> dict[str, Any]:
    """Parameters by name."""
    return {name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in parameters.items()}


def call(channel: Any, method: str, request: Any, reply: Any, **options: Any) -> Any:
    """Call a method of the service. A request of bytes is sent as it is."""
    unary = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=None if isinstance(request, bytes) else type(request).SerializeToString,
        response_deserializer=reply.FromString,
    )
    return unary(request, **{"timeout": 60, **options})


def infer(channel: Any, request: pb.ModelInferRequest | bytes, **options: Any) -> pb.ModelInferResponse:
    """Run a model."""
    reply: pb.ModelInferResponse = call(channel, "ModelInfer", request, pb.ModelInferResponse, **options)
    return reply


def refused(channel: Any, request: pb.ModelInferRequest | bytes, **options: Any) -> tuple[grpc.StatusCode, str, str]:
    """Run a model that refuses: the status, its details, and the code of the problem."""
    try:
        infer(channel, request, **options)
    except grpc.RpcError as error:
        trailing = dict(error.trailing_metadata() or ())
        return error.code(), error.details(), str(trailing.get("requant-code", ""))
    raise AssertionError("the request was accepted")
