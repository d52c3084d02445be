"""The application: routes and middleware, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from requant.description import Work
from requant_service.http.responses import StaticContent, json_text
from requant_service.http.router import PathRouter, starlette_routes
from requant_service.json_api.catalog import operators as operator_catalog
from requant_service.json_api.catalog import profiles, schemes
from requant_service.json_api.routes import (
    checkpoints,
    described,
    equivalence_jobs,
    lowering,
    operators,
    tosa,
    vectors,
)
from requant_service.meta import routes as meta
from requant_service.middleware.access import BearerAuth, Cors, CrossSiteProtection, allowed_hosts
from requant_service.middleware.request_lifecycle import MONITORING, PROBES, RequestLifecycle
from requant_service.npy_api import form_routes as forms
from requant_service.npy_api import routes as npy
from requant_service.oip import routes as oip
from requant_service.openapi import document as openapi
from requant_service.playground import routes as playground
from requant_service.reference import routes as reference
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.runtime import lifespan as runtime_lifespan
from requant_service.runtime.settings import Settings
from requant_service.runtime.shared_numbers import SharedNumbers


class _RoutedStarlette(Starlette):
    """Starlette without its two layers for errors: endpoints answer those."""

    def build_middleware_stack(self) -> ASGIApp:
        """Return the router in its middleware."""
        app: ASGIApp = self.router
        for layer, arguments, options in reversed(self.user_middleware):
            app = layer(app, *arguments, **options)
        return app


class Application(_RoutedStarlette):
    """The service as an ASGI application. Its threads and kernels come to life with its lifespan."""

    def __init__(self, settings: Settings, numbers: SharedNumbers | None = None) -> None:
        topics = [vectors, described, tosa, operators]
        topics += [npy, forms, oip]
        routers = [described.router_of_conversions, *(topic.router for topic in topics), oip.shared_memory_router]
        routers += [described.routers[Work.TEXTS], described.routers[Work.MODULES]]
        topics = [lowering, equivalence_jobs, checkpoints]
        topics += [profiles, schemes, operator_catalog, meta]
        topics += [reference] if settings.docs else []
        topics += [playground] if settings.playground else []
        routers += [topic.router for topic in topics]
        routers += [meta.metrics_router] if settings.metrics and settings.metrics_port is None else []
        routes = starlette_routes(routers)
        running = Runtime(settings, numbers)
        super().__init__(
            middleware=_middleware(running, {route.path for route in routes if not route.param_convertors})
        )
        self.router = PathRouter(routes, _lifespan)
        self.state.runtime = running
        self._described = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._openapi: dict[str, Any] | None = None
        self.document = StaticContent(lambda: json_text(self.openapi()), compressed=True)
        self.reference_page = reference.reference_page(self._described, settings)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, made once."""
        if self._openapi is None:
            self._openapi = openapi.document(self._described, self.state.runtime.settings)
        return self._openapi


class MonitoringApplication(_RoutedStarlette):
    """What the metrics port serves of the service: metrics and probes, without tokens."""

    def __init__(self, running: Runtime) -> None:
        routers = [meta.router, oip.router, *([meta.metrics_router] if running.settings.metrics else [])]
        routes = [route for route in starlette_routes(routers) if route.path in MONITORING]
        paths = {route.path for route in routes}
        super().__init__(middleware=[_lifecycle(running, paths)])
        self.router = PathRouter(routes)
        self.state.runtime = running


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Run the service's threads, and the gRPC server if a setting gives it a port."""
    running: Runtime = app.state.runtime
    async with runtime_lifespan(app):
        if running.settings.grpc_port is None:
            yield
            return
        # Takes 0.1 s to import.
        from requant_service.oip.grpc.server import serving_grpc

        async with serving_grpc(running):
            yield


def _lifecycle(running: Runtime, paths: set[str]) -> Middleware:
    return Middleware(RequestLifecycle, running, paths, log=running.settings.access_log)


def _middleware(running: Runtime, paths: set[str]) -> list[Middleware]:
    """Return the layers around the router, the outermost first. `paths`: those of routes without parameters."""
    settings = running.settings
    layers = [_lifecycle(running, paths)]
    if settings.telemetry:
        from requant_service.middleware.tracing import Tracing, tracer_to_collector

        layers.append(Middleware(Tracing, tracer_to_collector, paths))
    layers.append(Middleware(CrossSiteProtection, settings.cors_origins, allowed_hosts(settings)))
    if settings.cors_origins:
        layers.append(Middleware(Cors, settings.cors_origins))
    if running.tokens is not None:
        open_paths = PROBES | (reference.reference_paths() if settings.docs_public else set())
        open_paths |= playground.PATHS if settings.playground else set()
        layers.append(Middleware(BearerAuth, running.tokens, open_paths))
    return layers


def create_app(settings: Settings, numbers: SharedNumbers | None = None) -> Application:
    """Return the application. `numbers`: what it shares with the other worker processes of the service."""
    return Application(settings, numbers)
