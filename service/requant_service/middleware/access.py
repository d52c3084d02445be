"""Who may send what: bearer tokens, requests of web pages of other sites, and the host names of the service.

With a file of tokens, every route asks for one but those that are open. Every token is compared, each in constant time,
so that the time of a refusal says nothing.

Web pages of other sites may send nothing that changes anything, under no name but the service's own. A browser sends a
simple request, such as a POST of `text/plain`, for any page and to any address that it can reach, the loopback address
too, and only keeps the response from the page. It states where the request comes from in `Sec-Fetch-Site`, or, from
older versions and to plain HTTP, in `Origin`. A page whose own domain name leads to the service (DNS rebinding) is of
the same origin to the browser, which then lets it read responses; only `Host` tells. Clients other than browsers send
neither field. They could send anything, and need no page for that.

With a list of origins, the scripts of their pages may call the service (CORS).
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Collection, Sequence
from functools import lru_cache
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from requant.errors import CrossOriginError, HostError, RequantError, UnauthorizedError, excerpt
from requant_service.http.problems import error_response
from requant_service.middleware.request_lifecycle import PROBES
from requant_service.runtime.credentials import Tokens
from requant_service.runtime.request_context import context_of
from requant_service.runtime.settings import Settings


class BearerAuth:
    """Pure ASGI middleware that refuses requests without one of the tokens, but for the paths that are `open_paths`."""

    def __init__(self, app: ASGIApp, tokens: Tokens, open_paths: Collection[str]) -> None:
        self.app = app
        self._tokens = tokens
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests that are allowed."""
        if scope["type"] != "http" or scope["path"] in self._open_paths or self._holds_a_token(scope):
            await self.app(scope, receive, send)
            return
        reply = error_response(Request(scope), no_valid_token())
        await reply(scope, receive, send)

    def _holds_a_token(self, scope: Scope) -> bool:
        return holds_a_token([value for name, value in scope["headers"] if name == b"authorization"], self._tokens)


def no_valid_token() -> UnauthorizedError:
    """Return the error about a request without one of the tokens."""
    return UnauthorizedError("the request has no valid token; expected the header 'Authorization: Bearer <token>'")


def holds_a_token(authorization: Sequence[bytes], tokens: Tokens) -> bool:
    """Return whether the values of `Authorization` are one, and that is one of the tokens."""
    if len(authorization) != 1:
        return False
    word, _, token = authorization[0].partition(b" ")
    # Not any(): it would stop at the first one.
    matches = [hmac.compare_digest(token.strip(), known) for known in tokens.known]
    return word.lower() == b"bearer" and sum(matches) > 0


# RFC 9110 section 9.2.1, without TRACE, which no route has.
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# `none`: the user's own doing, such as an address that was typed.
_OWN_SITES = frozenset({b"same-origin", b"none"})
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_ALL = "*"
_MAX_CACHED_HOSTS = 256


class CrossSiteProtection:
    """Pure ASGI middleware.

    It refuses requests whose Host is none of `hosts`, unless that is None, and requests of pages of other origins than
    its own and `origins`, unless their method is safe. Probes are exempt: balancers send them by address.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str], hosts: Collection[str] | None) -> None:
        self.app = app
        self._origins = frozenset(origin.encode("latin-1") for origin in origins)
        self._allows_all_origins = _ALL in origins
        self._hosts = None if hosts is None else frozenset(hosts)
        self._is_allowed_host = lru_cache(_MAX_CACHED_HOSTS)(self._find_host)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass on requests that are allowed."""
        if scope["type"] == "http":
            fields = context_of(scope).headers
            fault: RequantError | None = None
            # Only HTTP/1.0 has no Host, and no browser speaks that.
            if self._hosts is not None and b"host" in fields and not self._is_allowed_host(fields[b"host"]):
                fault = None if scope["path"] in PROBES else unknown_host(fields[b"host"], self._hosts)
            elif (b"origin" in fields or b"sec-fetch-site" in fields) and scope["method"] not in _SAFE_METHODS:
                fault = self._origin_error(fields.get(b"origin"), fields.get(b"sec-fetch-site"), fields.get(b"host"))
            if fault is not None:
                return error_response(Request(scope), fault)(scope, receive, send)
        return self.app(scope, receive, send)

    def _find_host(self, host: bytes) -> bool:
        assert self._hosts is not None
        return _name_of(host.decode("latin-1")) in self._hosts

    def _origin_error(self, origin: bytes | None, site: bytes | None, host: bytes | None) -> RequantError | None:
        """Return what is wrong with the origin of a request that is not safe, if anything is."""
        if self._allows_all_origins or origin in self._origins:
            return None
        if site in _OWN_SITES if site is not None else origin is not None and _is_origin_of(origin, host):
            return None
        return foreign_origin(origin)


def unknown_host(host: bytes, allowed: Collection[str]) -> HostError:
    """Return the error about a request whose Host is none of the allowed ones."""
    shown = excerpt(host.decode("latin-1"))
    return HostError(
        f"the Host is {shown!r}; this service answers to {', '.join(sorted(allowed))} (setting allowed_hosts)"
    )


def foreign_origin(origin: bytes | None) -> CrossOriginError:
    """Return the error about a request of a page of another origin."""
    shown = "not stated" if origin is None else repr(excerpt(origin.decode("latin-1")))
    return CrossOriginError(
        f"a web page of another origin sent the request; the Origin is {shown}; it may if the setting cors_origins "
        "has its origin"
    )


def allowed_hosts(settings: Settings) -> Collection[str] | None:
    """Return the names that the service answers to, or None for all.

    Without a setting these are the names of the loopback addresses if it listens on such a one: whoever can reach it is
    on this machine and can use them. No browser can reach a unix socket.
    """
    if settings.allowed_hosts:
        return None if _ALL in settings.allowed_hosts else {_name_of(host) for host in settings.allowed_hosts}
    if settings.uds is not None or not _is_loopback(settings.host):
        return None
    return {*LOOPBACK_HOSTS, _name_of(f"[{settings.host}]" if ":" in settings.host else settings.host)}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _name_of(authority: str) -> str:
    """Return the host of an authority: without its port, and without the dot at the end of a complete name."""
    end = authority.find("]") + 1
    return (authority[:end] or authority.partition(":")[0]).lower().removesuffix(".")


def _is_origin_of(origin: bytes, host: bytes | None) -> bool:
    """Return whether an origin is that of a request with this Host.

    The scheme of the request is not compared: behind a proxy that ends TLS it is another one than the browser's.
    """
    scheme, separator, authority = origin.partition(b"://")
    port = _DEFAULT_PORTS.get(scheme.lower())
    return (
        bool(separator)
        and port is not None
        and host is not None
        and _with_port(authority, port) == _with_port(host, port)
    )


def _with_port(authority: bytes, default: bytes) -> bytes:
    name, colon, port = authority.rpartition(b":")
    if not colon or port.endswith(b"]"):
        return authority.lower() + default
    return name.lower() + (b":" + port if port else default)


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

    def __init__(self, response: Response) -> None:
        super().__init__()
        self._detail = bytes(response.body).decode()
        self._kept = {name: value for name, value in response.headers.items() if not name.startswith("content-")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the problem: here the request is known."""
        reply = error_response(Request(scope), CrossOriginError(f"the preflight is refused: {self._detail}"))
        reply.headers.update(self._kept)
        await reply(scope, receive, send)
