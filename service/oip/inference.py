"""One inference request, from its first byte to its reply: what is the same for every model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
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
from service.http.json_body import MEDIA_TYPE, hold_objects, read_json, tokens_of
from service.http.openapi_operation import BINARY
from service.http.problems import at
from service.http.query import read_query
from service.http.request_body import BodyReader
from service.http.responses import LeavingResponse, PiecesResponse
from service.oip import schemas
from service.oip import wire as oip
from service.oip.call import Call
from service.oip.datatypes import DATATYPES
from service.oip.models.conversions import check_input, named_in_model, outputs_of, report_of
from service.oip.models.model import Model
from service.oip.parameters import Value, completed
from service.oip.tensors import InputTensor, OutputTensor
from service.operations.conversion_call import PlannedConversion, planned_conversion
from service.operations.conversion_run import ArrayBody, Body, convert
from service.operations.plan_bytes import plan_bytes
from service.runtime.executor import TOKENS_PER_CHARACTER
from service.runtime.memory_budget import hold
from service.runtime.runtime import Runtime, require_ready
from service.runtime.settings import Settings

# JSON up to here is taken from where it was received, and needs no memory that is counted.
_SHORT_JSON = 16 << 10

Blobs = list[tuple[oip.InputHead, NDArray[np.uint8]]]


@dataclass(slots=True)
class _Asked:
    """What a request asks for, as far as its JSON says. `heads`: its inputs, in the order in which blobs follow.

    It is kept for requests of the same JSON, by that as its `key`, if no elements are in it. `planned` is what it means
    for a model that is a conversion, if no other input has a say in that.
    """

    heads: list[oip.InputHead]
    inputs: dict[str, InputTensor]
    parameters: Mapping[str, Value | None]
    wanted: Mapping[str, bool]
    all_wanted: bool = True
    identity: Mapping[str, str] = field(default_factory=dict)
    key: Hashable = None
    planned: PlannedConversion | None = None

    def keep(self, running: Runtime, characters: int) -> None:
        """Keep it for requests of the same JSON."""
        if self.key is not None and not self.inputs:
            plan = None if self.planned is None else self.planned.plan
            running.asked.put(self.key, self, plan_bytes(plan, characters))


@dataclass(frozen=True, slots=True)
class _Tensors:
    """The body after its JSON: the blobs that were received, and the reader if that of the first input is to come."""

    reader: BodyReader
    heads: list[oip.InputHead]
    json_bytes: int
    length_stated: bool
    blobs: Blobs = field(default_factory=list)

    @property
    def first_arrives(self) -> bool:
        """Whether the last blob is still to be received."""
        return len(self.blobs) < sum(head.values is None for head in self.heads)

    @property
    def byte_count(self) -> int:
        """The bytes of all blobs, as the heads say."""
        return sum(head.blob_bytes for head in self.heads)

    async def receive(self, first: str | None, limit: int) -> None:
        """Receive the blobs, each to memory of its own, but for that of the input `first` if it is the last one.

        The body has at most `limit` bytes.
        """
        if self.reader.declared is not None:
            self._check(self.reader.declared - self.json_bytes)
        elif self.byte_count > limit:
            await self.end()  # more than can come: that it does not is all that is left to see
        binary = [head for head in self.heads if head.values is None]
        arrives = first is not None and binary and binary[-1].name == first
        for head in binary[:-1] if arrives else binary:
            self.blobs.append((head, await self.reader.take(head.blob_bytes)))
        if not arrives or any(len(blob) < head.blob_bytes for head, blob in self.blobs):
            await self.end()

    async def end(self) -> None:
        """Receive what is left, and raise MalformedRequestError if the body has another length than its inputs."""
        await self.reader.skip_rest()
        self._check(self.reader.received - self.json_bytes)

    def _check(self, found: int) -> None:
        oip.check_blobs(self.heads, found, length_stated=self.length_stated)


async def run_model(request: Request, model: Model, version: str) -> Response:
    """Receive the JSON, check it against the model, receive the blobs to where they are used, plan, run and reply."""
    running, scope = require_ready(request), request.scope
    settings = running.settings
    length = oip.json_length(scope)
    limit = settings.max_json_bytes if length is None else settings.max_binary_bytes
    raw = length == 0
    fields = [parameter.name for parameter in model.parameters] if raw else ()
    query = read_query(request, fields) if scope["query_string"] else {}
    reader = open_body(scope, request.receive, limit, running.compute)
    if raw:
        tensors, asked = await _receive_raw(reader, model, query)
    else:
        text = await _receive_json(reader, length, settings)
        asked = await _ask(request, text, model, running)
        tensors = _Tensors(reader, asked.heads, len(text), length is not None)
        await tensors.receive(model.inputs[0].name if model.conversion is not None else None, limit)
    if model.conversion is None:
        return await _run_job(request, model, version, asked, tensors, in_query=raw)
    return await _convert(request, model, version, asked, tensors, in_query=raw)


async def _ask(request: Request, text: bytes, model: Model, running: Runtime) -> _Asked:
    """Read the JSON part and check it against the model, unless it is kept."""
    key = (model.name, text)
    asked: _Asked | None = running.asked.get(key)
    if asked is None:
        settings, weight = running.settings, tokens_of(text)
        await hold_objects(request.scope, text, weight, settings.max_json_tokens)
        asked = await running.compute.texts(weight // TOKENS_PER_CHARACTER, lambda: _read(text, model, settings))
        asked.key = key
        if model.conversion is None:
            asked.keep(running, len(text))
    return asked


async def _run_job(
    request: Request, model: Model, version: str, asked: _Asked, tensors: _Tensors, *, in_query: bool
) -> Response:
    """Plan and run a call of a model, which takes its inputs whole."""
    running = require_ready(request)
    inputs = asked.inputs | {head.name: oip.tensor_of_blob(head, blob) for head, blob in tensors.blobs}
    call = Call(version, inputs, asked.parameters, running.settings, in_query)
    assert model.plan is not None
    job = await running.compute.texts(call.characters, partial(model.plan, call))
    await hold(request.scope, job.byte_count)

    def run() -> Response:
        for head, blob in tensors.blobs:
            oip.check_booleans(head, blob)
        answer = job.run()
        members = _members(model, version, asked, answer.parameters)
        pieces, json_bytes = oip.encode(members, _chosen(answer.outputs, asked), running.settings.max_values)
        return PiecesResponse(pieces, *_described(json_bytes))

    return await running.compute.arrays(max(tensors.byte_count + tensors.json_bytes, job.weight), run)


async def _convert(
    request: Request, model: Model, version: str, asked: _Asked, tensors: _Tensors, *, in_query: bool
) -> Response:
    """Run a model that is a conversion of its first input, which may still arrive."""
    running, scope = require_ready(request), request.scope
    first = model.inputs[0].name
    inputs = asked.inputs | {head.name: oip.tensor_of_blob(head, blob) for head, blob in tensors.blobs}
    body: Body = tensors.reader if tensors.first_arrives else ArrayBody(inputs[first].data)
    planned = asked.planned
    if planned is None:
        if tensors.first_arrives:
            inputs[first] = oip.tensor_of_blob(tensors.heads[-1], np.empty(0, np.uint8))
        planned = await _plan(model, Call(version, inputs, asked.parameters, running.settings, in_query), running)
        if len(inputs) == 1:
            asked.planned = planned
            asked.keep(running, tensors.json_bytes)
    # What else is in binary follows y, so that y is made whole then.
    y_leaves = [name for name, binary in asked.wanted.items() if binary] == ["y"] == list(asked.wanted)
    place = next(head.pointer for head in asked.heads if head.name == first)
    with at(place, TensorDataError, PreconditionError):
        found = await convert(
            body, planned, running, lambda size: hold(scope, size), end=tensors.end, whole=not y_leaves
        )

    def reply() -> Response:
        members = _members(model, version, asked, report_of(found.result))
        data = found.output if isinstance(found.output, np.ndarray) else None
        outputs = _chosen(outputs_of(planned, data), asked)
        pieces, json_bytes = oip.encode(members, outputs, running.settings.max_values)
        if isinstance(found.output, np.ndarray):
            return PiecesResponse(pieces, *_described(json_bytes))
        return LeavingResponse(bytes(pieces[0]), found.output, planned.output_bytes, *_described(json_bytes))

    if y_leaves:
        return reply()
    return await running.compute.arrays(tensors.byte_count + tensors.json_bytes, reply)


async def _plan(model: Model, call: Call, running: Runtime) -> PlannedConversion:
    """Plan a call of a model that is a conversion."""
    assert model.conversion is not None
    conversion = await running.compute.texts(call.characters, partial(model.conversion, call))
    with named_in_model(call.inputs):
        planned = await planned_conversion(conversion, running)
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
        raise LimitError(f"the JSON has {length} bytes; at most {limit} are taken", limit=limit)
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


async def _receive_raw(reader: BodyReader, model: Model, query: Mapping[str, str]) -> tuple[_Tensors, _Asked]:
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
            f"the body has {len(blob)} bytes, which is no whole number of {datatype.name} elements"
        )
    head = oip.InputHead(needed[0].name, datatype, (elements,), 0, None)
    tensors = _Tensors(reader, [head], 0, True, [(head, blob)])
    return tensors, _Asked([head], {}, parameters, {slot.name: True for slot in model.outputs})


def _chosen(outputs: Iterable[OutputTensor], asked: _Asked) -> list[tuple[OutputTensor, bool]]:
    """Return the outputs that are wanted, each with whether it is sent in binary. A model may not give all it has."""
    given = {output.name: output for output in outputs}
    for name in asked.wanted:
        if name not in given and not asked.all_wanted:
            detail = f"this call has no output {name}; it has {', '.join(given)}"
            raise InvalidRequestError(detail, (FieldFault("/outputs", "missing", detail),))
    return [(given[name], binary) for name, binary in asked.wanted.items() if name in given]
