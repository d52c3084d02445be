"""The application: routes, error handlers and middleware, put together."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from core.errors import RequantError
from service import VERSION, openapi, problems
from service.lifespan import Runtime, lifespan
from service.middleware import CommonHeaders, HeadLikeGet
from service.routes import (
    blocks,
    calibration,
    compare,
    convert,
    docs,
    fake_quantize,
    meta,
    npy,
    oip,
    parameters,
    ranges,
    tosa,
    types,
)
from service.settings import Settings
from service.unread_body import UnreadBody


class Application(FastAPI):
    """FastAPI, with the OpenAPI document of `service.openapi`."""

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(self.routes, self.state.runtime.settings)
        return self.openapi_schema


def create_app(settings: Settings) -> FastAPI:
    """Return the application. Its threads and kernels come to life with its lifespan."""
    app = Application(
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
    # The last one added is the outermost.
    for middleware in (HeadLikeGet, CommonHeaders, UnreadBody):
        app.add_middleware(middleware)
    return app
