"""Sends every example of the document to a running service, and records the replies."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from requant_service.http.openapi_operation import BINARY, EXAMPLES, NPY_HEADERS, Example
from requant_service.openapi.examples import EXAMPLE_REQUEST_ID, FORM, JSON, RECORDED, RecordedReply, recorded_replies

_START_SECONDS = 600
_SHARED_MEMORY = Path("/dev/shm")


def refused_requests() -> dict[int, tuple[str, str, bytes | None, dict[str, str]]]:
    """Return a request for each status that a faulty request can get: method, path, body and header fields."""
    json_type = {"content-type": JSON}
    quantize = EXAMPLES["quantize"].json
    assert quantize is not None
    many = {**quantize, "input": {"type": "tensor<5000xf32>", "values": [0] * 5000}}
    unclosed = {**quantize, "output_type": "!quant.uniform<i8:f32, 0.5:3"}
    return {
        400: ("POST", "/v1/quantize", b'{"input": ', json_type),
        404: ("GET", "/v1/profiles/tflite", None, {}),
        413: ("POST", "/v1/quantize", json.dumps(many).encode(), json_type),
        415: ("POST", "/v1/quantize", b"", {"content-type": "text/plain"}),
        422: ("POST", "/v1/quantize", json.dumps(unclosed).encode(), json_type),
    }


@contextmanager
def shared_memory_object() -> Iterator[None]:
    """Make the object of shared memory that the examples name, for a while."""
    registration = EXAMPLES["oipRegisterSharedMemory"].json
    assert registration is not None
    path = _SHARED_MEMORY / str(registration["key"]).lstrip("/")
    path.write_bytes(bytes(registration["byte_size"]))
    try:
        yield
    finally:
        path.unlink()


def encoded_request(example: Example) -> tuple[bytes | None, dict[str, str]]:
    """Return the body of an example, and its header fields."""
    if example.json is not None:
        return json.dumps(example.json).encode(), {"content-type": JSON}
    if example.npy is not None:
        return example.npy, {"content-type": BINARY}
    if not example.form:
        return None, {}
    boundary = uuid4().hex
    parts = []
    for name, value in example.form.items():
        file = f'; filename="{name}.npy"' if isinstance(value, bytes) else ""
        content = value if isinstance(value, bytes) else str(value).encode()
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), {"content-type": f"{FORM}; boundary={boundary}"}


def example_url(path: str, example: Example) -> str:
    """Return path and query of an example; `path` is the template."""
    query = f"?{urlencode(example.query)}" if example.query else ""
    return path.format(**example.path) + query


def reply_to_record(example: Example, body: bytes, headers: Mapping[str, str]) -> RecordedReply:
    """Return what is recorded of a reply."""
    if headers["content-type"] == BINARY:
        fields = {name: headers[name] for name in NPY_HEADERS if name in headers}
        return {"file": base64.b64encode(body).decode(), "headers": fields}
    reply = json.loads(body)
    if example.excerpt is None:
        return {"json": reply}
    if not example.excerpt:
        return {"json": reply[:1], "entries": len(reply)}
    entries = reply[example.excerpt]
    return {"json": {**reply, example.excerpt: entries[:1]}, "entries": len(entries)}


def record(document: Mapping[str, Any]) -> None:
    """Write the replies to all examples of a document's operations."""
    known = recorded_replies()
    operations = {
        operation["operationId"]: (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    replies: dict[str, RecordedReply] = {}
    with _running_service() as url, shared_memory_object():
        for name in operations:
            _send(url, *operations["oipUnregisterAllSharedMemory"], EXAMPLES["oipUnregisterAllSharedMemory"])
            example = EXAMPLES[name]
            if not example.recorded:
                continue
            if example.after is not None:
                _send(url, *operations[example.after], EXAMPLES[example.after])
            reply = _send(url, *operations[name], example)
            # Keep them, or each recording would differ.
            if name in known:
                for member in example.varying:
                    reply["json"][member] = known[name]["json"].get(member, reply["json"][member])
            replies[name] = reply
        for status, (method, path, body, headers) in refused_requests().items():
            headers = {**headers, "x-request-id": EXAMPLE_REQUEST_ID}
            received, problem, _ = _exchange(urllib.request.Request(url + path, body, headers, method=method))
            assert received == status, f"{method} {path} is answered with {received}"
            replies[str(status)] = {"json": json.loads(problem)}
    # The members of a reply stay in the order in which the service writes them.
    text = json.dumps(dict(sorted(replies.items())), indent=1, ensure_ascii=False)
    RECORDED.write_text(text + "\n", encoding="utf-8")
    recorded_replies.cache_clear()


def _send(url: str, method: str, path: str, example: Example) -> RecordedReply:
    body, headers = encoded_request(example)
    request = urllib.request.Request(url + example_url(path, example), body, headers, method=method)
    status, content, fields = _exchange(request)
    if status != 200:
        sys.exit(f"{method} {path} answers its example with {status}: {content.decode()}")
    return reply_to_record(example, content, fields)


def _exchange(request: urllib.request.Request) -> tuple[int, bytes, Mapping[str, str]]:
    """Return status, body and header fields of the reply to a request."""
    try:
        reply = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        reply = error
    with reply:
        return reply.status, reply.read(), reply.headers


@contextmanager
def _running_service() -> Iterator[str]:
    """Start the service with shared memory on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = {"PORT": str(port), "SHARED_MEMORY": "true", "LOG_LEVEL": "warning"}
    environment = {**os.environ, **{f"REQUANT_{name}": value for name, value in settings.items()}}
    with subprocess.Popen([sys.executable, "-m", "requant", "serve"], env=environment) as process:
        try:
            _wait_until_ready(url, process)
            yield url
        finally:
            process.terminate()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(_START_SECONDS * 10):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/healthz"):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("the service did not start")
