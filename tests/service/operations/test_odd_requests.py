"""Odd requests to every route and model: lists of other lengths, and numbers of which numpy would warn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fuzz.json_mutation import dumped
from tests.fuzz.seeds import Draft, of_model
from tests.requests.catalog import CATALOG
from tests.requests.document import EXAMPLES
from tests.service.replies import encoded
from tests.support.asgi import post, ready_app

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


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", [path for path in EXAMPLES if not path.startswith("/v2/")])
def test_a_route_takes_or_refuses_every_length(client: httpx.Client, path: str) -> None:
    for body in variants(EXAMPLES[path]):
        reply = client.post(path, json=body)
        assert reply.status_code in (200, *REFUSED), (body, reply.text)


@pytest.mark.exhaustive
def test_a_model_takes_or_refuses_every_length(client: httpx.Client) -> None:
    asked = 0
    for model in CATALOG.values():
        for body in (
            *variants(EXAMPLES[model.route]),
            *_emptied_attributes(client, model.model, EXAMPLES[model.route]),
        ):
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


ROW = np.array([[-1.0, 0.5], [3.0, np.inf]], np.float32)
ZEROS = np.zeros(2, np.int32)
SIGNALLING = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32)


def tensor(array: NDArray[Any], element: str = "") -> dict[str, Any]:
    """A tensor in JSON, its bytes as data: values have no signalling NaNs."""
    shape = "".join(f"{size}x" for size in array.shape)
    return {"type": f"tensor<{shape}{element or f'f{8 * array.itemsize}'}>", "data": encoded(array)}


CASES = [
    (
        "/v1/torch/quantized_decomposed.choose_qparams_per_token_asymmetric",
        {"input": np.array([[0xFF800000, 0x7F800001], [1, 0]], np.uint32).view(np.float32)},
        {},
    ),
    (
        "/v1/torch/quantized_decomposed.convert_element_type.no_fuse",
        {"input": SIGNALLING},
        {"dtype": "int8"},
    ),
    (
        "/v1/torch/fake_quantize_per_channel_affine",
        {"input": ROW, "scales": np.array([1e-45, 1.0], np.float32), "zero_points": ZEROS},
        {"axis": 0, "quant_min": 0, "quant_max": 255},
    ),
    (
        "/v1/torch/quantize_per_channel",
        {"input": ROW, "scales": np.array([1e300, 1.0]), "zero_points": ZEROS},
        {"axis": 1, "dtype": "qint8"},
    ),
    (
        "/v1/onednn/DynamicDequantize",
        {"src": np.array([[1, 2]], np.int8), "scales": SIGNALLING[:1]},
        {"qtype": "per_tensor"},
    ),
]


@pytest.mark.parametrize(("path", "inputs", "attributes"), CASES)
def test_numpy_does_not_warn_of_what_the_rules_define(
    path: str, inputs: dict[str, NDArray[Any]], attributes: dict[str, Any]
) -> None:
    names = {"|i1": "i8", "<i4": "i32"}
    given = {name: tensor(array, names.get(array.dtype.str, "")) for name, array in inputs.items()}
    body = json.dumps({"inputs": given, **({"attributes": attributes} if attributes else {})}).encode()
    # Warnings are errors in tests, and 500 here.
    reply = asyncio.run(post(ready_app(), path, {}, [body], declared=len(body)))
    assert reply.status in (200, 400, 422), reply.body
