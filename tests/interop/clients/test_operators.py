"""Every operator as a model, called by tritonclient as installed: its page's example, to the bits of the JSON route."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

http: Any = pytest.importorskip("tritonclient.http")
utils: Any = pytest.importorskip("tritonclient.utils")

from tests.conftest import Server  # noqa: E402
from tests.support.model_calls import array_of, dtype_of, shape_and_element  # noqa: E402

pytestmark = pytest.mark.clients

DOCUMENT = json.loads((Path(__file__).parents[3] / "openapi" / "openapi.json").read_text(encoding="utf-8"))
# The title of an operator is its full name.
PATHS = [
    path
    for path, methods in DOCUMENT["paths"].items()
    if methods.get("post", {}).get("summary") == path.removeprefix("/v1/").replace("/", ".", 1)
]


@pytest.fixture(scope="module")
def triton(server: Server) -> Iterator[Any]:
    with http.InferenceServerClient(f"127.0.0.1:{server.port}", network_timeout=120) as client:
        yield client


def parameters_of(page: Mapping[str, Any], example: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as the protocol has them, and what an operand is where its datatype does not say it."""
    found = {
        name: json.dumps(value) if isinstance(value, (list, float)) else value
        for name, value in example.get("attributes", {}).items()
    }
    for name, tensor in example["inputs"].items():
        _, element = shape_and_element(tensor["type"])
        dtype = dtype_of(element)
        told = dtype.kind == "b" or element.endswith(str(dtype.itemsize * 8))
        if element.startswith(("!quant", "f8")) or not told:
            found[f"{name}_type"] = element
    found["implementation"] = page["implementations"][-1]
    return found


@pytest.mark.parametrize("path", PATHS)
def test_every_operator(triton: Any, client: httpx.Client, path: str) -> None:
    (page,) = (each for each in client.get("/v1/operators").json()["operators"] if each["path"] == path)
    example = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"]
    request = {"attributes": {}, **example, "implementation": page["implementations"][-1]}
    reply = client.post(path, json=request)
    assert reply.status_code == 200, reply.text
    expected = {name: array_of(tensor) for name, tensor in reply.json()["outputs"].items()}
    inputs = []
    for name, tensor in example["inputs"].items():
        array = array_of(tensor)
        given = http.InferInput(name, list(array.shape), utils.np_to_triton_dtype(array.dtype))
        inputs.append(given.set_data_from_numpy(array))
    versions = [str(each) for each in page["versions"] if each <= example.get("opset", 0)] or ["1"]
    result = triton.infer(
        page["model"], inputs, model_version=versions[-1], parameters=parameters_of(page, example), request_id="1"
    )
    response = result.get_response()
    assert (response["model_name"], response["model_version"]) == (page["model"], versions[-1])
    assert [output["name"] for output in response["outputs"]] == list(expected)
    for name, array in expected.items():
        found = result.as_numpy(name)
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert found.tobytes() == array.tobytes(), name


def test_all_operators_are_called(client: httpx.Client) -> None:
    assert {each["path"] for each in client.get("/v1/operators").json()["operators"]} == set(PATHS)
