"""One inference request, from its first byte to its reply: what is the same for every model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from core.errors import (
    FieldFault,
    InvalidRequestError,
    LimitError,
    MalformedRequestError,
    PreconditionError,
    TensorDataError,
)
from service.http.decompression import open_body
from service.http.json_body import MEDIA_TYPE, read_json, reserve_for_objects, tokens_of
from service.http.openapi_operation import BINARY
from service.http.query import read_query
from service.http.request_body import BodyReader
from service.http.responses import BuffersResponse, StreamedResponse
from service.oip import schemas
from service.oip import wire as oip
from service.oip.call import Call
from service.oip.datatypes import DATATYPES
from service.oip.models.conversions import check_input, named_in_model, outputs_of, report_of
from service.oip.models.model import Model
from service.oip.parameters import Value, completed
from service.oip.tensors import InputTensor, OutputTensor
from service.operations.conversion_call import ConversionResult, PlannedConversion, planned_conversion
from service.operations.conversion_run import Converted, convert_array, convert_body
from service.operations.plan_bytes import plan_bytes
from service.runtime.executor import TOKENS_PER_CHARACTER
from service.runtime.request_context import reserve_memory
from service.runtime.runtime import Runtime, require_ready
from service.runtime.settings import Settings

# JSON up to here is taken from where it was received, and needs no memory that is counted.
_SHORT_JSON = 16 << 10

Blobs = list[tuple[oip.InputHead, NDArray[np.uint8]]]


@dataclass(slots=True)
class _Asked:
    """What a request asks for, as far as its JSON says. `heads`: its inputs, in the order in which blobs follow.

    It is kept for requests of the same JSON, if no elements are in that. `planned` is what it means then for a model
    that is a conversion, if no other input has a say in that; `replied` is the last result with the JSON of its reply.
    """

    heads: list[oip.InputHead]
    inputs: dict[str, InputTensor]
    parameters: Mapping[str, Value | None]
    wanted: Mapping[str, bool]
    all_wanted: bool = True
    identity: Mapping[str, str] = field(default_factory=dict)
    planned: PlannedConversion | None = None
    replied: tuple[ConversionResult, bytes] | None = None
    binary: list[oip.InputHead] = field(init=False)
    blob_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.binary = [head for head in self.heads if head.values is None]
        self.blob_bytes = sum(head.blob_bytes for head in self.binary)

    def keep(self, running: Runtime, model: Model, text: bytes) -> None:
        """Keep it for requests of the same JSON."""
        if text and not self.inputs:
            plan = None if self.planned is None else self.planned.plan
            running.asked.put((model.name, text), self, plan_bytes(plan, len(text)))


@dataclass(slots=True)
class _Body:
    """The body of a request: its JSON, the blobs that were received, and whether the first input is still to come."""

    reader: BodyReader
    text: bytes
    length_stated: bool
    asked: _Asked
    blobs: Blobs = field(default_factory=list)
    first_arrives: bool = False

    async def receive(self, first: str | None, limit: int) -> None:
        """Receive the blobs, each to memory of its own, but for that of the input `first` if it is the last one.

        The body has at most `limit` bytes.
        """
        binary, reader = self.asked.binary, self.reader
        if reader.declared is not None:
            self._check(reader.declared - len(self.text))
        elif self.asked.blob_bytes > limit:
            await self.end()  # more than can come: that it does not is all that is left to see
        self.first_arrives = bool(binary) and binary[-1].name == first
        for head in binary[:-1] if self.first_arrives else binary:
            self.blobs.append((head, await reader.take(head.blob_bytes)))
        if not self.first_arrives or any(len(blob) < head.blob_bytes for head, blob in self.blobs):
            await self.end()

    async def end(self) -> None:
        """Receive what is left, and raise MalformedRequestError if the body has another length than its inputs."""
        await self.reader.skip_rest()
        self._check(self.reader.received - len(self.text))

    def _check(self, found: int) -> None:
        if found != self.asked.blob_bytes:
            raise oip.wrong_length(self.asked.blob_bytes, found, length_stated=self.length_stated)


async def run_model(request: Request, model: Model, version: str) -> Response:
    """Receive the JSON, check it against the model, receive the blobs to where they are used, plan, run and reply."""
    running, scope = require_ready(request), request.scope
    settings = running.settings
    length = oip.json_length(scope)
    limit = settings.max_json_bytes if length is None else settings.max_binary_bytes
    raw = length == 0
    fields = [parameter.name for parameter in model.parameters] if raw else ()
    query = read_query(request, fields) if scope["query_string"] else {}
    reader = open_body(scope, request.receive, limit, running.executor)
    if raw:
        body = await _receive_raw(reader, model, query)
    else:
        text = await _receive_json(reader, length, settings)
        asked: _Asked | None = running.asked.get((model.name, text))
        if asked is None:
            asked = await _ask(request, text, model, running)
        body = _Body(reader, text, length is not None, asked)
        # The error of a conversion is found with its whole input at hand.
        arrives = model.conversion is not None and not asked.parameters.get("error")
        await body.receive(model.inputs[0].name if arrives else None, limit)
    run = _run_job if model.conversion is None else _convert
    return await run(request, running, model, version, body, in_query=raw)


async def _ask(request: Request, text: bytes, model: Model, running: Runtime) -> _Asked:
    """Read the JSON part and check it against the model."""
    settings, weight = running.settings, tokens_of(text)
    await reserve_for_objects(request.scope, text, weight, settings.max_json_tokens)
    asked = await running.executor.run_text(weight // TOKENS_PER_CHARACTER, lambda: _read(text, model, settings))
    if model.conversion is None:
        asked.keep(running, model, text)
    return asked


async def _run_job(
    request: Request, running: Runtime, model: Model, version: str, body: _Body, *, in_query: bool
) -> Response:
    """Plan and run a call of a model, which takes its inputs whole."""
    asked = body.asked
    inputs = asked.inputs | {head.name: oip.tensor_of_blob(head, blob) for head, blob in body.blobs}
    call = Call(version, inputs, asked.parameters, running.settings, in_query)
    assert model.plan is not None
    job = await running.executor.run_text(call.characters, partial(model.plan, call))
    await reserve_memory(request.scope, job.byte_count)

    def run() -> Response:
        for head, blob in body.blobs:
            oip.check_booleans(head, blob)
        answer = job.run()
        members = _members(model, version, asked, answer.parameters)
        pieces, json_bytes = oip.encode(members, _chosen(answer.outputs, asked), running.settings.max_values)
        return BuffersResponse(pieces, *_described(json_bytes))

    return await running.executor.run_array(max(asked.blob_bytes + len(body.text), job.weight), run)


async def _convert(
    request: Request, running: Runtime, model: Model, version: str, body: _Body, *, in_query: bool
) -> Response:
    """Run a model that is a conversion of its first input, which may still arrive."""
    asked, first = body.asked, model.inputs[0].name
    planned, inputs = asked.planned, asked.inputs
    if planned is None or not body.first_arrives:
        inputs = inputs | {head.name: oip.tensor_of_blob(head, blob) for head, blob in body.blobs}
        if body.first_arrives:
            inputs[first] = oip.tensor_of_blob(asked.binary[-1], np.empty(0, np.uint8))
        planned = await _plan(model, Call(version, inputs, asked.parameters, running.settings, in_query), running)
        if len(inputs) == 1 and body.first_arrives:
            asked.planned = planned
            asked.keep(running, model, body.text)
    # Another output in binary follows y, so y is made whole then.
    y_alone = asked.wanted.get("y", False) and len(asked.wanted) == 1

    def reply(found: Converted) -> Response:
        members = _members(model, version, asked, report_of(found.result))
        data = found.output if isinstance(found.output, np.ndarray) else None
        outputs = _chosen(outputs_of(planned, data, multipliers=not y_alone), asked)
        pieces, json_bytes = oip.encode(members, outputs, running.settings.max_values)
        if not y_alone:
            return BuffersResponse(pieces, *_described(json_bytes))
        asked.replied = found.result, bytes(pieces[0])
        return _leaving(asked.replied[1], found)

    weight = asked.blob_bytes + len(body.text)
    reserve = partial(reserve_memory, request.scope)
    try:
        if body.first_arrives:
            found = await convert_body(body.reader, planned, running, reserve, body.end, whole=not y_alone)
        else:
            await reserve(planned.output_bytes)
            work = partial(convert_array, inputs[first].data, planned, running.metrics)
            found = await running.executor.run_array(weight, work)
    except (TensorDataError, PreconditionError) as error:
        error.pointer = error.pointer or next(head.pointer for head in asked.heads if head.name == first)
        raise
    if not y_alone:
        return await running.executor.run_array(weight, partial(reply, found))
    if asked.replied is not None and asked.replied[0] == found.result:
        return _leaving(asked.replied[1], found)
    return reply(found)


def _leaving(text: bytes, found: Converted) -> Response:
    """Return the reply of a conversion whose output follows the JSON."""
    if isinstance(found.output, np.ndarray):
        return BuffersResponse([text, found.output.view(np.uint8).data], *_described(len(text)))
    return StreamedResponse(text, found.output, found.result.planned.output_bytes, *_described(len(text)))


async def _plan(model: Model, call: Call, running: Runtime) -> PlannedConversion:
    """Plan a call of a model that is a conversion."""
    assert model.conversion is not None
    conversion = await running.executor.run_text(call.characters, partial(model.conversion, call))
    with named_in_model(call.inputs):
        planned = await planned_conversion(conversion, call.characters, running)
    check_input(call.inputs[model.inputs[0].name], planned)
    return planned


def _members(model: Model, version: str, asked: _Asked, parameters: Mapping[str, Value]) -> dict[str, Any]:
    """Return the members of a reply beside its outputs."""
    return {**asked.identity, "model_name": model.name, "model_version": version, "parameters": parameters}


def _described(json_bytes: int | None) -> tuple[str, tuple[tuple[bytes, bytes], ...]]:
    """Return the media type and the header fields of a reply, in which blobs follow so much JSON, if any do."""
    if json_bytes is None:
        return MEDIA_TYPE, ()
    return BINARY, ((oip.LENGTH_FIELD, b"%d" % json_bytes),)


async def _receive_json(reader: BodyReader, length: int | None, settings: Settings) -> bytes:
    """Receive the JSON part: of the stated length, or all of the body."""
    if length is None:
        return (await reader.rest()).tobytes()
    if length > settings.max_json_bytes:
        limit = settings.max_json_bytes
        raise LimitError(f"the JSON has {length} bytes; the limit is {limit}", limit=limit)
    found = length if reader.declared is None else min(length, reader.declared)
    text = b""
    if found == length:
        text = await reader.head(length) if length <= _SHORT_JSON else (await reader.take(length)).tobytes()
    if len(text) < length:
        found = len(text) if reader.declared is None else found
        raise MalformedRequestError(
            f"the Inference-Header-Content-Length is {length}; the whole body has {found} bytes"
        )
    return text


def _read(text: bytes, model: Model, settings: Settings) -> _Asked:
    """Read the JSON part and check it against the model."""
    request = read_json(text, schemas.InferenceRequest, settings)
    if request.model_name not in ("", model.name):
        detail = "the path names another model"
        raise InvalidRequestError(f"model_name: {detail}", (FieldFault("/model_name", "mismatch", detail),))
    heads = oip.input_heads(request.inputs, model, settings.max_rank)
    given = {name: value for name, value in request.parameters.items() if name != oip.BINARY_OUTPUT}
    return _Asked(
        heads=heads,
        inputs={head.name: oip.tensor_of_json(head, text, settings) for head in heads if head.values is not None},
        parameters=completed(model.parameters, given),
        wanted=oip.wanted_outputs(request, model),
        all_wanted=not request.outputs,
        identity={"id": request.id} if "id" in request.model_fields_set else {},
    )


async def _receive_raw(reader: BodyReader, model: Model, query: Mapping[str, str]) -> _Body:
    """Receive a body that is one tensor: of the input's usual datatype, one dimension, its parameters in the query."""
    needed = [slot for slot in model.inputs if not slot.optional]
    if len(needed) != 1:
        raise MalformedRequestError(
            "an Inference-Header-Content-Length of 0 says that the body is one tensor; "
            f"{model.name} takes {', '.join(slot.name for slot in model.inputs)}"
        )
    parameters = completed(
        model.parameters,
        {each.name: each.from_text(query[each.name]) for each in model.parameters if each.name in query},
    )
    datatype = DATATYPES[needed[0].datatypes[0]]
    blob = await reader.rest()
    elements, left = divmod(len(blob), datatype.dtype.itemsize)
    if left:
        raise MalformedRequestError(
            f"the body has {len(blob)} bytes, which is not a multiple of the size of {datatype.name}"
        )
    head = oip.InputHead(needed[0].name, datatype, (elements,), 0, None)
    asked = _Asked([head], {}, parameters, {slot.name: True for slot in model.outputs})
    return _Body(reader, b"", True, asked, [(head, blob)])


def _chosen(outputs: Iterable[OutputTensor], asked: _Asked) -> list[tuple[OutputTensor, bool]]:
    """Return the outputs that are wanted, each with whether it is sent in binary. A model may not give all it has."""
    given = {output.name: output for output in outputs}
    for name in asked.wanted:
        if name not in given and not asked.all_wanted:
            detail = f"this call has no output {name}; it has {', '.join(given)}"
            raise InvalidRequestError(detail, (FieldFault("/outputs", "missing", detail),))
    return [(given[name], binary) for name, binary in asked.wanted.items() if name in given]
