"""Plans are kept in all protocols: what a request says is never that of another, and what differs is planned anew."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any

import numpy as np
import pytest

from requant.description import Work
from requant.operations import OPERATIONS
from requant_service.app import Application
from requant_service.npy_api import conversion as npy_conversion
from tests.service.replies import npy
from tests.support.asgi import Reply, post, ready_app

Body = dict[str, Any]

_I8, _I4 = "!quant.uniform<i8:f32, 0.5:3>", "!quant.uniform<i4:f32, 0.5:1>"
_REALS = {"type": "tensor<5xf32>", "values": [0.25, 0.75, -9.0, 2.25, "NaN"]}
_STORED = {"type": f"tensor<4x{_I8}>", "data": "AwQFBg=="}
_ROWS = {"type": "tensor<2x2x!quant.uniform<i32:f32, 0.125>>", "values": [8, 9, 10, 1001]}


def _quantize(**options: Any) -> tuple[str, Body]:
    return "/v1/quantize", {"input": _REALS, "output_type": _I4, **options}


def _requantize(**options: Any) -> tuple[str, Body]:
    return "/v1/requantize", {"input": _ROWS, "output_type": _I8, **options}


def _range(lowest: float, **options: Any) -> tuple[str, Body]:
    numbers = {"minimums": [lowest], "maximums": [2.0], "storage": "i8", "scheme": "litert"}
    return "/v1/parameters/range", numbers | options


def _blocks(global_scale: float | str) -> tuple[str, str]:
    """Dequantize NVFP4 with a global scale as it is written."""
    elements = {"type": "tensor<16xf4E2M1FN>", "data": base64.b64encode(bytes([9] * 16)).decode()}
    scales = {"type": "tensor<1xf8E4M3FN>", "data": "OA=="}
    body = json.dumps({"format": "nvfp4", "elements": elements, "scales": scales, "output_type": "tensor<16xf32>"})
    return "/v1/blocks/dequantize", f'{body[:-1]}, "global_scale": {global_scale}}}'


def _infer(model: str, shape: list[int], datatype: str, data: list[Any], **parameters: Any) -> tuple[str, Body]:
    tensor = {"name": "x", "shape": shape, "datatype": datatype, "data": data}
    return f"/v2/models/{model}/infer", {"inputs": [tensor], "parameters": parameters}


_INFER_REALS = ([5], "FP32", [0.25, 0.75, -9.0, 2.25, 0.5])
_INFER_I32 = ([2, 2], "INT32", [8, 9, 10, 1001])

REQUESTS = [
    *((f"/v1/{each.path or each.name}", dict(each.example)) for each in OPERATIONS.values()),
    _range(0.0),
    _range(-0.0),
    _range(-1.0),
    _range(-1.0, narrow=True),
    _range(-1.0, axis=0),
    _range(-1.0, storage="u8"),
    _range(-1.0, maximums=[3.0]),
    _quantize(),
    _quantize(output_type=_I8),
    _quantize(profile="onnx"),
    _quantize(profile="litert"),
    _quantize(rounding="floor"),
    _quantize(rounding="nearest_away"),
    _quantize(rounding="stochastic", seed=1),
    _quantize(rounding="stochastic", seed=2),
    _quantize(nan="zero_point"),
    _quantize(nan="error"),
    _quantize(error=True),
    _quantize(input={"type": "tensor<5xf32>", "data": "AAAAAAAAgD8AAAAAAACAPwAAgL8="}),
    _quantize(input={"type": "tensor<5xf32>", "data": "AAAAAAAAgD8AAAAAAACAPwAAgL8="}, packing="dense"),
    _quantize(
        input={"type": "tensor<4xf32>", "values": [1, 2, 3, 1e30]},
        output_type="f8E4M3FN",
        profile="onnx",
        saturate=True,
    ),
    _quantize(
        input={"type": "tensor<4xf32>", "values": [1, 2, 3, 1e30]},
        output_type="f8E4M3FN",
        profile="onnx",
        saturate=False,
    ),
    ("/v1/dequantize", {"input": _STORED}),
    ("/v1/dequantize", {"input": _STORED, "output_type": "f32"}),
    ("/v1/dequantize", {"input": _STORED, "profile": "onnx"}),
    _requantize(),
    _requantize(profile="onnx"),
    _requantize(scheme="gemmlowp"),
    _requantize(multipliers=[{"multiplier": 1 << 30, "shift": -1}]),
    _requantize(multipliers=[{"multiplier": 1 << 30, "shift": -2}]),
    _requantize(multipliers=[{"multiplier": 1 << 30, "shift": -1}, {"multiplier": 1 << 30, "shift": -3}], axis=0),
    _requantize(multipliers=[{"multiplier": 1 << 30, "shift": -1}, {"multiplier": 1 << 30, "shift": -3}], axis=1),
    _infer("quantize", *_INFER_REALS, output_type=_I8),
    _infer("quantize", *_INFER_REALS, output_type=_I4),
    _infer("quantize", *_INFER_REALS, output_type=_I4, packing="dense", binary_data_output=True),
    _infer("quantize", *_INFER_REALS, output_type=_I4, profile="onnx"),
    _infer("quantize", *_INFER_REALS, output_type=_I4, rounding="floor"),
    _infer("quantize", *_INFER_REALS, output_type=_I4, rounding="stochastic", seed=1),
    _infer("quantize", *_INFER_REALS, output_type=_I4, rounding="stochastic", seed=2),
    _infer("quantize", *_INFER_REALS, output_type=_I4, error=True),
    _infer("quantize", [5], "FP64", _INFER_REALS[2], output_type="!quant.uniform<i4:f64, 0.5:1>"),
    _infer("quantize", [5, 1], "FP32", _INFER_REALS[2], output_type=_I4),
    _infer("dequantize", [4], "INT8", [3, 4, 5, 6], input_type=_I8),
    _infer("dequantize", [4], "INT8", [3, 4, 5, 6], input_type="!quant.uniform<i8:f32, 0.25:3>"),
    _infer("requantize", *_INFER_I32, input_type="!quant.uniform<i32:f32, 0.125>", output_type=_I8),
    _infer("requantize", *_INFER_I32, input_type="!quant.uniform<i32:f32, 0.125>", output_type=_I8, scheme="gemmlowp"),
    _infer("requantize", *_INFER_I32, input_type="!quant.uniform<i32:f32, 0.25>", output_type=_I8),
    # A scale as a tensor is no part of what a plan is kept for.
    *(
        (
            "/v2/models/quantize/infer",
            {
                "inputs": [
                    {"name": "x", "shape": [5], "datatype": "FP32", "data": _INFER_REALS[2]},
                    {"name": "scale", "shape": [1], "datatype": "FP32", "data": [scale]},
                ],
                "parameters": {"storage_type": "i8"},
            },
        )
        for scale in (0.5, 0.25)
    ),
]


async def _ask(app: Application, path: str, body: Body | str) -> Reply:
    text = (body if isinstance(body, str) else json.dumps(body)).encode()
    return await post(app, path, {}, [text], declared=len(text), headers=[(b"x-request-id", b"an-id")])


@pytest.mark.exhaustive
def test_every_request_gets_its_own_answer_whatever_came_before_it() -> None:
    kept, unkept = ready_app(), ready_app(plan_cache_bytes=0)

    async def run() -> None:
        for requests in (REQUESTS, REQUESTS, REQUESTS[::-1]):
            for path, body in requests:
                found, expected = await _ask(kept, path, body), await _ask(unkept, path, body)
                assert found.body == expected.body, (path, body)
                assert found.status == expected.status == (422 if body.get("nan") == "error" else 200), found.body

    asyncio.run(run())
    assert len(kept.state.runtime.planned) > 30
    assert len(unkept.state.runtime.planned) == 0


# Of modules and of calls no plans are kept.
_UNPLANNED = {
    f"/v1/{each.path or each.name}"
    for each in OPERATIONS.values()
    if each.work is Work.MODULES or each.calls is not None
}
ANSWERED = [each for each in REQUESTS[:-2] if each[1].get("nan") != "error" and each[0] not in _UNPLANNED]


@pytest.mark.parametrize("request_", ANSWERED[::5], ids=lambda each: each[0])
def test_the_same_request_is_planned_once(request_: tuple[str, Body]) -> None:
    app = ready_app()

    async def run() -> None:
        for _ in range(3):
            assert (await _ask(app, *request_)).status == 200
            assert len(app.state.runtime.planned) == 1

    asyncio.run(run())


def _file(values: list[float], dtype: str = "<f4") -> bytes:
    return npy(np.array(values, dtype))


def _stored(reply: Reply) -> list[int]:
    assert reply.status == 200, reply.body
    found: list[int] = np.load(io.BytesIO(reply.body)).tolist()
    return found


def test_the_same_query_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    app, planned = ready_app(), []
    plan = npy_conversion._plan

    async def counted(*arguments: object) -> object:
        planned.append(arguments)
        return await plan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(npy_conversion, "_plan", counted)

    async def run() -> None:
        async def quantize(values: list[float], dtype: str = "<f4", **query: str) -> Reply:
            body = _file(values, dtype)
            return await post(app, "/v1/npy/quantize", {"output_type": _I8, **query}, [body], declared=len(body))

        assert _stored(await quantize([0.5, 1])) == [4, 5]
        assert _stored(await quantize([1, 0.5])) == [5, 4]
        assert len(planned) == 1
        assert _stored(await quantize([1, 0.5, 2])) == [5, 4, 7]
        assert _stored(await quantize([1, 0.25], profile="onnx")) == [5, 3]
        assert _stored(await quantize([1, 0.25])) == [5, 4]
        assert len(planned) == 3
        # Another element kind of the same size and shape is refused, not read as the one before.
        refused = await quantize([1, 2], "<i4")
        assert refused.status == 422, refused.body

    asyncio.run(run())


def test_what_a_kept_query_does_not_cover_is_still_checked() -> None:
    app, body = ready_app(), _file([1.0])

    async def run() -> None:
        query = {"output_type": _I8}
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
    app, body = ready_app(plan_cache_bytes=0), _file([1.0])
    for _ in range(2):
        reply = asyncio.run(post(app, "/v1/npy/quantize", {"output_type": _I8}, [body], declared=len(body)))
        assert _stored(reply) == [5]


def test_numbers_that_are_read_as_they_are_written_are_told_apart() -> None:
    requests = [_blocks("0"), _blocks("-0"), _blocks("0.5"), _blocks("0.5" + 140 * "0"), _blocks("-0"), _blocks("0")]
    kept, unkept = ready_app(), ready_app(plan_cache_bytes=0)

    async def run() -> list[tuple[int, bytes]]:
        replies = []
        for request in requests:
            found, expected = await _ask(kept, *request), await _ask(unkept, *request)
            assert (found.status, found.body) == (expected.status, expected.body), request
            replies.append((found.status, found.body))
        return replies

    zero, negative_zero, half, long, *_ = asyncio.run(run())
    assert zero != negative_zero
    assert (half[0], long[0]) == (200, 422)


def test_an_error_about_a_record_points_at_it_whether_its_plan_is_kept_or_not() -> None:
    app = ready_app()
    record = {"input": 0.5, "output": 0.25}
    request = "/v1/parameters/multiplier", {"scales": [record, {**record, "input": -1}], "scheme": "litert"}

    async def run() -> list[Reply]:
        return [await _ask(app, *request) for _ in range(3)]

    replies = asyncio.run(run())
    assert len(app.state.runtime.planned) == 1
    assert {json.loads(each.body)["errors"][0]["pointer"] for each in replies} == {"/scales/1/input"}


def test_no_plan_is_kept_of_types_that_promise_more_than_the_request_has() -> None:
    app = ready_app()
    side, bias = "!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i32:f32, 0.3>"

    async def run() -> None:
        for columns in (100_000, 100_001):
            body = {
                "lhs": {"type": f"tensor<0x1x{side}>", "values": []},
                "rhs": {"type": f"tensor<1x{columns}x{side}>", "values": []},
                "bias": {"type": f"tensor<{columns}x{bias}>", "values": []},
                "output_type": side,
            }
            assert (await _ask(app, "/v1/matmul", body)).status == 400
        body = {
            "lhs": {"type": f"tensor<100000x0x{side}>", "values": []},
            "rhs": {"type": f"tensor<0x1x{side}>", "values": []},
            "output_type": side,
        }
        await _ask(app, "/v1/matmul", body)

    asyncio.run(run())
    assert len(app.state.runtime.planned) == 0
