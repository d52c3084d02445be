"""What tests of all protocols send and ask of a reply."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray


def refused(reply: httpx.Response, status: int, code: str, pointer: str | None = None) -> dict[str, Any]:
    """Check that a reply is this problem, small and about one place if that is named, and return it."""
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = reply.json()
    assert (found["type"], found["status"]) == (f"/problems/{code}", status)
    assert found["request_id"] == reply.headers["X-Request-Id"]
    assert len(reply.content) < 4096
    if pointer is not None:
        assert [fault["pointer"] for fault in found["errors"]] == [pointer]
    return found


def encoded(array: NDArray[Any] | bytes) -> str:
    """The bytes of an array as JSON carries them."""
    return base64.b64encode(array if isinstance(array, bytes) else array.tobytes()).decode()


def npy(array: NDArray[Any]) -> bytes:
    """An array as a file of numpy."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()
