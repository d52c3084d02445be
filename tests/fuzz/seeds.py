"""Requests that work, from which others are made: one for each POST route, for each model, and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from requant.operations.conversions import CONVERSIONS
from tests.requests.catalog import CATALOG, Entry
from tests.requests.document import EXAMPLES, POSTS
from tests.requests.files import npy
from tests.requests.inference import array_from, inference
from tests.support.oip_wire import DTYPES

INFER = "/v2/models/{model}/infer"
INFER_VERSION = "/v2/models/{model}/versions/{version}/infer"

ROUTES = [path for path in POSTS if path not in (INFER, INFER_VERSION)]
"""Every POST route but those of the models."""


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


def in_binary(head: dict[str, Any]) -> bytes | None:
    """The elements of an input as bytes, its head changed to say so; None where its data do not allow that."""
    if str(head.get("datatype")) not in DTYPES or not isinstance(head.get("data"), list):
        return None
    try:
        blob = array_from(head["data"], head["datatype"]).tobytes()
    except (TypeError, ValueError, OverflowError):
        return None
    del head["data"]
    head["parameters"] = {"binary_data_size": len(blob)}
    return blob


# Of forms, what no query has: scales and zero points as files.
_CHANNELS = [("scale", npy(np.array([0.5, 0.25, 0.125], np.float32))), ("axis", b"1"), ("storage_type", b"i8")]
_X = np.array([[0.25, 0.75, -1.5], [np.nan, np.inf, 1e9]], np.float32)
_FORMS: dict[str, list[tuple[str, bytes]]] = {
    "/v1/multipart/quantize": [("x", npy(_X)), *_CHANNELS, ("profile", b"onnx")],
    "/v1/multipart/dequantize": [
        ("x", npy(np.array([[3, 5, 0]], np.int8))),
        *_CHANNELS,
        ("zero_point", npy(np.array([1, 2, 3], np.int8))),
    ],
}


def _file(name: str) -> tuple[bytes, list[tuple[str, str]]]:
    """The example of a conversion as a `.npy` file and a query."""
    found = inference(CATALOG[name], CATALOG[name].example)
    query = found.parameters
    if name == "quantize":
        # The file says that itself.
        del query["input_type"]
    return npy(found.parts[0].array), list(query.items())


def of_route(path: str) -> Draft:
    """The request of a POST route: its example, or a file or a form."""
    if path in _FORMS:
        return Draft(path, path, parts=list(_FORMS[path]))
    for name in CONVERSIONS:
        if path == f"/v1/npy/{name}":
            file, query = _file(name)
            return Draft(path, path, None, file, query)
        if path == f"/v1/multipart/{name}":
            file, query = _file(name)
            return Draft(path, path, parts=[("x", file), *((key, text.encode()) for key, text in query)])
    return Draft(path, path, EXAMPLES.get(path))


def of_model(entry: Entry, body: Any, version: str | None) -> Draft:
    """The request of a model for what the body of its JSON route asks for."""
    found, data = inference(entry, body).drafted()
    if version is None:
        return Draft(INFER, INFER.format(model=entry.model), found, data)
    return Draft(INFER_VERSION, INFER_VERSION.format(model=entry.model, version=version), found, data)
