"""Errors point at what was sent: every operation in every protocol, with its example changed in many ways.

A pointer is that of a member of the body, of a parameter of the query, or of a field of the form. Only of what is
missing it is the place where it should be.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from requant_service.app import Application
from requant_service.oip.models.registry import MODELS
from tests.faces.test_models import OPERATIONS, model_of
from tests.requests.catalog import CATALOG
from tests.requests.document import DOCUMENT, SCHEMAS, resolved
from tests.requests.files import npy
from tests.requests.inference import inference
from tests.support.asgi import post, ready_app
from tests.support.cases import EXHAUSTIVE, OF_THE_DAY
from tests.support.model_calls import rescale_operands

WRONG: list[Any] = [None, True, -1, 7, 2**40, 0.5, "nope", "", [], {}, [7], ["nope"], [[1], [2, 3]], "1,32", "NaN"]
TYPES = [
    "f32", "i8", "tensor<3xf32>", "tensor<?xf32>", "tensor<4xi8>", "tensor<2x2xi32>", "!quant.uniform<i8:f32, 0.5:200>",
    "!quant.uniform<i8:f32:0, {0.5, 0.25}>", "tensor<4x!quant.uniform<i4:f64, 0.5:3>>", "!quant.any<i8:f32>",
    "!quant.calibrated<f32<-1.0:1.0>>", "tensor<2x2x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5}, {1.0}}>>",
]  # fmt: skip
# Of so many changes to an operation one is tried; which one depends on the operation, and on the day.
STRIDE = 3 if EXHAUSTIVE else 91


@pytest.fixture(scope="module")
def app() -> Application:
    return ready_app()


def samples(schema: dict[str, Any]) -> list[Any]:
    """Values of about the right kind: what an option does where it does not belong."""
    schema = resolved(schema)
    if "enum" in schema:
        return [schema["enum"][0], schema["enum"][-1], "nope"]
    match schema.get("type"):
        case "boolean":
            return [True, False]
        case "integer":
            return [1, 7]
        case "number":
            return [0.5, -1]
        case "array":
            return [[7], [1, 1]]
        case "object":
            return [{}, {"type": "tensor<2xf32>", "values": [1, 2]}]
        case _:
            return ["f32", "i8", 0.5]


def nodes(value: Any, schema: dict[str, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """The members of a value, with their paths and schemas; of a list the first and the last."""
    schema = resolved(schema)
    yield path, value, schema
    if isinstance(value, dict):
        for name, each in value.items():
            yield from nodes(each, schema.get("properties", {}).get(name, {}), (*path, name))
    elif isinstance(value, list):
        for index in sorted({0, len(value) - 1} if value else ()):
            yield from nodes(value[index], schema.get("items", {}), (*path, index))


def without(body: Any, path: tuple[Any, ...]) -> Any:
    found = parent = copy.deepcopy(body)
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    return found


def with_value(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    found = parent = copy.deepcopy(body)
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return found


def changes(body: Any, schema: dict[str, Any]) -> Iterator[Any]:
    """The body with a member dropped, of another kind, unknown, or one more."""
    for path, value, described in nodes(body, schema):
        if path:
            yield without(body, path)
            for wrong in WRONG + (TYPES if isinstance(value, str) else []):
                yield with_value(body, path, wrong)
        if isinstance(value, dict):
            yield with_value(body, (*path, "nope"), 1)
            for name, property_ in described.get("properties", {}).items():
                for sample in samples(property_) if name not in value else ():
                    yield with_value(body, (*path, name), sample)
    yield from ([], 3, "nope")


def sampled(found: Iterator[Any], start: str) -> list[Any]:
    return list(found)[(sum(start.encode()) + OF_THE_DAY) % STRIDE :: STRIDE]


def unresolved(problem: dict[str, Any], body: Any) -> list[str]:
    """The faults of a problem that point at nothing that was sent."""
    return [
        f"{fault['pointer']} ({fault['code']}: {fault['detail'][:80]})"
        for fault in problem.get("errors", [])
        if not is_in(body, fault["pointer"], missing=fault["code"] == "missing")
    ]


def is_in(body: Any, pointer: str, *, missing: bool) -> bool:
    keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
    for key in keys:
        if isinstance(body, dict) and key in body:
            body = body[key]
        elif isinstance(body, list) and key.isdigit() and int(key) < len(body):
            body = body[int(key)]
        else:
            # What is missing may be in an object that is missing too.
            return missing and isinstance(body, dict)
    return True


def check(app: Application, path: str, requests: list[tuple[Any, dict[str, str], bytes, str]]) -> None:
    """Send requests, each with what its pointers point into, and show those whose pointers do not."""

    async def run() -> list[str]:
        found = []
        for sent, query, content, kind in requests:
            headers = [(b"content-type", kind.encode())]
            reply = await post(app, path, query, [content], declared=len(content), headers=headers)
            assert reply.status < 500, (sent, reply.body)
            if reply.status != 200:
                found += [f"{each} of {json.dumps(sent)[:300]}" for each in unresolved(json.loads(reply.body), sent)]
        return found

    wrong = asyncio.run(run())
    assert not wrong, f"{len(wrong)} of {len(requests)} requests:\n" + "\n".join(wrong[:20])


def as_json(bodies: list[Any]) -> list[tuple[Any, dict[str, str], bytes, str]]:
    return [(body, {}, json.dumps(body).encode(), "application/json") for body in bodies]


def content_of(path: str) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]
    return found


JSON_OPERATIONS = [path for path in OPERATIONS if "application/json" in content_of(path)]


@pytest.mark.parametrize("path", JSON_OPERATIONS)
def test_of_a_json_body(app: Application, path: str) -> None:
    content = content_of(path)["application/json"]
    found = changes(content["example"], content["schema"])
    check(app, path, as_json(sampled(found, path)))


ONE_SCALE = {"type": "tensor<2x!quant.uniform<i8:f32, 0.5>>", "values": [1, 2]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/add", {"lhs": ONE_SCALE, "rhs": ONE_SCALE, "output_type": "!quant.uniform<i8:f32:0, {0.5, 0.25}>"}),
        *(("/v1/types/translate", {system: {}}) for system in ("tosa", "onnx", "torch", "litert")),
    ],
)
def test_of_what_no_example_leads_to(app: Application, path: str, body: dict[str, Any]) -> None:
    check(app, path, as_json([body]))


@pytest.mark.parametrize("side", ["lhs", "rhs", "output_type"])
@pytest.mark.parametrize(
    ("profile", "storage"),
    [("onednn", "i4"), ("onednn", "i16"), ("onnx", "i3"), ("onnx_reference", "i3"), ("torch_decomposed", "i2")],
)
def test_of_a_sum_whose_type_is_refused(app: Application, profile: str, storage: str, side: str) -> None:
    refused = f"!quant.uniform<{storage}:f32, 0.5>"
    body: dict[str, Any] = {
        "profile": profile,
        "lhs": ONE_SCALE,
        "rhs": ONE_SCALE,
        "output_type": "!quant.uniform<i8:f32, 0.5>",
    }
    body[side] = refused if side == "output_type" else {**ONE_SCALE, "type": f"tensor<2x{refused}>"}
    content = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json")]
    reply = asyncio.run(post(app, "/v1/add", {}, [content], declared=len(content), headers=headers))
    assert reply.status == 422
    (fault,) = json.loads(reply.body)["errors"]
    assert fault["pointer"].startswith(f"/{side}")


INFERENCE = SCHEMAS["InferenceRequest"]


@pytest.mark.parametrize("path", JSON_OPERATIONS)
def test_of_an_inference_request(app: Application, path: str) -> None:
    example = content_of(path)["application/json"]["example"]
    model, rescale = MODELS[model_of(path)], path == "/v1/tosa/rescale"
    body = inference(CATALOG[model.name], rescale_operands(example) if rescale else example).in_json()
    stated = body["parameters"]
    found = [*changes(body, INFERENCE)]
    for slot in [None, *model.inputs]:
        more = (
            [] if slot is None else [{"name": slot.name, "datatype": slot.datatypes[0], "shape": [2], "data": [1, 2]}]
        )
        called = {**body, "inputs": [*body["inputs"], *more]}
        for left_out in (None, *stated):
            given = {name: value for name, value in stated.items() if name != left_out}
            found += [
                {**called, "parameters": {**given, parameter.name: value}}
                for parameter in model.parameters
                for value in ["nope", "i8", 7, True, 0.5, *parameter.choices[:1], *parameter.choices[-1:]]
            ]
    check(app, f"/v2/models/{model.name}/infer", as_json(sampled(iter(found), path)))


QUERIES = {
    "quantize": {"output_type": "!quant.uniform<i8:f32, 0.5:3>"},
    "dequantize": {"input_type": "!quant.uniform<i8:f32, 0.5:3>"},
    "requantize": {"input_type": "!quant.uniform<i8:f32, 0.5:3>", "output_type": "!quant.uniform<i8:f32, 0.25>"},
}
TEXTS = ["nope", "", "7", "-1", "true", "0.5", "1,32", "1:2,3:4", "i8", "litert", "tosa", "dense", "npz", *TYPES]


ARRAYS = [np.ones((2, 2), dtype) for dtype in ("f4", "f8", "i1", "u1", "i4", "i8", "u2", "f2")]


WRONG_PAIRS = [
    {"multiplier": np.array(multipliers), "shift": np.array(shifts)}
    for multipliers, shifts in (
        ([1 << 30] * 2, [5] * 2),
        ([1 << 40], [5]),
        ([1 << 30], [1 << 40]),
        ([], []),
        ([1], [1, 2]),
    )
]


def queries(operation: str, names: list[str]) -> Iterator[dict[str, str]]:
    given = QUERIES[operation]
    yield given
    for name in given:
        yield {key: value for key, value in given.items() if key != name}
    for name in [*names, "nope"]:
        for text in TEXTS:
            yield {**given, name: text}
            yield {**given, "output_type": "!quant.any<i8:f32>", name: text}
            yield {"storage_type": "i8", name: text}
            yield {"storage_type": "i4", "axis": "0", name: text}


@pytest.mark.parametrize("operation", QUERIES)
def test_of_a_query(app: Application, operation: str) -> None:
    path = f"/v1/npy/{operation}"
    names = [each["name"] for each in DOCUMENT["paths"][path]["post"]["parameters"]]
    files = [npy(array) for array in ARRAYS]
    requests = (
        (query, query, file, "application/octet-stream") for query in queries(operation, names) for file in files
    )
    check(app, path, sampled(requests, path))


@pytest.mark.parametrize("operation", QUERIES)
def test_of_a_form(app: Application, operation: str) -> None:
    path = f"/v1/multipart/{operation}"
    described = content_of(path)["multipart/form-data"]["schema"]["properties"]
    files = [name for name, each in described.items() if each.get("format") == "binary"]
    texts = queries(operation, [name for name in described if name not in files])
    others = [{}, *({name: np.ones(2, "f4")} for name in files)]
    # All arrays with all texts are in `test_of_a_query`; here each has one that is drawn.
    drawn = random.Random(path)
    sent = ((each, {"x": drawn.choice(ARRAYS), **more}) for each, more in product(texts, others))
    if operation == "requantize":
        given = {"input_type": "i32", "output_type": "i8"}
        check(app, path, [_form(given, {"x": np.ones((2, 3), "i4"), **pairs}) for pairs in WRONG_PAIRS])
    check(app, path, [_form(*each) for each in sampled(sent, path)])


def _form(texts: dict[str, str], files: dict[str, Any]) -> tuple[Any, dict[str, str], bytes, str]:
    mark = b"--end\r\nContent-Disposition: form-data; name="
    parts = [mark + f'"{name}"\r\n\r\n{text}\r\n'.encode() for name, text in texts.items()]
    parts += [mark + f'"{name}"; filename="a"\r\n\r\n'.encode() + npy(each) + b"\r\n" for name, each in files.items()]
    kind = "multipart/form-data; boundary=end"
    return {**texts, **dict.fromkeys(files)}, {}, b"".join(parts) + b"--end--\r\n", kind
