"""Requests that work, from which others are made: one for each POST route, model of the inference protocol, and `.npy`.

The document has one example of the protocol for all models; those of the models are made from the examples of the JSON
routes, which the operations share.
"""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tests.fuzz.document import EXAMPLES, POSTS
from tests.support.oip_wire import DTYPES

INFER = "/v2/models/{model}/infer"
INFER_VERSION = "/v2/models/{model}/versions/{version}/infer"

_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>", re.DOTALL)
_DATATYPES = {
    "f32": "FP32", "f16": "FP16", "bf16": "BF16", "f64": "FP64", "i1": "BOOL", "i64": "INT64", "ui64": "UINT64",
}  # fmt: skip
_STORAGE = re.compile(r"(?:!quant\.uniform<)?(s|u|ui|si|i)(\d+)")

# The routes of the models that are no operators.
_ROUTES = {
    "quantize": "/v1/quantize",
    "dequantize": "/v1/dequantize",
    "requantize": "/v1/requantize",
    "explain_quantize": "/v1/explain/quantize",
    "explain_dequantize": "/v1/explain/dequantize",
    "explain_requantize": "/v1/explain/requantize",
    "vectors": "/v1/vectors",
    "compare": "/v1/compare",
    "quantize_blocks": "/v1/blocks/quantize",
    "dequantize_blocks": "/v1/blocks/dequantize",
    "fake_quantize": "/v1/fake_quantize",
    "matmul": "/v1/matmul",
    "conv2d": "/v1/conv2d",
    "add": "/v1/add",
    "derive_from_range": "/v1/parameters/range",
    "derive_from_tensor": "/v1/parameters/tensor",
    "derive_bias": "/v1/parameters/bias",
    "derive_multiplier": "/v1/parameters/multiplier",
    "parse_type": "/v1/types/parse",
    "translate_type": "/v1/types/translate",
    "lower": "/v1/lower",
    "evaluate": "/v1/evaluate",
}
# Members of their requests that are numbers, and inputs of the models.
_NUMBERS = {
    "minimums": "minimum",
    "maximums": "maximum",
    "weight_scales": "weight_scale",
    "input_scale": "input_scale",
    "factors": "factor",
}


@dataclass(frozen=True)
class Model:
    """A model of the inference protocol, as its metadata describe it, and the JSON route of the same operation."""

    name: str
    versions: tuple[str, ...]
    datatypes: dict[str, tuple[str, ...]]
    parameters: frozenset[str]
    route: str


def models(origin: str) -> list[Model]:
    """Every model that a service has."""
    with httpx.Client(base_url=origin, verify=False, timeout=60) as client:
        names = client.get("/v2/models").json()["models"]
        return [_model(client.get(f"/v2/models/{name}").json()) for name in names]


def _model(metadata: dict[str, Any]) -> Model:
    name = metadata["name"]
    route = _ROUTES.get(name) or "/v1/{}/{}".format(*name.split(".", 1))
    inputs = {each["name"]: tuple(each["parameters"]["datatypes"].split(", ")) for each in metadata["inputs"]}
    parameters = frozenset(each["name"] for each in metadata["request_parameters"])
    assert route in EXAMPLES, f"{name} has no JSON route with an example"
    return Model(name, tuple(metadata["versions"]), inputs, parameters, route)


@dataclass
class Draft:
    """A request before it is made into bytes. `body` is JSON; `data` is what is sent as it is instead, or after it;
    `parts` are the fields of a form.
    """

    operation: str
    path: str
    body: Any = None
    data: bytes = b""
    query: list[tuple[str, str]] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
    parts: list[tuple[str, bytes]] = field(default_factory=list)


def _element(text: str) -> tuple[list[int], str] | None:
    match = _TENSOR.fullmatch(text)
    return None if match is None else ([int(size) for size in match[1].split("x")[:-1]], match[2])


def datatype_of(element: str) -> str:
    """The datatype that elements of a type travel as, as far as its text tells."""
    if element in _DATATYPES:
        return _DATATYPES[element]
    if storage := _STORAGE.match(element):
        bits = next((bits for bits in (8, 16, 32, 64) if int(storage[2][:4]) <= bits), 64)
        return f"{'UINT' if storage[1].startswith('u') else 'INT'}{bits}"
    return "UINT8" if element.startswith(("f4", "f6", "f8")) else "FP32"


def inference(model: Model, body: Any) -> tuple[dict[str, Any], bytes]:
    """The JSON and the binary tensors of a model's request, made from the body of its JSON route, whatever that has."""
    members = body if isinstance(body, dict) else {}
    if model.name not in _ROUTES:
        tensors, attributes = members.get("inputs", {}), members.get("attributes", {})
        tensors = tensors if isinstance(tensors, dict) else {}
        attributes = dict(attributes) if isinstance(attributes, dict) else {}
        if "implementation" in members:
            attributes["implementation"] = members["implementation"]
    else:
        tensors = {
            name: each
            for name, each in members.items()
            if isinstance(each, dict) and "type" in each and name not in model.parameters
        }
        several = members.get("inputs")
        if isinstance(several, list):
            tensors |= {f"{next(iter(model.datatypes), 'x')}_{index}": each for index, each in enumerate(several)}
        left = {name: each for name, each in members.items() if name not in tensors and name != "inputs"}
        attributes = {name: each for name, each in left.items() if _NUMBERS.get(name) not in model.datatypes}
    parameters = {
        name: json.dumps(value) if isinstance(value, (list, float, dict)) else value
        for name, value in attributes.items()
    }
    inputs: list[dict[str, Any]] = []
    blobs = []
    if model.name == "vectors":
        parameters.pop("multipliers", None)
        for name in ("multiplier", "shift"):
            pairs = _listed(members.get("multipliers"))
            if numbers := [each.get(name) for each in pairs if isinstance(each, dict)]:
                inputs.append({"name": name, "shape": [len(numbers)], "datatype": "INT32", "data": numbers})
    for given, slot in _NUMBERS.items():
        if slot in model.datatypes and given in members:
            numbers = [_number(each) for each in _listed(members[given])]
            inputs.append({"name": slot, "shape": [len(numbers)], "datatype": "FP64", "data": numbers})
    for given, tensor in tensors.items():
        name = "x" if given == "input" and model.name in _ROUTES else given
        said = tensor if isinstance(tensor, dict) else {}
        found = _element(said["type"]) if isinstance(said.get("type"), str) else None
        shape, element = found or ([len(said["values"])] if isinstance(said.get("values"), list) else [], "f32")
        datatype, taken = (
            datatype_of(element),
            model.datatypes.get(name.rstrip("0123456789").removesuffix("_"), ("FP32",)),
        )
        parameter = "input_type" if name == "x" and model.name in _ROUTES else f"{name}_type"
        if parameter in model.parameters:
            parameters.setdefault(parameter, element)
        head: dict[str, Any] = {"name": name, "shape": shape, "datatype": datatype if datatype in taken else taken[0]}
        if isinstance(said.get("data"), str):
            try:
                blob = base64.b64decode(said["data"])
            except ValueError:
                blob = b""
            blobs.append(blob)
            head["parameters"] = {"binary_data_size": len(blob)}
        else:
            head["data"] = said.get("values", [])
        inputs.append(head)
    return {"inputs": inputs, "parameters": parameters}, b"".join(blobs)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _number(value: Any) -> Any:
    """A factor is a text in JSON, and a number of a tensor; what is no number stays what it is."""
    try:
        return float.fromhex(value) if "x" in value else float(value)
    except (TypeError, ValueError, OverflowError):
        return value


def in_binary(head: dict[str, Any]) -> bytes | None:
    """The elements of an input as bytes, its head changed to say so; None where its data do not allow that."""
    dtype = DTYPES.get(str(head.get("datatype")))
    if dtype is None or not isinstance(head.get("data"), list):
        return None
    bf16 = head["datatype"] == "BF16"
    try:
        with np.errstate(all="ignore"):
            numbers = np.array(head["data"], np.float32 if bf16 else None).astype(np.float32 if bf16 else dtype)
    except (TypeError, ValueError, OverflowError):
        return None
    blob: NDArray[Any] = (numbers.view(np.uint32) >> 16).astype(np.uint16) if bf16 else numbers
    del head["data"]
    head["parameters"] = {"binary_data_size": blob.nbytes}
    return blob.tobytes()


def npy(array: NDArray[Any]) -> bytes:
    """An array as a `.npy` file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


_STORED = "!quant.uniform<i8:f32, 0.5:3>"
_NPY: dict[str, tuple[NDArray[Any], list[tuple[str, str]]]] = {
    "/v1/npy/quantize": (
        np.array([[0.25, 0.75, -1.5], [np.nan, np.inf, 1e9]], np.float32),
        [("output_type", _STORED), ("profile", "onnx")],
    ),
    "/v1/npy/dequantize": (np.array([3, 5, 0], np.int8), [("input_type", _STORED)]),
    "/v1/npy/requantize": (
        np.array([-70000, 0, 70000], np.int32),
        [("input_type", "!quant.uniform<i32:f32, 0.001>"), ("output_type", _STORED)],
    ),
}


_SCALE, _AXIS = npy(np.array([0.5, 0.25, 0.125], np.float32)), ("axis", b"1")
_FORMS: dict[str, list[tuple[str, bytes]]] = {
    "/v1/multipart/quantize": [
        ("x", npy(np.array([[0.25, 0.75, -1.5], [np.nan, np.inf, 1e9]], np.float32))),
        ("scale", _SCALE),
        _AXIS,
        ("storage_type", b"i8"),
        ("profile", b"onnx"),
    ],
    "/v1/multipart/dequantize": [
        ("x", npy(np.array([[3, 5, 0]], np.int8))),
        ("scale", _SCALE),
        ("zero_point", npy(np.array([1, 2, 3], np.int8))),
        _AXIS,
    ],
    "/v1/multipart/requantize": [
        ("x", npy(np.array([-70000, 0, 70000], np.int32))),
        ("input_type", b"!quant.uniform<i32:f32, 0.001>"),
        ("output_type", _STORED.encode()),
    ],
}


def of_route(path: str) -> Draft:
    """The request of a POST route that is in the document itself, or has bytes here."""
    if path in _FORMS:
        return Draft(path, path, parts=list(_FORMS[path]))
    if path in _NPY:
        array, query = _NPY[path]
        return Draft(path, path, None, npy(array), list(query))
    return Draft(path, path, EXAMPLES.get(path))


def of_model(model: Model, body: Any, version: str | None) -> Draft:
    """The request of a model for what the body of its JSON route asks for."""
    found, data = inference(model, body)
    if version is None:
        return Draft(INFER, INFER.format(model=model.name), found, data)
    return Draft(INFER_VERSION, INFER_VERSION.format(model=model.name, version=version), found, data)


ROUTES = [path for path in POSTS if path not in (INFER, INFER_VERSION)]
"""Every POST route but those of the models."""
