"""The request of a seed and a number: one that works, changed, as bytes. A few are spoilt altogether."""

from __future__ import annotations

import gzip
import zlib
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from tests.fuzz.json_mutation import changed, copied, dumped
from tests.fuzz.message_mutation import (
    changed_bytes,
    changed_fields,
    changed_form,
    changed_npy,
    changed_query,
    form_of,
    near_path,
)
from tests.fuzz.samples import anything
from tests.fuzz.seeds import INFER, INFER_VERSION, ROUTES, Draft, in_binary, of_model, of_route
from tests.fuzz.wire import Request
from tests.requests.catalog import CATALOG, Entry
from tests.requests.document import EXAMPLES, POSTS, VALUES, request_fields, resolved

_DATATYPES = ["BOOL", "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FP16", "FP32", "FP64",
              "BF16", "BYTES", "FP8"]  # fmt: skip


def _changed_inference(random: Random, draft: Draft, model: Entry) -> None:
    """Change what only the inference protocol has, and put inputs into binary form."""
    body = draft.body
    for head in body["inputs"]:
        match random.randrange(60):
            case 0:
                head["datatype"] = random.choice(_DATATYPES)
            case 1:
                head["shape"] = changed(random, head["shape"])
            case 2:
                head["data"] = changed(random, head.get("data", []))
            case 3 | 4 if head["name"] in model.datatypes:
                head["datatype"] = random.choice(model.datatypes[head["name"]])
    if random.random() < 0.1:
        body["outputs"] = [{"name": random.choice(["y", "dst", "output", "elements", "first", ""])}]
    if random.random() < 0.05:
        draft.body = body = changed(random, body)
    if isinstance(body, dict) and random.random() < 0.1 and isinstance(body.get("parameters"), dict):
        name = random.choice([*sorted(model.parameters), "binary_data_output"])
        body["parameters"][name] = copied(random.choice(VALUES[name])) if name in VALUES else anything(random)
    if isinstance(body, dict) and random.random() < 0.3 and isinstance(body.get("parameters"), dict):
        body["parameters"]["binary_data_output"] = True
    if isinstance(body, dict) and random.random() < 0.5 and isinstance(body.get("inputs"), list) and not draft.data:
        draft.data = b"".join(in_binary(head) or b"" for head in body["inputs"] if isinstance(head, dict))
        for head in body["inputs"]:
            if isinstance(head, dict) and "parameters" in head and random.random() < 0.05:
                head["parameters"] = changed(random, head["parameters"])


_BOUNDARY = b"5f3a9c0e7d"


def encoded(random: Random | None, draft: Draft) -> Request:
    """The request as bytes, with changes that are made to bytes; without `random` as it is."""
    text = b"" if draft.body is None else dumped(draft.body).encode()
    fields = list(draft.fields)
    models = draft.operation in (INFER, INFER_VERSION)
    body, path = text + draft.data, draft.path
    if draft.parts:
        body = form_of(draft.parts, _BOUNDARY)
        fields.append(("Content-Type", f"multipart/form-data; boundary={_BOUNDARY.decode()}"))
    elif models and draft.data:
        fields.append(("Inference-Header-Content-Length", str(len(text))))
    elif not models:
        fields.append(("Content-Type", "application/octet-stream" if draft.body is None else "application/json"))
    if random is not None:
        if random.random() < 0.04:
            body = changed_bytes(random, body)
        if models and random.random() < 0.05:
            encoding = random.choice(["gzip", "deflate"])
            fields.append(("Content-Encoding", encoding))
            body = gzip.compress(body, mtime=0) if encoding == "gzip" else zlib.compress(body)
        if random.random() < 0.05:
            changed_fields(random, fields, len(text))
        path = near_path(random, path)
    query = f"?{urlencode(draft.query, quote_via=quote, errors='replace')}" if draft.query else ""
    return Request(draft.operation, quote(path, safe="/%") + query, tuple(fields), body)


def _parameters(path: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each["schema"] for each in POSTS[path].get("parameters", ()) if each["in"] == "query"}


def _form_fields(path: str) -> dict[str, dict[str, Any]]:
    content = POSTS[path]["requestBody"]["content"]["multipart/form-data"]
    fields: dict[str, dict[str, Any]] = content["schema"]["properties"]
    return fields


def _changes(random: Random) -> int:
    return random.choice([0, 1, 1, 1, 1, 1, 2, 2, 3, 4, 6])


def _fields(path: str) -> int:
    """How many fields a route has to vary: so often it is asked."""
    fields = request_fields(path)
    parts = [resolved(fields[name]).get("properties", {}) for name in ("inputs", "attributes") if name in fields]
    return 2 + len(fields) + sum(map(len, parts))


_FILE_ROUTES = [route for route in ROUTES if "/npy/" in route or "/multipart/" in route]
_WEIGHTS = [_fields(route) for route in ROUTES]
_MODELS = list(CATALOG.values())
_WEIGHTS_OF_MODELS = [_fields(model.route) for model in _MODELS]


def _draft(random: Random) -> Draft:
    kind = random.random()
    if kind < 0.42:
        [model] = random.choices(_MODELS, _WEIGHTS_OF_MODELS)
        body = copied(model.example)
        for _ in range(_changes(random)):
            body = changed(random, body, request_fields(model.route))
        version = random.choice([*model.versions, *model.versions, "9"]) if random.random() < 0.15 else None
        draft = of_model(model, body, version)
        _changed_inference(random, draft, model)
        return draft
    path = random.choice(_FILE_ROUTES) if kind < 0.54 else random.choices(ROUTES, _WEIGHTS)[0]
    draft = of_route(path)
    if draft.parts:
        for _ in range(_changes(random)):
            changed_form(random, draft, _form_fields(path))
    elif draft.data:
        if random.random() < 0.5:
            draft.data = changed_npy(random, draft.data)
        for _ in range(_changes(random)):
            changed_query(random, draft, _parameters(path))
    else:
        draft.body = copied(draft.body) if path in EXAMPLES else random.choice([None, {}, {"ready": True}])
        for _ in range(_changes(random)):
            draft.body = changed(random, draft.body, request_fields(path))
    if random.random() < 0.01:
        draft.query.append((random.choice(["", "x", "profile"]), "1"))
    return draft


def fuzzed(seed: str, index: int) -> Request:
    """The request of that number. The same seed, number, document and catalog give the same request."""
    random = Random(f"{seed}:{index}")
    return encoded(random, _draft(random))
