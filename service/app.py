"""The application: routes, error handlers, and what holds for every exchange, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from core.errors import RequantError
from service import VERSION, openapi, problems
from service.direct import Endpoint, answer, direct_routes
from service.exchange import Exchange
from service.lifespan import Runtime, lifespan
from service.routes import (
    blocks,
    calibration,
    compare,
    convert,
    docs,
    fake_quantize,
    integer,
    meta,
    npy,
    oip,
    parameters,
    ranges,
    tosa,
    types,
)
from service.settings import Settings


class Application(FastAPI):
    """FastAPI with the OpenAPI document of `service.openapi`, and direct routes beside it."""

    def __init__(self, *, direct: Mapping[str, Endpoint], **options: Any) -> None:
        super().__init__(**options)
        self._direct = direct

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(self.routes, self.state.runtime.settings)
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        method = scope["method"]
        endpoint = self._direct.get(scope["path"]) if method == "POST" else None
        if endpoint is not None:
            scope["app"] = self
            await answer(endpoint, scope, exchange.receive, exchange.send)
            return
        if method == "HEAD":
            # Like GET; uvicorn leaves the body out. In a copy: the scope itself is also the server's.
            scope = {**scope, "method": "GET"}
        await super().__call__(scope, exchange.receive, exchange.send)


def create_app(settings: Settings) -> FastAPI:
    """Return the application. Its threads and kernels come to life with its lifespan."""
    app = Application(
        direct=direct_routes([npy.router]),
        title=openapi.TITLE,
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            RequantError: problems.on_requant_error,
            HTTPException: problems.on_http_exception,
            Exception: problems.on_unexpected,
        },
    )
    app.state.runtime = Runtime(settings)
    for topic in (
        convert,
        fake_quantize,
        compare,
        blocks,
        integer,
        tosa,
        npy,
        oip,
        parameters,
        ranges,
        calibration,
        types,
        meta,
        docs,
    ):
        app.include_router(topic.router)
    return app
