"""Plans of the `.npy` face are kept for the same query and header: what differs is planned anew, and checked anew."""

from __future__ import annotations

import asyncio
import io
import json

import numpy as np
import pytest

from requant_service.npy_api import conversion as npy_conversion
from tests.support.asgi import Reply, post, ready_app

I8 = "!quant.uniform<i8:f32, 0.5:3>"


def npy(values: list[float], dtype: str = "<f4") -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(values, dtype))
    return buffer.getvalue()


def stored(reply: Reply) -> list[int]:
    assert reply.status == 200, reply.body
    found: list[int] = np.load(io.BytesIO(reply.body)).tolist()
    return found


def test_the_same_request_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    app, planned = ready_app(), []
    plan = npy_conversion._plan

    async def counted(*arguments: object) -> object:
        planned.append(arguments)
        return await plan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(npy_conversion, "_plan", counted)

    async def run() -> None:
        async def quantize(values: list[float], dtype: str = "<f4", **query: str) -> Reply:
            body = npy(values, dtype)
            return await post(app, "/v1/npy/quantize", {"output_type": I8, **query}, [body], declared=len(body))

        assert stored(await quantize([0.5, 1])) == [4, 5]
        assert stored(await quantize([1, 0.5])) == [5, 4]
        assert len(planned) == 1
        assert stored(await quantize([1, 0.5, 2])) == [5, 4, 7]
        assert stored(await quantize([1, 0.25], profile="onnx")) == [5, 3]
        assert stored(await quantize([1, 0.25])) == [5, 4]
        assert len(planned) == 3
        # Another element kind of the same size and shape is refused, not read as the one before.
        refused = await quantize([1, 2], "<i4")
        assert refused.status == 422, refused.body

    asyncio.run(run())


def test_what_a_kept_query_does_not_cover_is_still_checked() -> None:
    app, body = ready_app(), npy([1.0])

    async def run() -> None:
        query = {"output_type": I8}
        for _ in range(2):
            assert (await post(app, "/v1/npy/quantize", query, [body], declared=len(body))).status == 200
            other_path = await post(app, "/v1/npy/requantize", query, [body], declared=len(body))
            assert other_path.status == 422
            unknown = await post(app, "/v1/npy/quantize", {**query, "a": "b"}, [body], declared=len(body))
            assert (unknown.status, json.loads(unknown.body)["code"]) == (422, "request_invalid")
            short = await post(app, "/v1/npy/quantize", query, [body[:-1]], declared=len(body) - 1)
            assert (short.status, json.loads(short.body)["code"]) == (400, "npy")

    asyncio.run(run())


def test_a_query_is_planned_without_a_cache() -> None:
    app, body = ready_app(plan_cache_bytes=0), npy([1.0])
    for _ in range(2):
        reply = asyncio.run(post(app, "/v1/npy/quantize", {"output_type": I8}, [body], declared=len(body)))
        assert stored(reply) == [5]
