"""Operations on calls of other operations over gRPC: what their JSON route answers."""

from __future__ import annotations

import json
from typing import Any

import httpx

from requant.operations import OPERATIONS
from requant_service.oip.grpc import inference_pb2 as pb
from tests.conftest import Server
from tests.requests.catalog import CATALOG
from tests.requests.inference import inference


def test_a_call_is_answered_as_by_the_route(channel: Any, grpc_server: tuple[Server, str]) -> None:
    example = dict(OPERATIONS["identify"].example)
    infer = channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelInferResponse.FromString,
    )
    reply = infer(inference(CATALOG["identify"], example).message(), timeout=60)
    members = {}
    for name, parameter in reply.parameters.items():
        value = getattr(parameter, parameter.WhichOneof("parameter_choice"))
        members[name] = json.loads(value) if isinstance(value, str) else value
    assert members == httpx.post(f"{grpc_server[0].url}/v1/identify", json=example).json()
