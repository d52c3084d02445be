"""Every operation has an example: the service answers its request with 200 and with the reply that is shown."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from requant_service.http.openapi_operation import EXAMPLES, Example
from requant_service.openapi.examples import EXAMPLE_REQUEST_ID, example_files, recorded_replies
from requant_service.openapi.recording import (
    encoded_request,
    example_url,
    refused_requests,
    reply_to_record,
    shared_memory_object,
)
from tests.support.asgi import ready_app

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects of shared memory are files on Linux")

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[3] / "openapi" / "openapi.json").read_text())
OPERATIONS = {
    operation["operationId"]: (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
RECORDED = {name: found for name, found in OPERATIONS.items() if EXAMPLES[name].recorded}
"""Those whose examples need nothing that only a sender has."""


async def answer(client: httpx.AsyncClient, name: str) -> httpx.Response:
    method, path, _ = OPERATIONS[name]
    body, headers = encoded_request(EXAMPLES[name])
    reply = await client.request(method, example_url(path, EXAMPLES[name]), content=body, headers=headers)
    assert reply.status_code == 200, (name, reply.text)
    return reply


async def answers() -> dict[str, httpx.Response]:
    transport = httpx.ASGITransport(ready_app(shared_memory=True))
    found = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for name in RECORDED:
            await answer(client, "oipUnregisterAllSharedMemory")
            if (before := EXAMPLES[name].after) is not None:
                await answer(client, before)
            found[name] = await answer(client, name)
    return found


@pytest.fixture(scope="module")
def replies() -> dict[str, httpx.Response]:
    """What the service answers to every example now."""
    with shared_memory_object():
        return asyncio.run(answers())


async def refusals() -> dict[str, Any]:
    found = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(ready_app()), base_url="http://localhost") as client:
        for method, path, body, headers in refused_requests().values():
            sent = {**headers, "x-request-id": EXAMPLE_REQUEST_ID}
            reply = await client.request(method, path, content=body, headers=sent)
            found[str(reply.status_code)] = reply.json()
    return found


def test_problems_are_the_ones_that_are_shown() -> None:
    found = asyncio.run(refusals())
    assert found.keys() == {str(status) for status in refused_requests()}
    for response in DOCUMENT["components"]["responses"].values():
        (content,) = response["content"].values()
        example = content["example"]
        status = str(example["status"])
        assert example == found.pop(status, example)
        schema = {"$ref": "#/components/schemas/Problem", "components": DOCUMENT["components"]}
        jsonschema.validate(example, schema, cls=jsonschema.Draft202012Validator)
    assert not found


def without(reply: Mapping[str, Any], example: Example) -> dict[str, Any]:
    """A recorded reply without what differs from machine to machine."""
    if not example.varying:
        return dict(reply)
    return {**reply, "json": {name: value for name, value in reply["json"].items() if name not in example.varying}}


def test_every_reply_is_the_one_that_is_shown(replies: dict[str, httpx.Response]) -> None:
    assert EXAMPLES.keys() == OPERATIONS.keys()
    wrong = []
    for name, reply in replies.items():
        example = EXAMPLES[name]
        now = reply_to_record(example, reply.content, reply.headers)
        if without(now, example) != without(recorded_replies().get(name, {"json": {}}), example):
            wrong.append(name)
    assert not wrong, "run `make openapi`, and look at what changed"


def test_the_document_shows_them(replies: dict[str, httpx.Response]) -> None:
    files = example_files()
    for name, (_, _, operation) in RECORDED.items():
        example, reply = EXAMPLES[name], recorded_replies()[name]
        parameters = {each["name"]: each for each in operation.get("parameters", ())}
        assert {key: each["example"] for key, each in parameters.items() if "example" in each} == {
            **example.path,
            **example.query,
        }
        assert {key for key, each in parameters.items() if each["required"]} <= {*example.path, *example.query}
        for content in operation.get("requestBody", {}).get("content", {}).values():
            shown = content.get("example", content.get("examples"))
            if example.json is not None:
                assert shown == example.json
            elif example.npy is not None:
                assert files[shown["npy"]["x-file"].removeprefix("docs/examples/")] == example.npy
            else:
                assert shown.keys() == example.form.keys()
        content, *_ = operation["responses"]["200"]["content"].values()
        if "file" in reply:
            path = content["examples"]["npy"]["x-file"].removeprefix("docs/examples/")
            assert files[path] == replies[name].content
        elif "entries" in reply:
            assert content["examples"]["excerpt"]["value"] == reply["json"]
        else:
            assert content["example"] == reply["json"]


def test_requests_and_replies_match_their_schemas(replies: dict[str, httpx.Response]) -> None:
    for name, (_, _, operation) in RECORDED.items():
        documented = [operation["responses"]["200"]["content"]]
        shown = [replies[name].json()] if "application/json" in documented[0] else []
        if EXAMPLES[name].json is not None:
            documented.append(operation["requestBody"]["content"])
            shown.append(EXAMPLES[name].json)
        for content, value in zip(documented, shown, strict=bool(shown)):
            schema = {**content["application/json"]["schema"], "components": DOCUMENT["components"]}
            jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)
