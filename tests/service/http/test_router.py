"""Direct routes: every POST route is one, found as FastAPI would find it."""

from __future__ import annotations

import asyncio
import json

import pytest
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from service.app import Application, create_app
from service.http.router import DirectRoutes
from service.runtime.settings import Settings
from tests.support.asgi import post, ready_app


def test_every_operation_of_the_document_that_reads_a_body_is_direct() -> None:
    app = create_app(Settings())
    assert isinstance(app, Application)
    posts = [path for path, operations in app.openapi()["paths"].items() if "post" in operations]
    assert len(posts) > 40
    for path in posts:
        found = app._direct.find(path)
        assert found is not None, path
        assert found[0].route.path == path


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/v2/models/quantize/infer", {"model": "quantize"}),
        ("/v2/models/quantize/versions/1/infer", {"model": "quantize", "version": "1"}),
        ("/v2/models/a%2Fb/infer", {"model": "a%2Fb"}),
        ("/v2/models/a/b/infer", None),
        ("/v2/models//infer", None),
        ("/v2/models/quantize/infer/", None),
        ("/v1/quantize/", None),
        ("/v1/info", None),
        ("", None),
    ],
)
def test_paths(path: str, parameters: dict[str, str] | None) -> None:
    app = create_app(Settings())
    assert isinstance(app, Application)
    found = app._direct.find(path)
    assert (None if found is None else dict(found[1])) == parameters


@pytest.mark.parametrize("path", ["/v1/quantize", "/v1/matmul", "/v1/onnx/QuantizeLinear", "/v2/repository/index"])
def test_what_a_route_depends_on_is_asked_first(path: str) -> None:
    reply = asyncio.run(post(ready_app(), path, {"a": "b"}, [], declared=0))
    problem = json.loads(reply.body)
    assert (reply.status, problem["errors"][0]["pointer"]) == (422, "/a")


def test_a_function_that_needs_more_than_the_request_is_refused() -> None:
    router = APIRouter()

    def something() -> int:
        return 1

    @router.post("/a")
    async def function(request: Request, number: int = Depends(something)) -> Response:
        return Response()

    with pytest.raises(AssertionError, match="/a asks FastAPI"):
        DirectRoutes([router])
