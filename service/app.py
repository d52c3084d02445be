"""The application: routes, error handlers, and what holds for every exchange, put together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from core.errors import RequantError
from service import VERSION
from service.http import problems
from service.http.responses import json_text
from service.http.router import DirectRoutes, answer
from service.http.static_content import StaticContent
from service.json_api.catalog import operators as operator_catalog
from service.json_api.catalog import profiles, schemes
from service.json_api.routes import (
    blocks,
    calibration,
    compare,
    convert,
    fake_quantize,
    integer,
    lowering,
    multipliers,
    operators,
    ranges,
    tosa,
    translation,
    types,
)
from service.meta import docs, metrics
from service.meta import routes as meta
from service.middleware.bearer_auth import Access
from service.middleware.cors import shared_with
from service.middleware.instrumentation import Observation
from service.middleware.request_lifecycle import Exchange
from service.npy_api import routes as npy
from service.oip import routes as oip
from service.openapi import document as openapi
from service.runtime.memory_budget import Reservation, keep_reservation
from service.runtime.request_context import ClientLeftError
from service.runtime.runtime import HealthStatus, Runtime, lifespan
from service.runtime.settings import Settings


class Application(FastAPI):
    """FastAPI with the OpenAPI document of `service.openapi`, direct routes beside it, and layers around it."""

    def __init__(self, *, direct: DirectRoutes, **options: Any) -> None:
        super().__init__(**options)
        self._direct = direct
        self._layers: ASGIApp | None = None
        self.document = StaticContent(lambda: json_text(self.openapi()))

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(self.routes, self.state.runtime.settings)
        return self.openapi_schema

    def surround(self, paths: Collection[str]) -> None:
        """Put what holds for every request around the routes, the outermost last. `paths`: those without parameters."""
        running: Runtime = self.state.runtime
        settings = running.settings
        app: ASGIApp = self._route
        if running.tokens is not None:
            app = Access(app, running.tokens)
        if settings.cors_origins:
            app = shared_with(app, settings.cors_origins)
        app = Exchanges(app, running)
        self._layers = Observation(app, running.metrics, paths, log=settings.access_log)
        if settings.telemetry:
            from service.middleware.tracing import Telemetry, tracer_to_collector

            self._layers = Telemetry(self._layers, tracer_to_collector(), paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "http" and self._layers is not None:
            await self._layers(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the function of a direct route, or leave it to FastAPI."""
        method = scope["method"]
        found = self._direct.find(scope["path"]) if method == "POST" else None
        if found is not None:
            scope["app"] = self
            await answer(*found, scope, receive, send)
        elif method == "HEAD":
            # Like GET; uvicorn leaves the body out. In a copy: the scope itself is also the server's.
            copy = {**scope, "method": "GET"}
            try:
                await super().__call__(copy, receive, send)
            finally:
                scope["route"] = copy.get("route")
        else:
            await super().__call__(scope, receive, send)


class Exchanges:
    """Pure ASGI middleware: what `service.middleware.request_lifecycle` says of every request, and the memory that it
    holds.
    """

    def __init__(self, app: ASGIApp, running: Runtime) -> None:
        self._app = app
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        with Reservation(self._running.admission) as reservation:
            keep_reservation(scope, reservation)
            exchange = Exchange(scope, receive, send, closing=self._running.status is HealthStatus.DRAINING)
            try:
                # What IEEE 754 calls exceptions are results here, which the rules define: numpy has nothing to warn of.
                with np.errstate(all="ignore"):
                    await self._app(scope, exchange.receive, exchange.send)
            except ClientLeftError:
                pass  # nobody waits for a reply


def create_app(settings: Settings) -> FastAPI:
    """Return the application. Its threads and kernels come to life with its lifespan."""
    topics = [convert, fake_quantize, compare, blocks, integer, tosa, operators, npy, oip]
    topics += [
        multipliers,
        ranges,
        calibration,
        types,
        translation,
        lowering,
        profiles,
        schemes,
        operator_catalog,
        meta,
    ]
    topics += [docs] if settings.docs else []
    topics += [metrics] if settings.metrics else []
    app = Application(
        direct=DirectRoutes(topic.router for topic in topics),
        title=openapi.TITLE,
        version=VERSION,
        lifespan=lifespan,
        # service.meta.docs has the document, with what else never changes.
        openapi_url=None,
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
    for topic in topics:
        app.include_router(topic.router)
    routes = [route for topic in topics for route in topic.router.routes]
    app.surround({route.path for route in routes if isinstance(route, Route) and not route.param_convertors})
    return app
