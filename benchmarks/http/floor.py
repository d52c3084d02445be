"""The floor: uvicorn with the same bytes in and out, and nothing done with them."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import uvicorn

from benchmarks.http.case import HEADER_BYTES


@lru_cache(maxsize=4)
def _reply(size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    body = bytes(HEADER_BYTES + (size - HEADER_BYTES) // 4)
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", str(len(body)).encode())]
    return (
        {"type": "http.response.start", "status": 200, "headers": headers},
        {"type": "http.response.body", "body": body, "more_body": False},
    )


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Drop the body and answer with as many bytes as the quantized file has."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message["body"])
        more = message["more_body"]
    head, body = _reply(size)
    await send(head)
    await send(body)


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", lifespan="off", access_log=False)
