"""How a route describes itself to OpenAPI: operation id, bodies, and the problems that it can answer with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.responses import Response

from requant_service.http.models import default_in_words

SCHEMAS = "#/components/schemas/"
BINARY = "application/octet-stream"
PROBLEM = "application/problem+json"

REQUEST_MODELS: list[type[BaseModel]] = []
"""The models of the JSON bodies of all routes that were described, for the components of the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request that is answered with 200.

    `path` and `query` are parameters, `json` is a body in JSON, `npy` a body that is one `.npy` file, and `form` the
    fields of a form, files as bytes. `after` is the operationId of the example that has to be sent before. `recorded`:
    whether the reply is shown; not where the request needs something that only its sender has. Of the reply, `varying`
    members depend on the machine or the time, and of the list that is member `excerpt`, or that is the whole reply if
    `excerpt` is empty, only the first entry is shown.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, Any] | None = None
    npy: bytes | None = None
    form: Mapping[str, str | int | bytes] = field(default_factory=dict)
    after: str | None = None
    varying: Collection[str] = ()
    excerpt: str | None = None
    recorded: bool = True

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the request. The one that is a body is called x, as in forms."""
        if self.npy is not None:
            return {"x": self.npy}
        return {name: value for name, value in self.form.items() if isinstance(value, bytes)}


EXAMPLES: dict[str, Example] = {}
"""The examples of all routes that were described, by operationId."""


class ProblemReply(NamedTuple):
    """The description of all problem replies with a status, and its component in the document."""

    component: str
    description: str


PROBLEM_REPLIES = {
    400: ProblemReply("MalformedRequest", "Malformed request or tensor data."),
    401: ProblemReply("Unauthorized", "The service requires a bearer token, and the request has no valid one."),
    403: ProblemReply(
        "CrossOrigin", "A web page of another origin sent the request, and `cors_origins` does not have it."
    ),
    404: ProblemReply("NotFound", "Unknown name."),
    409: ProblemReply("Conflict", "Not possible in the current state of the source or destination."),
    413: ProblemReply("LimitExceeded", "Limit exceeded."),
    415: ProblemReply("UnsupportedMediaType", "Unsupported media type."),
    421: ProblemReply("HostNotAllowed", "The service does not answer to the `Host` of the request."),
    422: ProblemReply("InvalidRequest", "The request is well-formed but not valid."),
    503: ProblemReply(
        "Unavailable",
        "The service is starting, shutting down or overloaded. Retry after the number of seconds in Retry-After.",
    ),
    504: ProblemReply("DeadlineExceeded", "The request exceeded the CPU time allowed for one request."),
}


def _file_content(media: str) -> dict[str, Any]:
    """Return the description of a body that is a file, in a form that every client generator understands."""
    binary = {"format": "binary", "contentMediaType": BINARY} if media == BINARY else {}
    return {"schema": {"type": "string", **binary}}


_BINARY_CONTENT = {BINARY: _file_content(BINARY)}

_NPY_BODY = (
    "One .npy file, or a safetensors file of which one tensor is converted. With `Accept: application/vnd.safetensors` "
    "the response to a safetensors file is a safetensors file, otherwise a .npy file."
)


def _header(kind: str, description: str, *, required: bool = True) -> dict[str, Any]:
    return {"description": description, "required": required, "schema": {"type": kind}}


REQUEST_ID_HEADER = {"X-Request-Id": _header("string", "The request id: the client's if it sent one, else generated.")}
NPY_HEADERS = {
    "Requant-Type": _header(
        "string",
        "The type of the returned tensor; absent if it is longer than 2 KiB or not printable ASCII.",
        required=False,
    ),
    "Requant-Profile": _header("string", "The profile that was applied."),
    "Requant-Saturated": {
        "description": "Number of saturated elements.",
        "required": True,
        "schema": {"type": "integer", "format": "int64"},
    },
}


_OPTIONAL_HEADERS = {
    "Server-Timing": _header(
        "string",
        "Milliseconds spent receiving the body, queued for a thread, computing, and in total.",
        required=False,
    ),
    "Repr-Digest": _header(
        "string", "The SHA-256 of the body, if requested by `Want-Repr-Digest: sha-256=1`.", required=False
    ),
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of problem replies with these statuses."""
    content = {PROBLEM: {"schema": {"$ref": f"{SCHEMAS}Problem"}}}
    replies: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        headers = {**REQUEST_ID_HEADER}
        if status == 503:
            headers["Retry-After"] = _header("integer", "Seconds to wait before retrying.")
        if status == 401:
            headers["WWW-Authenticate"] = _header("string", "`Bearer`.")
        replies[status] = {"description": PROBLEM_REPLIES[status].description, "content": content, "headers": headers}
    return replies


def _ok(headers: dict[str, Any], content: dict[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    described = {"description": "Success.", "headers": {**REQUEST_ID_HEADER, **_OPTIONAL_HEADERS, **headers}}
    return {200: described if content is None else {**described, "content": content}}


def json_operation(
    operation_id: str,
    title: str,
    body: type[BaseModel],
    reply: type[BaseModel],
    example: Mapping[str, Any],
    files: Iterable[str] = (),
    **rest: Any,
) -> dict[str, Any]:
    """Return the arguments of a POST route that reads and writes JSON.

    `example` is a body that is answered with 200, `files` the media types of files that are answered where the body
    asks for them, `rest` what else its `Example` has.
    """
    REQUEST_MODELS.append(body)
    EXAMPLES[operation_id] = Example(json=example, **rest)
    content = {"application/json": {"schema": {"$ref": SCHEMAS + body.__name__}}}
    return {
        "operation_id": operation_id,
        "summary": title,
        "response_model": reply,
        "responses": {
            **_ok({}, {media.partition(";")[0]: _file_content(media) for media in files} or None),
            **problems(400, 413, 415, 422, 503, 504),
        },
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


def npy_operation(operation_id: str, title: str, parameters: list[dict[str, Any]], example: Example) -> dict[str, Any]:
    """Return the arguments of a POST route that reads and writes one `.npy`, or a tensor of a safetensors file.

    The document has one media type for both, since clients are generated from it.
    """
    EXAMPLES[operation_id] = example
    return {
        "operation_id": operation_id,
        "summary": title,
        "response_class": BinaryResponse,
        "responses": {**_ok(NPY_HEADERS, _BINARY_CONTENT), **problems(400, 413, 415, 422, 503, 504)},
        "openapi_extra": {
            "parameters": parameters,
            "requestBody": {"required": True, "description": _NPY_BODY, "content": _BINARY_CONTENT},
        },
    }


def form_operation(
    operation_id: str,
    title: str,
    files: Mapping[str, str],
    texts: list[dict[str, Any]],
    required: Collection[str],
    example: Example,
) -> dict[str, Any]:
    """Return the arguments of a POST route that reads a form and writes one file.

    `files`: the fields that are files, with what each is. `texts`: the others, as parameters of a query.
    """
    EXAMPLES[operation_id] = example
    file = _BINARY_CONTENT[BINARY]["schema"]
    properties: dict[str, Any] = {name: {**file, "description": description} for name, description in files.items()}
    for text in texts:
        schema = text["schema"]
        # Some generators ignore what stands beside a reference.
        properties[text["name"]] = (
            {"$ref": schema["$ref"]}
            if "$ref" in schema
            else default_in_words({**schema, "description": text["description"]})
        )
    schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name in required],
        "additionalProperties": False,
    }
    return {
        "operation_id": operation_id,
        "summary": title,
        "response_class": BinaryResponse,
        "responses": {**_ok(NPY_HEADERS, _BINARY_CONTENT), **problems(400, 413, 415, 422, 503, 504)},
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "description": "Tensors as .npy files; the other fields as in the query of the route under /v1/npy.",
                "content": {"multipart/form-data": {"schema": schema}},
            },
        },
    }


def get_operation(operation_id: str, title: str, reply: Any, *statuses: int, **example: Any) -> dict[str, Any]:
    """Return the arguments of a route that reads no body and writes JSON, with the problems that it can answer with.

    `example` is what its `Example` has.
    """
    EXAMPLES[operation_id] = Example(**example)
    replies = {**_ok({}), **problems(*statuses, 422)}
    return {"operation_id": operation_id, "summary": title, "response_model": reply, "responses": replies}


def static_operation(operation_id: str, title: str, reply: Any, *statuses: int, **example: Any) -> dict[str, Any]:
    """Return the arguments of a route as `get_operation` does, whose reply has an ETag."""
    described = get_operation(operation_id, title, reply, *statuses, **example)
    described["responses"][200]["headers"]["ETag"] = _header(
        "string", "Entity tag of the response. A request with a matching If-None-Match gets 304 without a body."
    )
    return described


def health_operation(operation_id: str, title: str, reply: type[BaseModel], **example: Any) -> dict[str, Any]:
    """Return the arguments of the GET route that has the same reply with 200 and with 503."""
    described = get_operation(operation_id, title, reply, **example)
    unready = problems(503)[503]
    del unready["content"]
    described["responses"][503] = {**unready, "model": reply}
    return described


def query_parameter(
    name: str, description: str, *, required: bool = False, schema: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the description of one query parameter."""
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": description,
        "schema": schema or {"type": "string"},
    }


class BinaryResponse(Response):
    """Tells FastAPI the media type of the binary routes."""

    media_type = BINARY
