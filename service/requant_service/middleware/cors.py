"""Pages of other origins: with a list of origins, their scripts may call the service (CORS). Without, none may."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from requant.errors import CrossOriginError
from requant_service.http.problems import error_response

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
_RESPONSE_HEADERS = (
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


class Cors(CORSMiddleware):
    """Starlette's middleware for these origins, `*` for all, whose refusal of a preflight is a problem. No cookies."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=_REQUEST_HEADERS,
            expose_headers=_RESPONSE_HEADERS,
            max_age=_PREFLIGHT_SECONDS,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the answer to a preflight."""
        reply = super().preflight_response(request_headers)
        return reply if reply.status_code == 200 else _Refusal(reply)


class _Refusal(Response):
    """What Starlette says of a refused preflight, as a problem."""

    def __init__(self, found: Response) -> None:
        super().__init__()
        self._detail = bytes(found.body).decode()
        self._kept = {name: value for name, value in found.headers.items() if not name.startswith("content-")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the problem: here the request is known."""
        reply = error_response(Request(scope), CrossOriginError(f"the preflight is refused: {self._detail}"))
        reply.headers.update(self._kept)
        await reply(scope, receive, send)
