"""The Open Inference Protocol's wire form, written from its specification: requests to send, and replies to read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

DTYPES = {
    "BOOL": "|b1",
    **{f"{sign}INT{8 * size}": f"<{kind}{size}" for sign, kind in (("", "i"), ("U", "u")) for size in (1, 2, 4, 8)},
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "BF16": "<u2",
}
LENGTH = "Inference-Header-Content-Length"


def datatype(array: Array) -> str:
    """The datatype of an array; bf16 is told by the caller, since its patterns are uint16 here."""
    return next(name for name, dtype in DTYPES.items() if np.dtype(dtype) == array.dtype)


@dataclass(frozen=True)
class Input:
    """One input. `data` None: sent in binary; else as this JSON."""

    name: str
    array: Array
    datatype: str = ""
    data: list[Any] | None = None

    def head(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.name,
            "shape": list(self.array.shape),
            "datatype": self.datatype or datatype(self.array),
        }
        if self.data is None:
            return found | {"parameters": {"binary_data_size": self.array.nbytes}}
        return found | {"data": self.data}


def body_of(inputs: list[Input], **members: Any) -> tuple[bytes, dict[str, str]]:
    """A request: its body and headers."""
    text = json.dumps({**members, "inputs": [each.head() for each in inputs]}).encode()
    blobs = b"".join(each.array.tobytes() for each in inputs if each.data is None)
    return text + blobs, {LENGTH: str(len(text))} if any(each.data is None for each in inputs) else {}


@dataclass(frozen=True)
class Reply:
    """A reply that was read: the JSON, and the outputs as arrays."""

    head: dict[str, Any]
    outputs: dict[str, Array]


def read(response: httpx.Response) -> Reply:
    """Read a reply, and check that every byte of it belongs to something."""
    assert response.status_code == 200, response.text
    content = response.content
    length = int(response.headers.get(LENGTH, len(content)))
    kind = "application/octet-stream" if LENGTH in response.headers else "application/json"
    assert response.headers["content-type"] == kind
    head = json.loads(content[:length])
    at = length
    outputs = {}
    for output in head["outputs"]:
        dtype = np.dtype(DTYPES[output["datatype"]])
        size = output["parameters"].get("binary_data_size")
        if size is None:
            numbers = np.float32 if output["datatype"] == "BF16" else dtype
            array = np.array([float(v) if isinstance(v, str) else v for v in output["data"]], numbers)
            if output["datatype"] == "BF16":
                array = (array.view(np.uint32) >> 16).astype(np.uint16)
        else:
            array = np.frombuffer(content[at : at + size], dtype)
            at += size
        outputs[output["name"]] = array.reshape(output["shape"])
    assert at == len(content)
    return Reply(head, outputs)


def infer(client: httpx.Client, model: str, inputs: list[Input], **members: Any) -> httpx.Response:
    """Send a request. httpx adds no Content-Type to bytes."""
    body, headers = body_of(inputs, **members)
    return client.post(f"/v2/models/{model}/infer", content=body, headers=headers)
