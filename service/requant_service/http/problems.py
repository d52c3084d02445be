"""Errors as problems (RFC 9457), and responses made of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from requant.errors import MethodNotAllowedError, NoRouteError, RequantError, excerpt
from requant.errors.names import did_you_mean
from requant_service.http.responses import common_headers, json_text
from requant_service.runtime.request_context import context_of

_log = logging.getLogger("uvicorn.error")

MEDIA_TYPE = "application/problem+json"
_HEADERS = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}


def _error_classes(base: type[RequantError]) -> Iterator[type[RequantError]]:
    for cls in base.__subclasses__():
        if "code" in vars(cls):
            yield cls
        yield from _error_classes(cls)


INTERNAL_DETAIL = "unexpected error; the log has the details"

PROBLEMS: Mapping[str, type[RequantError]] = {
    **{cls.code: cls for cls in _error_classes(RequantError)},
    RequantError.code: RequantError,
}
"""The class of error with each code."""


def error_response(
    request: Request, error: RequantError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response to an error. `status` overrides that of its class."""
    context = context_of(request.scope)
    status = error.status if status is None else status
    # Where clients of the Open Inference Protocol look.
    first = {"error": error.detail} if f"{request.scope.get('path', '')}/".startswith("/v2/") else {}
    problem = problem_document(error, status, context.request_id, first)
    common = {name.decode(): value.decode() for name, value in common_headers(context)}
    own = _HEADERS.get(error.status, {}) if headers is None else headers
    return Response(json_text(problem), status, {**common, **own}, MEDIA_TYPE)


def problem_document(
    error: RequantError, status: int, request_id: str, first: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an error as the members of the JSON object of a problem, those of `first` before its own."""
    return {
        "type": f"/problems/{error.code}",
        "title": error.title,
        "status": status,
        "detail": error.detail,
        "code": error.code,
        **(first or {}),
        **_members(error),
        "request_id": request_id,
    }


def _members(error: RequantError) -> dict[str, Any]:
    """Return the extension members that an error fills."""
    members: dict[str, Any] = {}
    for name in ("offset", "line", "column", "caret", "hint", "index", "limit", "file", "tensor"):
        value = getattr(error, name, None)
        if value is not None and value != "":
            members[name] = value
    faults = getattr(error, "faults", ())
    if faults:
        members["errors"] = [{"pointer": f.pointer, "code": f.code, "detail": f.detail} for f in faults]
    elif listed := [each for each in (error, *error.others) if each.pointer is not None]:
        members["errors"] = [_entry(each) for each in listed]
    return members


def _entry(error: RequantError) -> dict[str, Any]:
    offset = getattr(error, "offset", None)
    place = {} if offset is None else {"offset": offset}
    return {"pointer": error.pointer, "code": error.code, "detail": error.detail, **place}


def not_found(request: Request, paths: Collection[str] = ()) -> Response:
    """Return the response to a path that no route has. `paths`: those that there are."""
    hint = did_you_mean(request.scope.get("path", ""), [each for each in paths if "{" not in each])
    detail = f"no route matches this path; {hint or '/docs lists all, and / is the playground'}"
    return error_response(request, NoRouteError(detail, hint=hint))


def method_not_allowed(request: Request, methods: Iterable[str]) -> Response:
    """Return the response to a method that a route does not have."""
    allow = ", ".join(sorted(methods))
    # HEAD is answered like GET.
    method = "GET" if request.method == "HEAD" else excerpt(request.method)
    advice = "; /docs has an example of its body" if allow == "POST" else ""
    if method == "POST" and request.scope["path"].startswith("/v2/models/"):
        advice = "; a model is run by POST to its path and /infer"
    error = MethodNotAllowedError(f"the path supports {allow}, and not {method}{advice}")
    return error_response(request, error, headers={"allow": allow})


def internal_error(request: Request) -> Response:
    """Return the response to a fault of the service. It reveals no internals; uvicorn logs the traceback."""
    _log.error("Request %s failed.", context_of(request.scope).request_id)
    return error_response(request, RequantError(INTERNAL_DETAIL), headers={"connection": "close"})


def pointer(*location: int | str) -> str:
    """Return the JSON pointer (RFC 6901) for a place."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in location)
