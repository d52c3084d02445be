"""Direct routes: functions of a request that read it and answer it by themselves.

They are registered with FastAPI like all others, so that they are in the OpenAPI document, but for such a function its
machinery (the stack of exception handlers, the search for the route, the dependencies) only costs time: 0.2 ms, which
is more than a small tensor's whole way through the service. So the application calls them itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.errors import RequantError
from service import problems

Endpoint = Callable[[Request], Awaitable[Response]]


def direct_routes(routers: Iterable[APIRouter]) -> Mapping[str, Endpoint]:
    """Return the functions of these routers' routes by their paths. All are POST, and no path has parameters."""
    found: dict[str, Endpoint] = {}
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute), route
            assert route.methods == {"POST"}, route
            assert not route.param_convertors, route
            found[route.path] = route.endpoint
    return found


async def answer(endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, errors as problems. What is not an error of ours is raised again for the server's log."""
    request = Request(scope, receive, send)
    try:
        reply = await endpoint(request)
    except RequantError as error:
        reply = problems.requant_problem(request, error)
    except Exception as error:
        failed = await problems.on_unexpected(request, error)
        await failed(scope, receive, send)
        raise
    await reply(scope, receive, send)
