"""Problems: every error class has its row, and nothing leaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from starlette.requests import Request

from requant import errors
from requant.operations.conversions import QUANTIZE
from requant_service.app import create_app
from requant_service.http import problems
from requant_service.http.json_body import read_json
from requant_service.http.router import starlette_routes
from requant_service.json_api.schemas.described import request_model
from requant_service.runtime.settings import Settings

STATUSES = {
    "type_invalid": 422,
    "module_invalid": 422,
    "lowering_failed": 422,
    "deadline_passed": 504,
    "type_does_not_fit": 422,
    "unsupported": 422,
    "unknown_name": 422,
    "precondition_failed": 422,
    "parameter_invalid": 422,
    "request_invalid": 422,
    "npy": 400,
    "base64": 400,
    "tensor_data": 400,
    "checkpoint": 422,
    "safetensors": 400,
    "source_changed": 409,
    "destination": 409,
    "storage": 422,
    "verification": 422,
    "request_malformed": 400,
    "media_type": 415,
    "shared_memory": 422,
    "limit_exceeded": 413,
    "not_ready": 503,
    "overloaded": 503,
    "unauthorized": 401,
    "self_test": 503,
    "request_timeout": 408,
    "head_too_large": 431,
    "http_version": 505,
    "transfer_coding": 501,
    "unimplemented": 501,
    "cross_origin": 403,
    "host_not_allowed": 421,
    "not_found": 404,
    "method_not_allowed": 405,
    "internal_error": 500,
}


def classes(base: type[errors.RequantError]) -> Iterator[type[errors.RequantError]]:
    for cls in base.__subclasses__():
        yield cls
        yield from classes(cls)


def request() -> Request:
    return Request({"type": "http", "method": "POST", "headers": [(b"x-request-id", b"abc")]})


def body_of(error: errors.RequantError) -> dict[str, Any]:
    response = problems.error_response(request(), error)
    assert response.media_type == "application/problem+json"
    assert response.headers["x-request-id"] == "abc"
    found: dict[str, Any] = json.loads(bytes(response.body))
    assert found["status"] == response.status_code
    return found


def test_the_table_is_what_the_contract_says() -> None:
    assert {kind.code: kind.status for kind in problems.PROBLEMS.values()} == STATUSES


@pytest.mark.parametrize("cls", [c for c in classes(errors.RequantError) if c is not errors.RequestError])
def test_every_error_class_has_a_row(cls: type[errors.RequantError]) -> None:
    assert {"code", "status", "title", "explanation"} <= vars(cls).keys()
    assert problems.PROBLEMS[cls.code] is cls


def test_a_type_error_says_where() -> None:
    error = errors.TypeTextError(
        "expected a type", offset=7, caret="tensor<\n       ^", hint="close it", pointer="/text"
    )
    found = body_of(error)
    assert found["type"] == "/problems/type_invalid"
    assert (found["offset"], found["caret"], found["hint"]) == (7, "tensor<\n       ^", "close it")
    assert found["errors"] == [{"pointer": "/text", "code": "type_invalid", "detail": "expected a type", "offset": 7}]
    assert found["request_id"] == "abc"


def test_members_that_do_not_apply_are_absent() -> None:
    assert set(body_of(errors.NpyError("no"))) == {"type", "title", "status", "detail", "code", "request_id"}
    assert body_of(errors.PreconditionError("no", index=0))["index"] == 0
    assert body_of(errors.TypeTextError("no", offset=0))["offset"] == 0


def test_a_service_that_is_not_ready_says_when_to_come_back() -> None:
    assert problems.error_response(request(), errors.UnavailableError("wait")).headers["retry-after"] == "1"


def test_pointers_are_put_on_errors_without_one() -> None:
    with (
        pytest.raises(errors.TensorDataError) as caught,
        errors.default_pointer("/outer"),
        errors.default_pointer("/inner"),
    ):
        raise errors.TensorDataError("no")
    assert caught.value.pointer == "/inner"


def invalid(body: bytes) -> errors.RequantError:
    with pytest.raises(errors.RequestError) as caught:
        read_json(body, request_model(QUANTIZE), Settings())
    return caught.value


def test_pydantic_errors_become_faults_with_pointers() -> None:
    error = invalid(b'{"input": {"type": 3, "data": "SECRET"}, "a/b~c": "SECRET"}')
    assert isinstance(error, errors.InvalidRequestError)
    assert {fault.pointer: fault.code for fault in error.faults} == {
        "/input/type": "string_type",
        "/output_type": "missing",
        "/a~1b~0c": "extra_forbidden",
    }
    assert "SECRET" not in json.dumps(body_of(error))


def test_faults_are_bounded_in_number_and_length() -> None:
    body = json.dumps({f"{'x' * 5000}{index}": 0 for index in range(18)}).encode()
    found = body_of(invalid(body))
    assert len(found["errors"]) == 16
    assert len(json.dumps(found)) < 5000


def test_text_that_is_not_json_is_malformed() -> None:
    for body in (b"", b"{", b"\x93NUMPY", b'{"input": "\xff"}', b"[" * 10_000):
        assert isinstance(invalid(body), errors.MalformedRequestError)


@pytest.mark.parametrize("length", [1999, 2000, 2001, 3_000_000])
def test_details_are_bounded(length: int) -> None:
    error = errors.TypeFitError("what" + "x" * (length - 8) + "expected"[:4])
    assert error.detail == str(error)
    assert len(error.detail) == (length if length <= 2000 else 1999)
    assert (error.detail.startswith("what"), error.detail.endswith("expe")) == (True, True)
    assert ("..." in error.detail) is (length > 2000)
    assert len(body_of(error)["detail"]) <= 2000


def test_nothing_of_the_inside_is_told() -> None:
    app = create_app(Settings())

    router = APIRouter()

    @router.get("/fail")
    async def fail(request: Request) -> None:
        raise RuntimeError("SECRET")

    app.router.routes += starlette_routes([router])

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/fail", headers={"x-request-id": "abc"})

    reply = asyncio.run(ask())
    assert reply.status_code == 500
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["x-request-id"] == "abc"
    assert reply.json()["code"] == "internal_error"
    assert "SECRET" not in reply.text
