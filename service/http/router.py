"""Direct routes: functions of a request that read it and answer it by themselves.

They are registered with FastAPI like all others, so that they are in the OpenAPI document, but for such a function its
machinery (the stack of exception handlers, the search through all routes, the dependencies) only costs time: 0.1 to
0.4 ms, which is more than a small tensor's whole way through the service. So the application calls them itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.errors import RequantError
from service.http import problems

Endpoint = Callable[..., Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class DirectRoute:
    """A function, what is asked before it (`Depends`), and the route that describes it."""

    endpoint: Endpoint
    before: tuple[Callable[[Request], Awaitable[None]], ...]
    route: APIRoute


class DirectRoutes:
    """The POST routes of some routers: all of them are direct."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._fixed: dict[str, DirectRoute] = {}
        self._patterns: list[DirectRoute] = []
        for router in routers:
            for route in router.routes:
                if isinstance(route, APIRoute) and route.methods == {"POST"}:
                    self._add(route)

    def _add(self, route: APIRoute) -> None:
        parameters = set(inspect.signature(route.endpoint).parameters)
        assert parameters == {"request", *route.param_convertors}, f"{route.path} asks FastAPI for {parameters}"
        before = tuple(each.dependency for each in route.dependencies if each.dependency is not None)
        found = DirectRoute(route.endpoint, before, route)
        if route.param_convertors:
            self._patterns.append(found)
        else:
            self._fixed[route.path] = found

    def find(self, path: str) -> tuple[DirectRoute, Mapping[str, Any]] | None:
        """Return the route of a path, and the path's parameters."""
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed, {}
        for each in self._patterns:
            match = each.route.path_regex.match(path)
            if match is not None:
                return each, match.groupdict()
        return None


async def answer(found: DirectRoute, parameters: Mapping[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, errors as problems. What is not an error of ours is raised again for the server's log."""
    request = Request(scope, receive, send)
    scope["route"] = found.route
    try:
        for check in found.before:
            await check(request)
        reply = await found.endpoint(request, **parameters)
    except RequantError as error:
        reply = problems.error_response(request, error)
    except Exception as error:
        failed = await problems.on_unexpected(request, error)
        await failed(scope, receive, send)
        raise
    await reply(scope, receive, send)
