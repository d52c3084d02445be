"""Routes: the functions that FastAPI describes in the OpenAPI document, served by Starlette's router.

FastAPI's own way to such a function (a stack of exception handlers, dependencies, validation) takes 0.1 to 0.4 ms, more
than a small tensor's whole request.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from core.errors import RequantError
from service.http import problems


class Endpoint:
    """The function of a route as an ASGI application: dependencies first, errors as problems."""

    def __init__(self, route: APIRoute) -> None:
        parameters = set(inspect.signature(route.endpoint).parameters)
        assert parameters == {"request", *route.param_convertors}, f"{route.path} asks FastAPI for {parameters}"
        self._function = route.endpoint
        self._dependencies = [each.dependency for each in route.dependencies if each.dependency is not None]
        methods = route.methods or set()
        self._methods = {*methods, "HEAD"} if "GET" in methods else methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. What is not an error of ours is raised again for the server's log."""
        request = Request(scope, receive, send)
        try:
            if scope["method"] not in self._methods:
                response = problems.method_not_allowed(request, self._methods)
            else:
                for dependency in self._dependencies:
                    await dependency(request)
                response = await self._function(request, **scope["path_params"])
        except RequantError as error:
            response = problems.error_response(request, error)
        except Exception:
            failed = problems.internal_error(request)
            await failed(scope, receive, send)
            raise
        await response(scope, receive, send)


def starlette_routes(routers: Iterable[APIRouter], busiest: Sequence[str] = ()) -> list[Route]:
    """Return what these routers have as routes of Starlette, which are tried in order: the paths in `busiest` first."""
    described = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    paths = {route.path for route in described}
    assert len(paths) == len(described), "there are two routes with the same path"
    described.sort(key=lambda route: busiest.index(route.path) if route.path in busiest else len(busiest))
    return [Route(route.path, Endpoint(route)) for route in described]


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that no route takes."""
    response = problems.not_found(Request(scope))
    await response(scope, receive, send)
