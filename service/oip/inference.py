"""One inference request, from its first byte to its reply: what is the same for every model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.errors import FieldFault, InvalidRequestError, LimitError, MalformedRequestError
from service.http.decompression import open_body
from service.http.json_body import MEDIA_TYPE, read_json, reserve_for_objects, tokens_of
from service.http.openapi_operation import BINARY
from service.http.query import read_query
from service.http.request_body import BodyReader
from service.http.responses import BuffersResponse
from service.oip import schemas
from service.oip import wire as oip
from service.oip.call import Call
from service.oip.datatypes import DATATYPES
from service.oip.models.model import Answer, Job, Model
from service.oip.parameters import Value, completed
from service.oip.tensors import InputTensor, OutputTensor
from service.runtime.executor import TOKENS_PER_CHARACTER
from service.runtime.metrics import Metrics
from service.runtime.request_context import reserve_memory
from service.runtime.runtime import require_ready
from service.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request asks for, as far as its JSON says. `heads`: its inputs, in the order in which blobs follow."""

    heads: list[oip.InputHead]
    inputs: dict[str, InputTensor]
    parameters: Mapping[str, Value | None]
    wanted: Mapping[str, bool]
    all_wanted: bool = True
    identity: Mapping[str, str] = field(default_factory=dict)


async def run_model(request: Request, model: Model, version: str) -> Response:
    """Receive the JSON, check it against the model, receive the blobs to where they are used, plan, run and reply."""
    running = require_ready(request)
    settings = running.settings
    length = oip.json_length(request.headers)
    limit = settings.max_json_bytes if length is None else settings.max_binary_bytes
    raw = length == 0
    query = read_query(request, [parameter.name for parameter in model.parameters] if raw else ())
    reader = open_body(request.scope, request.receive, limit, running.executor)
    if raw:
        text = b""
        blobs, asked = await _receive_raw(reader, model, query)
    else:
        text = await _receive_json(reader, length, settings)
        weight = tokens_of(text)
        await reserve_for_objects(request.scope, text, weight, settings.max_json_tokens)
        asked = await running.executor.run_text(weight // TOKENS_PER_CHARACTER, lambda: _read(text, model, settings))
        blobs = await _receive_blobs(reader, asked.heads, len(text), length_stated=length is not None)
    blob_bytes = sum(len(blob) for _, blob in blobs)

    def decide() -> Job:
        inputs = asked.inputs | {head.name: oip.tensor_of_blob(head, blob) for head, blob in blobs}
        return model.plan(Call(version, inputs, asked.parameters, settings, running.planned, in_query=raw))

    # The first operand is not looked at while the call is planned; others may be scales, of two bytes a character.
    operands = {head.name: len(blob) for head, blob in blobs} | {
        name: tensor.data.nbytes for name, tensor in asked.inputs.items()
    }
    others = sum(operands.values()) - operands.get(model.inputs[0].name, 0)
    characters = sum(len(value) for value in asked.parameters.values() if isinstance(value, str))
    job = await running.executor.run_text(characters + others // 2, decide)
    await reserve_memory(request.scope, job.byte_count)

    def run() -> Response:
        for head, blob in blobs:
            oip.check_booleans(head, blob)
        answer = job.run()
        _count(running.metrics, model, answer)
        given = {output.name: output for output in answer.outputs}
        members = {
            **asked.identity,
            "model_name": model.name,
            "model_version": version,
            "parameters": answer.parameters,
        }
        pieces, json_bytes = oip.encode(members, _chosen(given, asked), settings.max_values)
        if json_bytes is None:
            return BuffersResponse(pieces, MEDIA_TYPE)
        return BuffersResponse(pieces, BINARY, ((oip.LENGTH_HEADER.encode("ascii"), str(json_bytes).encode("ascii")),))

    return await running.executor.run_array(max(blob_bytes + len(text), job.weight), run)


Blobs = list[tuple[oip.InputHead, Any]]


async def _receive_json(reader: BodyReader, length: int | None, settings: Settings) -> bytes:
    """Receive the JSON part: of the stated length, or all of the body."""
    if length is None:
        return (await reader.rest()).tobytes()
    if length > settings.max_json_bytes:
        limit = settings.max_json_bytes
        raise LimitError(f"the JSON has {length} bytes; the limit is {limit}", limit=limit)
    found = length if reader.declared is None else min(length, reader.declared)
    text = (await reader.take(length)).tobytes() if found == length else b""
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


async def _receive_blobs(
    reader: BodyReader, heads: list[oip.InputHead], json_bytes: int, *, length_stated: bool
) -> Blobs:
    """Receive what follows the JSON, each blob to memory of its own."""
    if reader.declared is not None:
        oip.check_blobs(heads, reader.declared - json_bytes, length_stated=length_stated)
    blobs = [(head, await reader.take(head.blob_bytes)) for head in heads if head.values is None]
    found = sum(len(blob) for _, blob in blobs) + await reader.skip_rest()
    oip.check_blobs(heads, found, length_stated=length_stated)
    return blobs


async def _receive_raw(reader: BodyReader, model: Model, query: Mapping[str, str]) -> tuple[Blobs, _Asked]:
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
    return [(head, blob)], _Asked([head], {}, parameters, {slot.name: True for slot in model.outputs})


def _count(metrics: Metrics, model: Model, answer: Answer) -> None:
    """Count what a conversion did."""
    said = answer.parameters
    profile, elements, saturated = said.get("profile"), said.get("elements"), said.get("saturated")
    if isinstance(profile, str) and isinstance(elements, int) and isinstance(saturated, int):
        metrics.converted(model.name, profile, answer.outputs[0].element_type, elements, saturated)


def _chosen(given: Mapping[str, OutputTensor], asked: _Asked) -> list[tuple[OutputTensor, bool]]:
    """Return the outputs that are wanted, each with whether it is sent in binary. A model may not give all it has."""
    for name in asked.wanted:
        if name not in given and not asked.all_wanted:
            detail = f"this call has no output {name}; it has {', '.join(given)}"
            raise InvalidRequestError(detail, (FieldFault("/outputs", "missing", detail),))
    return [(given[name], binary) for name, binary in asked.wanted.items() if name in given]
