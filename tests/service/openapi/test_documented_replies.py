"""Real replies against the OpenAPI document: no field is missing, undocumented or of another kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

TARGET = "!quant.uniform<i8:f32, 0.5:3>"
REAL = {"type": "tensor<2xf32>", "values": [1, 2]}
STORED = {"type": f"tensor<2x{TARGET}>", "values": [3, 4]}
TYPES = [
    "f32", "ui8", "index", "tensor<2x?xf32>", "tensor<*xi4>", "tensor<2xf32, #enc>", "tuple<f32, i8>",
    "!quant.any<i8>", "!quant.any<i8:f32>", "!quant.calibrated<f32<-1.0:1.0>>", TARGET,
    "tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25:-9223372036854775808}>>",
    "tensor<4x!quant.uniform<i4:f32:{0:2}, {1.0, 2.0}>>", "!quant.uniform<f8E5M2:f32, 1.0>",
    "!quant.quantile<ui2:f32, {0.0, 1.0, 2.0, 3.0}>",
    "!quant.uniform<!quant.quantile<i1:f32, {0.0, 1.0}>:f32, 1.0>",
]  # fmt: skip

INFER = "/v2/models/{model}/infer"
MODELS = (
    "quantize",
    "dequantize",
    "requantize",
    "compare",
    "quantize_blocks",
    "dequantize_blocks",
    "evaluate",
    "lower",
)
X = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
REQUEST = {"inputs": [X], "parameters": {"output_type": TARGET}}

# Method, path, JSON body, or query parameters and then content.
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/quantize", {"json": {"input": REAL, "output_type": TARGET}}),
    ("POST", "/v1/quantize", {"json": {"input": {"type": "tensor<0xf32>", "data": ""}, "output_type": TARGET}}),
    ("POST", "/v1/dequantize", {"json": {"input": STORED}}),
    ("POST", "/v1/dequantize", {"json": {"input": {"type": f"tensor<2x{TARGET}>", "data": "AAA="}}}),
    ("POST", "/v1/requantize", {"json": {"input": STORED, "output_type": TARGET}}),
    ("POST", "/v1/parameters/multiplier", {"json": {"factors": ["0", "1.7976931348623157e308"], "scheme": "litert"}}),
    (
        "POST",
        "/v1/parameters/range",
        {"json": {"minimums": [-1, 0], "maximums": [1, 2], "axis": 0, "storage": "u8", "scheme": "tf_fake_quant"}},
    ),
    ("POST", "/v1/parameters/range", {"json": {"minimums": [0], "maximums": [0], "storage": "i8", "scheme": "litert"}}),
    ("POST", "/v1/parameters/bias", {"json": {"input_scale": 1, "weight_scales": [2], "scheme": "torch"}}),
    (
        "POST",
        "/v1/parameters/bias",
        {"json": {"input_scale": 1, "weight_scales": [0], "scheme": "litert", "bias": REAL}},
    ),
    ("POST", "/v1/fake_quantize", {"json": {"input": REAL, "minimums": [-1], "maximums": [1]}}),
    ("POST", "/v1/fake_quantize", {"json": {"input": REAL, "minimums": [1], "maximums": [1]}}),
    *(("POST", "/v1/types/parse", {"json": {"text": text}}) for text in TYPES),
    ("GET", "/healthz", {}),
    ("GET", "/v1/info", {}),
    ("GET", "/v1/profiles", {}),
    ("GET", "/v1/profiles/{name}", {"path": "/v1/profiles/litert"}),
    ("GET", "/v1/profiles/{name}", {"path": "/v1/profiles/nope"}),
    ("GET", "/v1/operators", {}),
    ("GET", "/v1/operators/{name}", {"path": "/v1/operators/onnx.QuantizeLinear"}),
    ("GET", "/v1/operators/{name}", {"path": "/v1/operators/nope"}),
    ("GET", "/problems", {}),
    ("GET", "/problems/{code}", {"path": "/problems/npy"}),
    ("GET", "/problems/{code}", {"path": "/problems/nope"}),
    ("POST", "/v1/quantize", {"json": {"input": REAL}}),
    ("POST", "/v1/quantize", {"content": b"{"}),
    ("POST", "/v1/quantize", {"content": b"", "headers": {"content-type": "text/plain"}}),
    ("POST", "/v1/quantize", {"json": {"input": {**REAL, "values": [1]}, "output_type": TARGET}}),
    ("POST", "/v1/quantize", {"json": {"input": {**REAL, "values": [0] * 5000}, "output_type": TARGET}}),
    ("POST", "/v1/types/parse", {"json": {"text": "!quant.uniform<i8:f32, 1>"}}),
    ("GET", "/v2", {}),
    ("GET", "/v2/health/live", {}),
    ("GET", "/v2/health/ready", {}),
    ("GET", "/v2/models", {}),
    ("POST", "/v2/repository/index", {}),
    *(("GET", "/v2/models/{model}", {"path": f"/v2/models/{model}"}) for model in (*MODELS, "nope")),
    *(
        ("GET", f"/v2/models/{{model}}/versions/{{version}}{what}", {"path": f"/v2/models/{model}/versions/1{what}"})
        for model in ("quantize", "nope")
        for what in ("", "/ready")
    ),
    ("GET", "/v2/models/{model}/ready", {"path": "/v2/models/compare/ready"}),
    ("POST", INFER, {"path": "/v2/models/quantize/infer", "json": {**REQUEST, "id": "1"}}),
    ("POST", INFER, {"path": "/v2/models/compare/infer", "json": {"inputs": [{**X, "name": "a"}, {**X, "name": "b"}]}}),
    ("POST", INFER, {"path": "/v2/models/quantize/infer", "json": {"inputs": [X]}}),
    ("POST", INFER, {"path": "/v2/models/quantize/infer", "json": {**REQUEST, "inputs": [{**X, "shape": [3]}]}}),
    ("POST", INFER, {"path": "/v2/models/quantize/infer", "headers": {"content-encoding": "br"}}),
    ("POST", INFER, {"path": "/v2/models/nope/infer"}),
    *(("GET", f"/v2/{kind}sharedmemory/status", {}) for kind in ("system", "cuda")),
    *(("POST", f"/v2/{kind}sharedmemory/unregister", {}) for kind in ("system", "cuda")),
    *(
        (
            method,
            f"/v2/systemsharedmemory/region/{{region}}/{what}",
            {"path": f"/v2/systemsharedmemory/region/a/{what}"},
        )
        for method, what in (("GET", "status"), ("POST", "register"), ("POST", "unregister"))
    ),
    ("POST", "/v1/npy/quantize", {"content": b"no"}),
    ("POST", "/v1/npy/quantize", {"params": {"output_type": TARGET}, "content": b"no"}),
]


def faults(value: Any, schema: dict[str, Any], document: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield where `value` is not what `schema` says, for the part of JSON Schema that the document uses."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        seen[name].append(value)
        yield from faults(value, document["components"]["schemas"][name], document, place)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is not one of {schema['enum']}"
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):  # type: ignore[arg-type]
        yield f"{place}: {value!r} is no {schema['type']}"
    if isinstance(value, dict):
        yield from (f"{place}/{name} is missing" for name in schema.get("required", ()) if name not in value)
        others = schema.get("additionalProperties", True)
        for name, member in value.items():
            if name in schema.get("properties", {}):
                yield from faults(member, schema["properties"][name], document, f"{place}/{name}")
            elif isinstance(others, dict):
                yield from faults(member, others, document, f"{place}/{name}")
            elif "properties" in schema:
                yield f"{place}/{name} is not documented"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), document, f"{place}/{index}")


seen: dict[str, list[Any]] = defaultdict(list)


@pytest.fixture(scope="module")
def document(server: Any) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/openapi.json").json()
    return found


def resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """A response or a header field, or the component that it refers to."""
    if "$ref" not in node:
        return node
    _, _, kind, name = node["$ref"].split("/")
    found: dict[str, Any] = document["components"][kind][name]
    return found


def test_replies_are_what_the_document_says(client: httpx.Client, document: dict[str, Any]) -> None:
    seen.clear()
    for method, path, sent in REQUESTS:
        headers = {"content-type": "application/json"} if "content" in sent and "npy" not in path else {}
        arguments = {"headers": headers, **{key: value for key, value in sent.items() if key != "path"}}
        reply = client.request(method, sent.get("path", path), **arguments)
        described = resolved(document, document["paths"][path][method.lower()]["responses"][str(reply.status_code)])
        ((kind, content),) = described["content"].items()
        assert reply.headers["content-type"] == kind
        assert not list(faults(reply.json(), content["schema"], document)), (path, sent)
        for name, header in described["headers"].items():
            assert name in reply.headers or not resolved(document, header)["required"]
    for name in (
        "Problem",
        "FieldProblem",
        "ParsedType",
        "TypeCheck",
        "OutputTensor",
        "Info",
        "Limits",
        "OperationRule",
        "ParametersReply",
        "BiasReply",
        "InferenceReply",
        "ModelMetadata",
        "TensorMetadata",
        "ParameterMetadata",
        "ModelState",
        "OperatorPage",
        "OperatorOperand",
    ):
        component = document["components"]["schemas"][name]
        always = set.intersection(*(set(value) for value in seen[name]))
        assert set(component["required"]) == always, name
        assert all("default" not in field for field in component["properties"].values()), name


def test_the_example_of_the_protocol_works(client: httpx.Client, document: dict[str, Any]) -> None:
    """With the model quantize."""
    described = document["paths"][INFER]["post"]
    reply = client.post(
        "/v2/models/quantize/infer", json=described["requestBody"]["content"]["application/json"]["example"]
    )
    assert reply.json()["outputs"][0]["data"] == [3, 5, 0, 127]


def test_which_headers_may_be_absent(document: dict[str, Any]) -> None:
    headers = document["paths"]["/v1/npy/quantize"]["post"]["responses"]["200"]["headers"]
    assert {name for name, header in headers.items() if not resolved(document, header)["required"]} == {
        "Requant-Type",
        "Server-Timing",
        "Repr-Digest",
    }
