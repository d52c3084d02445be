"""The reply to a request, put together of what protobuf writes and the tensors, which are copied once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from requant.errors import InvalidRequestError, LimitError, MalformedRequestError
from requant_service.http.responses import Buffer
from requant_service.oip import schemas
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.grpc.request_parts import request_parts
from requant_service.oip.grpc.statuses import Failure
from requant_service.oip.parameters import Value
from requant_service.oip.tensors import OutputTensor

# The tags of `ModelInferResponse.id` and `raw_output_contents`, and of `ModelStreamInferResponse.infer_response`: the
# number of the field times 8, and 2.
_ID, _RAW_OUTPUT, _INFER_RESPONSE = bytes([3 << 3 | 2]), bytes([6 << 3 | 2]), bytes([2 << 3 | 2])
# What one message of protobuf can hold.
_MAX_BYTES = (1 << 31) - 1


def id_field(given: bytes | None) -> bytes:
    """Return the `id` of a request as the field of a reply; nothing if there is none, or an empty one."""
    if not given:
        return b""
    try:
        length = len(given.decode())
    except UnicodeDecodeError:
        raise MalformedRequestError("the id is not UTF-8") from None
    if length > schemas.LONGEST_ID:
        raise InvalidRequestError.of_field(
            "/id", "string_too_long", f"an id has at most {schemas.LONGEST_ID} characters"
        )
    return b"".join((_ID, _varint(len(given)), given))


def described(model: str, version: str, parameters: Mapping[str, Value], outputs: Iterable[OutputTensor]) -> bytes:
    """Return a reply without `id` and tensors."""
    reply = pb.ModelInferResponse(model_name=model, model_version=version)
    for name, value in parameters.items():
        _set(reply.parameters[name], value)
    for output in outputs:
        described = reply.outputs.add(name=output.name, datatype=output.datatype.name, shape=output.shape)
        described.parameters["element_type"].string_param = output.element_type
        if output.region is not None:
            for name, value in output.region.parameters.items():
                _set(described.parameters[name], value)
    return bytes(reply.SerializeToString())


def _set(parameter: pb.InferParameter, value: Value) -> None:
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value


def _varint(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def with_tensors(reply: bytes, identity: bytes, tensors: Iterable[Buffer]) -> bytes:
    """Return a reply with its `id` and tensors. Raise LimitError if that is more than a message can hold."""
    pieces: list[Buffer] = [reply, identity]
    for tensor in tensors:
        pieces += (_RAW_OUTPUT, _varint(len(tensor)), tensor)
    size = sum(map(len, pieces))
    if size > _MAX_BYTES:
        raise LimitError(
            f"the reply has {size} bytes; a message of protobuf has at most {_MAX_BYTES}", limit=_MAX_BYTES
        )
    return b"".join(pieces)


def in_stream(reply: bytes) -> bytes:
    """Return a reply as that to a request of a stream."""
    return b"".join((_INFER_RESPONSE, _varint(len(reply)), reply))


def failed_in_stream(message: bytes | memoryview, failure: Failure) -> bytes:
    """Return the reply to a request of a stream that has failed: its text, and the `id` of the request."""
    try:
        parts = request_parts(message)
    except LimitError:
        parts = None
    identity = b"" if parts is None or parts.id is None else parts.id
    reply = pb.ModelStreamInferResponse(error_message=failure.detail)
    reply.infer_response.id = identity.decode(errors="replace")[: schemas.LONGEST_ID]
    return bytes(reply.SerializeToString())
