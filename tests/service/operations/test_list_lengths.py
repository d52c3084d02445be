"""Lists of no, of fewer and of more members than the others of a request ask for, in every route and model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import Server
from tests.fuzz.document import EXAMPLES
from tests.fuzz.json_mutation import dumped
from tests.fuzz.seeds import Draft, models, of_model

LENGTHS = (0, 1, 2, 3, 17)
REFUSED = (400, 413, 422)


def _places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where `value` has a list."""
    if isinstance(value, list):
        yield place
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _places(member, (*place, name))


def _resized(value: Any, place: tuple[str | int, ...], length: int) -> Any:
    """A copy of `value` whose list at that place has so many members, its own over and over."""
    if place:
        return {**value, place[0]: _resized(value[place[0]], place[1:], length)}
    return (value * length)[:length]


def variants(body: Any) -> Iterator[Any]:
    """A request body with each of its lists of each length."""
    for place in _places(body):
        for length in LENGTHS:
            yield _resized(body, place, length)


@pytest.mark.parametrize("path", [path for path in EXAMPLES if not path.startswith("/v2/")])
def test_a_route_takes_or_refuses_every_length(client: httpx.Client, path: str) -> None:
    for body in variants(EXAMPLES[path]):
        reply = client.post(path, json=body)
        assert reply.status_code in (200, *REFUSED), (body, reply.text)


def test_a_model_takes_or_refuses_every_length(server: Server, client: httpx.Client) -> None:
    asked = 0
    for model in models(server.url):
        for body in (*variants(EXAMPLES[model.route]), *_emptied_attributes(client, model.name, EXAMPLES[model.route])):
            draft: Draft = of_model(model, body, None)
            text = dumped(draft.body).encode()
            headers = {"Inference-Header-Content-Length": str(len(text))} if draft.data else {}
            reply = client.post(draft.path, content=text + draft.data, headers=headers)
            assert reply.status_code in (200, *REFUSED), (draft.body, reply.text)
            asked += 1
    assert asked > 500


def _emptied_attributes(client: httpx.Client, name: str, body: Any) -> Iterator[Any]:
    """The body with each attribute of the model that is a list as an empty one, also those that the example has not."""
    metadata = client.get(f"/v2/models/{name}").json()
    if "attributes" not in body and "inputs" not in body:
        return
    for parameter in metadata["request_parameters"]:
        if "JSON list" in parameter["description"]:
            yield {**body, "attributes": {**body.get("attributes", {}), parameter["name"]: []}}
