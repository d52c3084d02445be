"""The examples of the document: requests, which are stated with the routes, and the recorded replies.

`recording.py` writes the replies; a test compares each with what the service answers now.
"""

from __future__ import annotations

import base64
import io
import json
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from requant_service.http.openapi_operation import BINARY, EXAMPLES, Example

RECORDED = Path(__file__).with_name("example_replies.json")
JSON = "application/json"
FORM = "multipart/form-data"
FILES = "docs/examples"
"""Where the files of the examples are served, relative to the document."""


EXAMPLE_REQUEST_ID = "example"
"""The request id in examples of problems."""


class RecordedReply(TypedDict, total=False):
    """A reply: `json`, of which a list of `entries` is an excerpt; or `file`, in base64, with header fields."""

    json: Any
    entries: int
    file: str
    headers: dict[str, str]


@cache
def recorded_replies() -> dict[str, RecordedReply]:
    """Return the recorded replies by operationId, and problems by their status."""
    if not RECORDED.exists():
        return {}
    replies: dict[str, RecordedReply] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return replies


def example_files() -> dict[str, bytes]:
    """Return the files of requests and replies, by their paths below `FILES`."""
    files = {f"{name}/{field}.npy": file for name, each in EXAMPLES.items() for field, file in each.files.items()}
    for name, reply in recorded_replies().items():
        if "file" in reply:
            files[f"{name}/reply.npy"] = base64.b64decode(reply["file"])
    return files


def add_examples(document: dict[str, Any]) -> None:
    """Put requests and replies into the operations of a document."""
    replies = recorded_replies()
    for path in document["paths"].values():
        for operation in path.values():
            name = operation["operationId"]
            _add_request(operation, name, EXAMPLES[name])
            # A new operation has none until `make openapi` has run; the test of the examples says so.
            if name in replies:
                _add_reply(operation, name, replies[name])


def _add_request(operation: dict[str, Any], name: str, example: Example) -> None:
    parameters = {**example.path, **example.query}
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in parameters:
            parameter["example"] = parameters[parameter["name"]]
    if example.json is not None:
        operation["requestBody"]["content"][JSON]["example"] = example.json
    elif example.npy is not None:
        operation["requestBody"]["content"] = {
            BINARY: {**operation["requestBody"]["content"][BINARY], "examples": _file(f"{name}/x.npy", example.npy)}
        }
    elif example.form:
        fields = {key: f"{key}.npy" if isinstance(value, bytes) else value for key, value in example.form.items()}
        operation["requestBody"]["content"][FORM]["example"] = fields


def _add_reply(operation: dict[str, Any], name: str, reply: RecordedReply) -> None:
    contents = operation["responses"]["200"]["content"]
    media_type = BINARY if "file" in reply else JSON
    if "file" in reply:
        fields = ", ".join(f"`{field}: {value}`" for field, value in reply["headers"].items())
        shown = {"examples": _file(f"{name}/reply.npy", base64.b64decode(reply["file"]), f"With {fields}.")}
    elif "entries" in reply:
        shown = {"examples": {"excerpt": {"summary": f"The first of {reply['entries']}", "value": reply["json"]}}}
    else:
        shown = {"example": reply["json"]}
    # FastAPI gives several operations the same dictionary.
    operation["responses"]["200"]["content"] = {**contents, media_type: {**contents[media_type], **shown}}


def _file(path: str, file: bytes, description: str | None = None) -> dict[str, Any]:
    array = np.load(io.BytesIO(file))
    # Not externalValue, which some generators look for beside the document.
    example = {"summary": f"{array.dtype} {list(array.shape)}: {array.tolist()}", "x-file": f"{FILES}/{path}"}
    return {"npy": example if description is None else {**example, "description": description}}
