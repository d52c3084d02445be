"""The router: every operation of the document has its route, and what no route takes is a problem."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from requant_service.app import Application, create_app
from requant_service.http.router import PathRouter, starlette_routes
from requant_service.runtime.settings import Settings
from tests.support.asgi import post, ready_app


def found(app: Application, path: str) -> Scope | None:
    """What the router adds to the scope of a request, None where no route takes its path."""
    assert isinstance(app.router, PathRouter)
    matched = app.router.matching(path)
    assert matched == app.router.matching(path)
    return None if matched is None else {**matched[1], "route": matched[0]}


def test_every_operation_of_the_document_has_its_route() -> None:
    app = create_app(Settings())
    paths = app.openapi()["paths"]
    assert len(paths) > 50
    for path in paths:
        scope = found(app, path)
        assert scope is not None, path
        assert scope["route"].path == path


def test_no_path_has_two_routes() -> None:
    """The first route that matches is remembered, so the order of routes must not matter."""
    app = create_app(Settings())
    for path in app.openapi()["paths"]:
        scope = {"type": "http", "method": "POST", "path": path}
        assert sum(route.matches(scope)[0] is Match.FULL for route in app.router.routes) == 1, path


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
        ("/v1/info", {}),
        ("", None),
    ],
)
def test_paths(path: str, parameters: dict[str, str] | None) -> None:
    scope = found(create_app(Settings()), path)
    assert (None if scope is None else scope["path_params"]) == parameters


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [("GET", "/v1/quantize", 405, "POST"), ("POST", "/v1/info", 405, "GET, HEAD"), ("POST", "/v1/none", 404, None)],
)
def test_other_methods_and_paths_are_problems(method: str, path: str, status: int, allow: str | None) -> None:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(Settings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path)

    response = asyncio.run(ask())
    assert (response.status_code, response.headers.get("allow")) == (status, allow)
    assert response.json()["code"] == ("not_found" if status == 404 else "method_not_allowed")


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
        starlette_routes([router])
