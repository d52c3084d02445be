"""Moves what operations share, problem responses and header fields, to the components of the document."""

from __future__ import annotations

from typing import Any

from requant.errors import (
    CrossOriginError,
    DeadlineError,
    DestinationError,
    HostError,
    RequantError,
    UnauthorizedError,
    UnavailableError,
)
from requant_service.http.openapi_operation import PROBLEM
from requant_service.http.problems import problem_document
from requant_service.openapi.examples import EXAMPLE_REQUEST_ID, recorded_replies

_NAMES = {
    "400": "MalformedRequest",
    "401": "Unauthorized",
    "403": "CrossOrigin",
    "404": "NotFound",
    "409": "Conflict",
    "413": "LimitExceeded",
    "415": "UnsupportedMediaType",
    "421": "HostNotAllowed",
    "422": "InvalidRequest",
    "503": "Unavailable",
    "504": "DeadlineExceeded",
}

# Problems that cannot be provoked while replies are recorded.
_RARE = {
    "401": UnauthorizedError("the request has no valid token; expected the header 'Authorization: Bearer <token>'"),
    "403": CrossOriginError(
        "a web page of another origin sent the request; the Origin is 'https://example.com'; it may if the setting "
        "cors_origins has its origin"
    ),
    "409": DestinationError(
        "/models/tiny-W4A16 holds files that do not belong to this conversion: choose an empty one"
    ),
    "421": HostError(
        "the Host is 'example.com'; this service answers to 127.0.0.1, [::1], localhost (setting allowed_hosts)"
    ),
    "503": UnavailableError("the service is draining"),
    "504": DeadlineError("the request took 10 seconds of CPU; that is the limit", limit=10),
}


def share_responses(document: dict[str, Any]) -> None:
    """Move problem responses and header fields to the components of a document, and refer to them."""
    responses: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                shared = _with_shared_headers(response, headers)
                if PROBLEM in response.get("content", ()):
                    name = _NAMES[status]
                    shared["content"] = {PROBLEM: {**response["content"][PROBLEM], "example": _example(status)}}
                    assert responses.setdefault(name, shared) == shared, f"{status} is described in two ways"
                    shared = {"$ref": f"#/components/responses/{name}"}
                operation["responses"][status] = shared
    document["components"] |= {"headers": headers, "responses": responses}


def _example(status: str) -> dict[str, Any]:
    error: RequantError | None = _RARE.get(status)
    if error is None:
        recorded: dict[str, Any] = recorded_replies().get(status, {"json": {}})["json"]
        return recorded
    return problem_document(error, int(status), EXAMPLE_REQUEST_ID)


def _with_shared_headers(response: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    for name, header in response["headers"].items():
        assert headers.setdefault(name, header) == header, f"{name} is described in two ways"
    return {**response, "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in response["headers"]}}
