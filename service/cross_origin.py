"""Pages of other origins: with a list of origins, their scripts may call the service (CORS). Without, none may."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

_REQUEST_HEADERS = (
    "authorization",
    "content-type",
    "content-encoding",
    "if-none-match",
    "inference-header-content-length",
    "traceparent",
    "want-repr-digest",
    "x-request-id",
)
_REPLY_HEADERS = (
    "etag",
    "inference-header-content-length",
    "repr-digest",
    "requant-profile",
    "requant-saturated",
    "requant-type",
    "retry-after",
    "server-timing",
    "x-request-id",
)
_PREFLIGHT_SECONDS = 600


def shared_with(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return an application that pages of these origins may call, `*` for all. Cookies are not asked for."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=_REQUEST_HEADERS,
        expose_headers=_REPLY_HEADERS,
        max_age=_PREFLIGHT_SECONDS,
    )
