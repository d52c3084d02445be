"""What many operations answer alike stands once in the components: problems, and header fields."""

from __future__ import annotations

from typing import Any

from service.http.openapi_operation import PROBLEM

_NAMES = {
    "400": "MalformedRequest",
    "401": "Unauthorized",
    "404": "NotFound",
    "413": "LimitExceeded",
    "415": "UnsupportedMediaType",
    "422": "InvalidRequest",
    "503": "Unavailable",
    "504": "DeadlineExceeded",
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
                    assert responses.setdefault(name, shared) == shared, f"{status} is described in two ways"
                    shared = {"$ref": f"#/components/responses/{name}"}
                operation["responses"][status] = shared
    document["components"] |= {"headers": headers, "responses": responses}


def _with_shared_headers(response: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    for name, header in response["headers"].items():
        assert headers.setdefault(name, header) == header, f"{name} is described in two ways"
    return {**response, "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in response["headers"]}}
