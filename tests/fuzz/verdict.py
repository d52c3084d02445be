"""What holds for every reply, whatever was asked: found in the OpenAPI document and in docs/hostile_input.md."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator

from tests.fuzz.seeds import INFER, INFER_VERSION
from tests.fuzz.wire import Reply, Request
from tests.requests.document import JSON, POSTS, SCHEMAS
from tests.support.oip_wire import DTYPES, LENGTH

PROBLEM = "application/problem+json"
BINARY = "application/octet-stream"
LONGEST_PROBLEM = 8 << 10
MAX_FAULTS = 16
# An error quotes at most 80 characters, and those that are not printable as escapes.
_QUOTED = 160
_TEXT = re.compile(r"tensor<((?:\d+x)*)[^?*]*>", re.DOTALL)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def strict_json(text: bytes) -> Any:
    """The value of a JSON text. Raise ValueError for what RFC 8259 does not have."""
    return json.loads(text, parse_constant=_no_constant)


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}})


def _schema_faults(value: Any, name: str) -> Iterator[str]:
    for error in _validator(name).iter_errors(value):
        yield f"not a {name}: {error.json_path}: {error.message[:200]}"


def faults(request: Request, reply: Reply, codes: dict[str, int]) -> Iterator[str]:
    """What is wrong with a reply. `codes`: every code of a problem, with its status."""
    documented = POSTS[request.operation]["responses"]
    if reply.status >= 500 and reply.status not in (503, 504):
        yield f"status {reply.status}"
        return
    # A path that is beside the route is none of the document's.
    if str(reply.status) not in documented and reply.status not in (404, 405):
        yield f"status {reply.status} is not documented"
        return
    if "x-request-id" not in reply.fields:
        yield "no X-Request-Id"
    if reply.status not in (200, 202):
        yield from _problem_faults(request, reply, codes)
    elif request.operation in (INFER, INFER_VERSION):
        yield from _inference_faults(reply)
    elif reply.fields.get_content_type() not in documented[str(reply.status)]["content"]:
        yield f"a reply of {reply.fields['content-type']}"
    elif reply.fields.get_content_type() == BINARY:
        yield from _npy_faults(request, reply)
    elif reply.fields.get_content_maintype() == "text":
        yield from _text_faults(reply)
    else:
        yield from _json_faults(reply, documented[str(reply.status)]["content"])


def _problem_faults(request: Request, reply: Reply, codes: dict[str, int]) -> Iterator[str]:
    if reply.fields["content-type"] != PROBLEM:
        yield f"an error of {reply.fields['content-type']}"
        return
    problem = strict_json(reply.body)
    yield from _schema_faults(problem, "Problem")
    code = problem.get("code")
    if code not in codes or codes[code] not in (reply.status, 422 if reply.status == 404 else None):
        yield f"status {reply.status} with the code {code}"
    if problem.get("status") != reply.status or problem.get("type") != f"/problems/{code}":
        yield "status or type of the problem are not the reply's"
    if request.target.startswith("/v2/") and problem.get("error") != problem["detail"]:
        yield "no error as the inference protocol has it"
    if reply.status == 503 and "retry-after" not in reply.fields:
        yield "503 without Retry-After"
    if len(problem.get("errors", ())) > MAX_FAULTS:
        yield f"{len(problem['errors'])} faults"
    if any(
        not re.fullmatch(r"(?:/(?:[^~/]|~[01])*)*", each["pointer"], re.DOTALL) for each in problem.get("errors", ())
    ):
        yield "a pointer that is no JSON pointer"
    if len(reply.body) > LONGEST_PROBLEM:
        yield f"an error of {len(reply.body)} bytes"
    for told in _texts(problem):
        yield from _echo_faults(request.body, told.encode("utf-8", "surrogatepass"))


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _texts(member)


def _echo_faults(sent: bytes, told: bytes) -> Iterator[str]:
    window = _QUOTED + 1
    if any(told[at : at + window] in sent for at in range(len(told) - _QUOTED)):
        yield "an error quotes the body at length"


def _text_faults(reply: Reply) -> Iterator[str]:
    text = reply.body.decode("utf-8", "replace")
    if "\ufffd" in text or not text.endswith("\n"):
        yield "a text that is no UTF-8, or cut"


def _json_faults(reply: Reply, content: dict[str, Any]) -> Iterator[str]:
    value = strict_json(reply.body)
    schema = content[JSON]["schema"]
    if "$ref" in schema:
        yield from _schema_faults(value, schema["$ref"].rpartition("/")[2])
    else:
        for entry in value:
            yield from _schema_faults(entry, schema["items"]["$ref"].rpartition("/")[2])
    yield from _tensor_faults(value, "")


def _tensor_faults(value: Any, place: str) -> Iterator[str]:
    """Tensors whose values are not as many as their type says."""
    if isinstance(value, dict):
        said = _TEXT.fullmatch(value["type"]) if isinstance(value.get("type"), str) else None
        if said is not None and isinstance(value.get("values"), list):
            elements = prod(int(size) for size in said[1].split("x")[:-1])
            if len(value["values"]) != elements:
                yield f"{place}: {len(value['values'])} values of {elements}"
        for name, member in value.items():
            yield from _tensor_faults(member, f"{place}/{name}")


def _inference_faults(reply: Reply) -> Iterator[str]:
    length = int(reply.fields.get(LENGTH, len(reply.body)))
    expected = BINARY if LENGTH in reply.fields else JSON
    if reply.fields["content-type"] != expected:
        yield f"a reply of {reply.fields['content-type']}"
    head = strict_json(reply.body[:length])
    yield from _schema_faults(head, "InferenceReply")
    for output in head["outputs"]:
        elements, stated = prod(output["shape"]), output["parameters"].get("binary_data_size")
        if stated is None and len(output["data"]) != elements:
            yield f"{output['name']} has {len(output['data'])} elements of {elements}"
        if stated is not None:
            length += stated
            if stated != elements * np.dtype(DTYPES[output["datatype"]]).itemsize:
                yield f"{output['name']} has {stated} bytes for {elements} elements"
    if length != len(reply.body):
        yield f"a body of {len(reply.body)} bytes, of which {length} are told of"


def _npy_faults(request: Request, reply: Reply) -> Iterator[str]:
    file = io.BytesIO(reply.body)
    try:
        found = np.load(file, allow_pickle=False)
    except ValueError as error:
        yield f"no .npy: {error}"
        found = None
    if isinstance(found, np.lib.npyio.NpzFile):
        # Each array is read, and its checksum with it.
        names = {name for name in found if found[name] is not None}
        if request.operation == "/v1/vectors":
            if not names >= {"input", "expected", "parameter_set", "why"}:
                yield f"a .npz of {list(found)}"
        elif names != {"y", "scale", "zero_point", "type"}:
            yield f"a .npz of {list(found)}"
    elif file.read():
        yield "bytes after the .npy"
