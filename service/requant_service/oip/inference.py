"""An inference request over HTTP, from its first byte to its reply.

A model that is a conversion of its first input runs while that arrives, if it is the last tensor of the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import LimitError, MalformedRequestError, PreconditionError, TensorDataError
from requant_service.http.json_body import MEDIA_TYPE, reserve_for_objects, tokens_of
from requant_service.http.openapi_operation import BINARY
from requant_service.http.query import read_query
from requant_service.http.request_body import BodyReader, open_body
from requant_service.http.responses import Buffer, BuffersResponse, Header, StreamedResponse, bytes_of, json_text
from requant_service.oip import wire as oip
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES
from requant_service.oip.execution import chosen_outputs, inputs_of, plan_conversion, run_in_memory
from requant_service.oip.models.conversions import outputs_of, report_of, y_is_alone
from requant_service.oip.models.model import Answer, Model
from requant_service.oip.parameters import Value, completed
from requant_service.oip.wire import InferenceHead, head_text, read_head
from requant_service.operations.conversion_run import Converted, convert_body
from requant_service.runtime.executor import TOKENS_PER_CHARACTER
from requant_service.runtime.runtime import Runtime, require_ready
from requant_service.runtime.settings import Settings

# JSON up to this length is read in place, and not counted in the memory budget.
_SHORT_JSON = 16 << 10


@dataclass(slots=True)
class _Body:
    """The body of a request: its head, and the blobs that were received."""

    reader: BodyReader
    json_bytes: int
    length_stated: bool
    head: InferenceHead
    blobs: oip.Blobs = field(default_factory=list)

    async def receive(self) -> None:
        """Receive the blobs, each to memory of its own, but for that of an input that is converted as it arrives."""
        head, reader = self.head, self.reader
        if reader.declared is not None:
            self.check(reader.declared)
        elif head.blob_bytes > reader.limit:
            await self.end()  # more than can come: only the end is still to be checked
        if head.arriving is not None and len(head.binary) == 1:
            return
        for each in head.binary:
            if each is not head.arriving:
                self.blobs.append((each, await reader.take(each.blob_bytes)))
        if head.arriving is None or any(len(blob) < each.blob_bytes for each, blob in self.blobs):
            await self.end()

    async def end(self) -> None:
        """Receive what is left, and raise MalformedRequestError if the body has another length than its inputs."""
        await self.reader.skip_rest()
        self.check(self.reader.received)

    def check(self, body_bytes: int) -> None:
        """Raise MalformedRequestError unless a body of so many bytes has the length that its inputs say."""
        actual = body_bytes - self.json_bytes
        if actual != self.head.blob_bytes:
            raise oip.wrong_length(self.head.blob_bytes, actual, length_stated=self.length_stated)


async def infer(request: Request, model: Model, version: str) -> Response:
    """Receive the JSON, check it against the model, receive the blobs to where they are used, plan, run and reply."""
    running, scope = require_ready(request), request.scope
    settings = running.settings
    length = oip.json_length(scope)
    limit = settings.max_json_bytes if length is None else settings.max_binary_bytes
    raw = length == 0
    fields = [parameter.name for parameter in model.parameters] if raw else ()
    query = read_query(request, fields) if scope["query_string"] else {}
    reader = open_body(scope, request.receive, limit, running.executor)
    reply = _Reply(model, version, running)
    if raw:
        body = await _receive_raw(reader, model, query)
        return await _run_in_memory(model, version, body, reply, in_query=True)
    text = await _receive_json(reader, length, settings)
    # Without an id at either end, a head is known by all of its text, and that is not cut.
    key, cut = (model.name, version, text, b""), None
    head: InferenceHead | None = running.decoded.get(key)
    if head is None:
        cut = head_text(text)
        if cut.id is not None:
            key = (model.name, version, cut.before, cut.after)
            head = running.decoded.get(key)
    kept = head is not None
    if head is None:
        head = await _decode(request, text, model, running)
    reply.id = head.id if cut is None or cut.id is None else cut.id
    body = _Body(reader, len(text), length is not None, head)
    await body.receive()
    if head.arriving is None:
        response = await _run_in_memory(model, version, body, reply)
    else:
        response = await _run_arriving(head.arriving, model, version, body, reply)
    if not kept and cut is not None and cut.is_text_of(head):
        running.decoded.put(key, head, head.held_bytes(len(text)))
    return response


async def _decode(request: Request, text: bytes, model: Model, running: Runtime) -> InferenceHead:
    """Decode a head that is not known."""
    settings, weight = running.settings, tokens_of(text)
    await reserve_for_objects(request.scope, text, weight, settings.max_json_tokens)
    return await running.executor.run_text(weight // TOKENS_PER_CHARACTER, lambda: read_head(text, model, settings))


@dataclass(slots=True)
class _Reply:
    """What the replies to a request are made of, beside its outputs."""

    model: Model
    version: str
    running: Runtime
    id: str | None = None

    def pieces(self, head: InferenceHead, answer: Answer) -> tuple[list[Buffer], int | None]:
        """Return a reply without its `id` as pieces, and the length of its JSON if anything follows that."""
        members = {"model_name": self.model.name, "model_version": self.version, "parameters": answer.parameters}
        outputs = chosen_outputs(answer.outputs, head)
        return oip.encode(members, outputs, self.running.settings.max_values)

    def text(self, text: bytes) -> bytes:
        """Return the JSON of a reply with the `id` of the request."""
        return text if self.id is None else b'{"id":' + json_text(self.id) + b"," + text[1:]

    def response(self, head: InferenceHead, answer: Answer) -> Response:
        """Return the reply with outputs that are in memory."""
        pieces, json_bytes = self.pieces(head, answer)
        text = self.text(bytes(pieces[0]))
        if json_bytes is None:
            return BuffersResponse([text], MEDIA_TYPE)
        return BuffersResponse([text, *pieces[1:]], BINARY, _length_field(text))

    def leaving(self, text: bytes, fields: tuple[Header, ...], converted: Converted) -> Response:
        """Return the reply of a conversion whose output alone follows the JSON, which is `text` without the `id`."""
        if self.id is not None:
            text = self.text(text)
            fields = _length_field(text)
        output = converted.output
        if isinstance(output, np.ndarray):
            return BuffersResponse([text, bytes_of(output)], BINARY, fields)
        return StreamedResponse(text, output, converted.result.planned.output_bytes, BINARY, fields)


def _length_field(text: bytes) -> tuple[Header, ...]:
    return ((oip.LENGTH_FIELD, b"%d" % len(text)),)


async def _run_in_memory(model: Model, version: str, body: _Body, reply: _Reply, *, in_query: bool = False) -> Response:
    """Run a call whose inputs were received whole."""
    running, head = reply.running, body.head
    call = Call(version, inputs_of(head, body.blobs), head.parameters, running.settings, in_query)
    return await run_in_memory(model, head, call, running, body.reader.reserve, partial(reply.response, head))


async def _run_arriving(arriving: oip.InputHead, model: Model, version: str, body: _Body, reply: _Reply) -> Response:
    """Run a model that is a conversion of its first input, which is still `arriving`."""
    running, head = reply.running, body.head
    planned = head.planned
    if planned is None:
        inputs = {**inputs_of(head, body.blobs), arriving.name: oip.tensor_of_blob(arriving, np.empty(0, np.uint8))}
        call = Call(version, inputs, head.parameters, running.settings)
        planned = await plan_conversion(model, head, call, running)
    # Another output in binary follows y, so y is made whole then.
    y_alone = y_is_alone(planned, head.wanted)
    try:
        converted = await convert_body(body.reader, planned, running, body.check, whole=not y_alone)
    except (TensorDataError, PreconditionError) as error:
        error.pointer = error.pointer or arriving.pointer
        raise

    def answer() -> Answer:
        data = converted.output if isinstance(converted.output, np.ndarray) else None
        return Answer(tuple(outputs_of(planned, data, multipliers=not y_alone)), report_of(converted.result))

    if not y_alone:
        return await running.executor.run_array(head.blob_bytes, lambda: reply.response(head, answer()))
    known = head.replied
    if known is None or known[0] != converted.result:
        pieces, _ = reply.pieces(head, answer())
        text = bytes(pieces[0])
        known = head.replied = converted.result, text, _length_field(text)
    return reply.leaving(known[1], known[2], converted)


async def _receive_json(reader: BodyReader, length: int | None, settings: Settings) -> bytes:
    """Receive the JSON part: of the stated length, or all of the body."""
    if length is None:
        return (await reader.rest()).tobytes()
    if length > settings.max_json_bytes:
        limit = settings.max_json_bytes
        raise LimitError(f"the JSON has {length} bytes; the limit is {limit}", limit=limit)
    received = length if reader.declared is None else min(length, reader.declared)
    text = b""
    if received == length:
        text = await reader.head(length) if length <= _SHORT_JSON else (await reader.take(length)).tobytes()
    if len(text) < length:
        received = len(text) if reader.declared is None else received
        raise MalformedRequestError(
            f"the Inference-Header-Content-Length is {length}; the whole body has {received} bytes"
        )
    return text


async def _receive_raw(reader: BodyReader, model: Model, query: Mapping[str, str]) -> _Body:
    """Receive a body that is one tensor: of the input's usual datatype, one dimension, its parameters in the query."""
    needed = [slot for slot in model.inputs if not slot.optional]
    if len(needed) != 1:
        named = ", ".join(slot.name for slot in model.inputs) or "none"
        raise MalformedRequestError(
            f"an Inference-Header-Content-Length of 0 means that the body is one tensor; {model.name} takes {named}"
        )
    own_parameters: dict[str, Value] = {
        each.name: each.from_text(query[each.name]) for each in model.parameters if each.name in query
    }
    parameters = completed(model.parameters, own_parameters)
    datatype = DATATYPES[needed[0].datatypes[0]]
    blob = await reader.rest()
    elements, left = divmod(len(blob), datatype.dtype.itemsize)
    if left:
        raise MalformedRequestError(
            f"the body has {len(blob)} bytes, which is not a multiple of the size of {datatype.name}"
        )
    input_head = oip.InputHead(needed[0].name, datatype, (elements,), 0, None)
    head = InferenceHead([input_head], {}, parameters, {slot.name: True for slot in model.outputs})
    return _Body(reader, 0, True, head, [(input_head, blob)])
