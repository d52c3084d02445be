"""Inference requests as messages: decoded, run as requests over HTTP are, and answered with messages.

A reply is put together of what protobuf writes and the tensors, which are copied once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from requant.errors import (
    InvalidRequestError,
    LimitError,
    MalformedRequestError,
    PreconditionError,
    TensorDataError,
    UnknownNameError,
)
from requant.errors.cancellation import check_cancelled
from requant_service.http.responses import Buffer
from requant_service.oip import schemas
from requant_service.oip.call import Call
from requant_service.oip.execution import chosen_outputs, inputs_of, run_in_memory
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.grpc.calls import Message
from requant_service.oip.grpc.inference_request import blobs_of, head_of
from requant_service.oip.grpc.statuses import Failure, NotFoundError
from requant_service.oip.grpc.wire_format import (
    RequestParts,
    check_field_count,
    parse,
    request_parts,
    written_varint,
)
from requant_service.oip.models.conversions import outputs_of, report_of, y_is_alone
from requant_service.oip.models.model import Answer, Model
from requant_service.oip.models.registry import model_named
from requant_service.oip.parameters import Value
from requant_service.oip.tensors import OutputTensor
from requant_service.oip.wire import InferenceHead
from requant_service.operations.conversion_call import ConversionResult
from requant_service.operations.conversion_run import convert_in_memory
from requant_service.runtime.request_context import RequestContext
from requant_service.runtime.runtime import Runtime

# The tags of `ModelInferResponse.id` and `raw_output_contents`, and of `ModelStreamInferResponse.infer_response`: the
# number of the field times 8, and 2.
_ID, _RAW_OUTPUT, _INFER_RESPONSE = bytes([3 << 3 | 2]), bytes([6 << 3 | 2]), bytes([2 << 3 | 2])
# What one message of protobuf can hold.
_MAX_BYTES = (1 << 31) - 1


def id_field(request_id: bytes | None) -> bytes:
    """Return the `id` of a request as the field of a reply; nothing if there is none, or an empty one."""
    if not request_id:
        return b""
    try:
        length = len(request_id.decode())
    except UnicodeDecodeError:
        raise MalformedRequestError("the id is not UTF-8") from None
    if length > schemas.LONGEST_ID:
        raise InvalidRequestError.of_field(
            "/id", "string_too_long", f"an id has at most {schemas.LONGEST_ID} characters"
        )
    return b"".join((_ID, written_varint(len(request_id)), request_id))


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


def with_tensors(reply: bytes, identity: bytes, tensors: Iterable[Buffer]) -> bytes:
    """Return a reply with its `id` and tensors. Raise LimitError if that is more than a message can hold."""
    pieces: list[Buffer] = [reply, identity]
    for tensor in tensors:
        pieces += (_RAW_OUTPUT, written_varint(len(tensor)), tensor)
    size = sum(map(len, pieces))
    if size > _MAX_BYTES:
        raise LimitError(
            f"the reply has {size} bytes; a message of protobuf has at most {_MAX_BYTES}", limit=_MAX_BYTES
        )
    return b"".join(pieces)


def in_stream(reply: bytes) -> bytes:
    """Return a reply as that to a request of a stream."""
    return b"".join((_INFER_RESPONSE, written_varint(len(reply)), reply))


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


# Heads up to this length are not counted in the memory budget.
_SHORT_HEAD = 16 << 10
# The longest message that is not written as protobuf writers do.
_MAX_UNUSUAL_BYTES = 64 << 10
# What a byte of a head takes when it is parsed: two bytes can be an element of a list that takes sixty.
_BYTES_FOR_HEAD_BYTE = 40
# Bytes of a head that are parsed in the time of a character of a type.
_BYTES_PER_CHARACTER = 8
# Of a reply that leaves: the outputs, and the message made of them.
_COPIES_OF_REPLY = 2


@dataclass(slots=True)
class _KnownHead:
    """The head of requests, kept by its bytes: the model and version that it names, and what it means.

    `converted` is the last result of a conversion, and the reply with it without `id` and tensors.
    """

    model: Model
    version: str
    head: InferenceHead
    converted: tuple[ConversionResult, bytes] | None = None


async def infer(running: Runtime, message: Message, request: RequestContext) -> bytes:
    """Run the model that a request names, and return the reply to it. Raise what is wrong with the request."""
    running.require_ready()
    parts = await _cut(running, message, request)
    key = ("grpc", parts.head)
    known: _KnownHead | None = running.decoded.get(key)
    kept = known is not None
    if known is None:
        known = await _decode(running, parts.head, request)
    head, settings = known.head, running.settings
    identity = id_field(parts.id)
    if head.planned is not None and not head.uses_shared_memory and y_is_alone(head.planned, head.wanted):
        return await _convert(running, known, parts.raw, identity, request)
    call = Call(known.version, inputs_of(head, blobs_of(head, parts.raw)), head.parameters, settings)
    reply = await run_in_memory(
        known.model,
        head,
        _aligned(known.model, call),
        running,
        lambda byte_count: _reserve(request, _COPIES_OF_REPLY * byte_count),
        partial(_encode, known, identity),
    )
    if not kept and not head.inputs:
        running.decoded.put(key, known, head.held_bytes(len(parts.head)))
    return reply


async def _cut(running: Runtime, message: Message, request: RequestContext) -> RequestParts:
    """Cut a message, or have it parsed whole if it is not written as usual. Then it has to be short."""
    parts, limit = request_parts(message), running.settings.max_json_bytes
    if parts is None and len(message) > _MAX_UNUSUAL_BYTES:
        raise LimitError(
            f"the message is not a ModelInferRequest as protobuf writes it; otherwise written, it has at most "
            f"{_MAX_UNUSUAL_BYTES} bytes",
            limit=_MAX_UNUSUAL_BYTES,
        )
    if parts is not None and len(parts.head) > limit:
        raise LimitError(f"the message has more than {limit} bytes besides raw_input_contents", limit=limit)
    if parts is not None:
        return parts
    parsed = await _parsed(running, bytes(message), request)
    raw, identity = [memoryview(each) for each in parsed.raw_input_contents], parsed.id.encode()
    del parsed.raw_input_contents[:]
    parsed.id = ""
    return RequestParts(parsed.SerializeToString(), identity, raw)


async def _parsed(running: Runtime, head: bytes, request: RequestContext) -> pb.ModelInferRequest:
    """Parse a head, after its fields were counted if it is long."""
    if len(head) > _SHORT_HEAD:
        await _reserve(request, _BYTES_FOR_HEAD_BYTE * len(head))
    return await running.executor.run_text(len(head) // _BYTES_PER_CHARACTER, partial(_counted_and_parsed, head))


def _counted_and_parsed(head: bytes) -> pb.ModelInferRequest:
    if len(head) > _SHORT_HEAD:
        check_field_count(memoryview(head), pb.ModelInferRequest.DESCRIPTOR)
        check_cancelled()
    parsed: pb.ModelInferRequest = parse(pb.ModelInferRequest, head)
    return parsed


async def _decode(running: Runtime, head: bytes, request: RequestContext) -> _KnownHead:
    """Decode a head that is not known, and check it against the model that it names."""
    parsed = await _parsed(running, head, request)
    try:
        model, version = model_named(parsed.model_name, parsed.model_version or None)
    except UnknownNameError as error:
        raise NotFoundError(error) from None
    weight = len(head) // _BYTES_PER_CHARACTER
    decoded = await running.executor.run_text(weight, lambda: head_of(parsed, model, running.settings))
    return _KnownHead(model, version, decoded)


async def _convert(
    running: Runtime, known: _KnownHead, raw: Sequence[memoryview], identity: bytes, request: RequestContext
) -> bytes:
    """Run a conversion that is planned, and has one input and one output: what most requests are."""
    ((head, blob),), planned = blobs_of(known.head, raw), known.head.planned
    assert planned is not None
    await _reserve(request, _COPIES_OF_REPLY * planned.output_bytes)
    try:
        converted = await convert_in_memory(blob.view(planned.input_dtype), planned, running)
    except (TensorDataError, PreconditionError) as error:
        error.pointer = error.pointer or head.pointer
        raise

    def encode() -> bytes:
        assert isinstance(converted.output, np.ndarray)
        if known.converted is None or known.converted[0] != converted.result:
            outputs = outputs_of(planned, converted.output, multipliers=False)
            chosen = [output for output, _ in chosen_outputs(outputs, known.head)]
            reply = described(known.model.name, known.version, report_of(converted.result), chosen)
            known.converted = converted.result, reply
        return with_tensors(known.converted[1], identity, [converted.output.view(np.uint8).data])

    if planned.output_bytes <= running.settings.inline_bytes:
        return encode()
    return await running.executor.run_array(planned.output_bytes, encode)


def _aligned(model: Model, call: Call) -> Call:
    """Return a call whose tensors are at even addresses. The input of a conversion stays: it is copied in parts."""
    first = model.inputs[0].name if model.conversion is not None else None
    odd = {
        name: replace(tensor, data=tensor.data.copy())
        for name, tensor in call.inputs.items()
        if name != first and not tensor.data.flags.aligned
    }
    return replace(call, inputs={**call.inputs, **odd}) if odd else call


def _encode(known: _KnownHead, identity: bytes, answer: Answer) -> bytes:
    """Return the reply with an answer."""
    outputs = [output for output, _ in chosen_outputs(answer.outputs, known.head)]
    reply = described(known.model.name, known.version, answer.parameters, outputs)
    # An output in shared memory has an empty one: clients rely on the number.
    tensors = [b"" if output.data is None else output.data.view(np.uint8).data for output in outputs]
    return with_tensors(reply, identity, tensors)


async def _reserve(request: RequestContext, byte_count: int) -> None:
    if request.reservation is not None:
        await request.reservation.grow(byte_count)
