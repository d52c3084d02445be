"""Routes: the functions that FastAPI describes in the OpenAPI document, served by Starlette's router.

FastAPI's own path to such a function (a stack of exception handlers, dependencies, validation) takes 0.1 to 0.4 ms,
more than a small tensor's whole request.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.routing import Match, Route, Router
from starlette.types import Lifespan, Receive, Scope, Send

from requant.errors import RequantError
from requant_service.http import problems
from requant_service.runtime.request_context import context_of

_MAX_CACHED_PATHS, _MAX_CACHED_LENGTH = 1024, 256


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
        """Answer one request. Any other exception than ours is raised again for the server's log."""
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
        try:
            await response(scope, receive, send)
        except RequantError as error:
            if context_of(scope).status:
                raise  # in the middle of the response
            refusal = problems.error_response(request, error)
            await refusal(scope, receive, send)


def starlette_routes(routers: Iterable[APIRouter]) -> list[Route]:
    """Return what these routers have as routes of Starlette."""
    described = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    paths = {route.path for route in described}
    assert len(paths) == len(described), "there are two routes with the same path"
    return [Route(route.path, Endpoint(route)) for route in described]


class PathRouter(Router):
    """Starlette's router with a cache of the routes of recent paths.

    No two routes have the same path: an endpoint itself answers the methods that it does not have.
    """

    def __init__(self, routes: Sequence[Route], lifespan: Lifespan[Any] | None = None) -> None:
        super().__init__(routes, redirect_slashes=False, default=self._not_found, lifespan=lifespan)
        self._cached = lru_cache(_MAX_CACHED_PATHS)(self._matching)

    def matching(self, path: str) -> tuple[Route, Scope] | None:
        """Return the route that takes a path, and what it adds to the scope."""
        return self._cached(path) if len(path) <= _MAX_CACHED_LENGTH else self._matching(path)

    def _matching(self, path: str) -> tuple[Route, Scope] | None:
        for route in self.routes:
            match, scope = route.matches({"type": "http", "method": "GET", "path": path})
            if match is not Match.NONE:
                assert isinstance(route, Route)
                return route, scope
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the lifespan."""
        match = self.matching(scope["path"]) if scope["type"] == "http" else None
        if match is None:
            await super().__call__(scope, receive, send)
            return
        scope["route"], matched = match
        scope.update(matched)
        await match[0].app(scope, receive, send)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that no route takes."""
        paths = [route.path for route in self.routes if isinstance(route, Route)]
        response = problems.not_found(Request(scope), paths)
        await response(scope, receive, send)
