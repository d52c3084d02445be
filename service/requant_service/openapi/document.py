"""The OpenAPI document: what FastAPI collects from the routes, completed and adapted to client generators.

`python -m requant_service.openapi` commits it to `openapi/openapi.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from requant import VERSION
from requant.calibration.bias import BIAS_RULES
from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES
from requant.calibration.methods import CALIBRATION_METHODS
from requant.calibration.ranges import RANGE_RULES
from requant.convert.quantize import CHOSEN_ROUNDINGS
from requant.errors import (
    DeadlineError,
    DestinationError,
    RequantError,
    UnavailableError,
)
from requant.operations import OPERATIONS
from requant.operators.registry import OPERATORS
from requant.profiles import PROFILES
from requant.schemes import SCHEMES
from requant_service.http.models import COMPONENT, Problem
from requant_service.http.openapi_operation import PROBLEM, PROBLEM_REPLIES, REQUEST_MODELS, SCHEMAS, problems
from requant_service.http.problems import problem_document
from requant_service.middleware.access import LOOPBACK_HOSTS, foreign_origin, no_valid_token, unknown_host
from requant_service.middleware.request_lifecycle import PROBES
from requant_service.npy_api.derivation import OutputFormat
from requant_service.openapi.examples import EXAMPLE_REQUEST_ID, add_examples, recorded_replies
from requant_service.openapi.tags import described_tags, tag_groups
from requant_service.runtime.settings import Limits, Settings

TITLE = "Requant"

_DESCRIPTION = """Bit-exact quantization arithmetic. Types are MLIR text; a profile names the system to reproduce.

Tensors are row-major and little-endian. JSON routes accept them as base64 or, if small, as numbers; routes under
`/v1/npy` read and write one `.npy` file, and those under `/v1/multipart` read multipart forms of them; `/v2`
implements the Open
Inference Protocol, with JSON or binary tensors.
Errors are `application/problem+json` with a stable `code`."""


def document(routes: Sequence[BaseRoute], settings: Settings) -> dict[str, Any]:
    """Return the document for these routes."""
    made = get_openapi(
        title=TITLE,
        version=VERSION,
        description=_DESCRIPTION,
        routes=routes,
        tags=described_tags(),
        servers=[{"url": "/"}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        separate_input_output_schemas=False,
    )
    made["x-tagGroups"] = tag_groups()
    made["info"]["x-limits"] = {name: getattr(settings, name) for name in Limits.model_fields}
    components = made["components"]["schemas"]
    components.update(_request_components())
    components["Problem"] = Problem.model_json_schema(ref_template=SCHEMAS + "{model}")
    components.update(components["Problem"].pop("$defs", {}))
    components["ProfileName"] = _names(PROFILES, "The arithmetic contracts. GET /v1/profiles describes each.")
    components["OutputFormat"] = _names(OutputFormat, "The file of a reply: one array, or several.")
    components["RoundingName"] = _names(
        CHOSEN_ROUNDINGS, "The roundings that can replace a profile's. The nearest_* roundings differ only on ties."
    )
    components["SchemeName"] = _described(
        SCHEMES, "The schemes that derive a multiplier and a shift from a real factor and scale integers by them."
    )
    components["RangeSchemeName"] = _described(RANGE_RULES, "The rules that derive scale and zero point from a range.")
    components["CalibrationMethodName"] = _described(CALIBRATION_METHODS, "The calibration methods.")
    components["BiasSchemeName"] = _described(BIAS_RULES, "The rules that derive the scale of a bias and quantize it.")
    components["FakeQuantizeSchemeName"] = _described(FAKE_QUANTIZE_SCHEMES, "The fake quantizations.")
    components.update(_operator_choices())
    components.update(_group_choices())
    _drop_validation_errors(made)
    _drop_made_up_titles(made)
    _describe_tokens(made)
    _describe_cross_site(made)
    share_responses(made)
    add_examples(made)
    for component in components.values():
        _tidy(component)
    return made


def _request_components() -> dict[str, Any]:
    models = [(model, "validation") for model in REQUEST_MODELS]
    _, described = models_json_schema(models, ref_template=SCHEMAS + "{model}")  # type: ignore[arg-type]
    components: dict[str, Any] = described["$defs"]
    return components


def _operator_choices() -> dict[str, Any]:
    """Return the enums of implementations and of attributes that have only some texts."""
    listed: dict[str, Any] = {}
    for operator in OPERATORS.values():
        for choices in (operator.implementations, *(attribute.choices for attribute in operator.attributes)):
            if choices is not None:
                listed[choices.name] = _names(choices.values, choices.description)
    return listed


def _group_choices() -> dict[str, Any]:
    """Return the enums of the members of groups that have only some texts."""
    groups = [each.group for operation in OPERATIONS.values() for each in operation.options if each.group is not None]
    listed = [each.choices for group in groups for each in group.options if each.choices is not None]
    return {each.name: _names(each.values, each.description) for each in listed}


def _names(names: Any, description: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(names), "description": description}


def _described(rules: Mapping[str, Any], description: str) -> dict[str, Any]:
    """Return the names of rules, with the description of each."""
    lines = "\n".join(f"- `{name}`: {rule.summary}" for name, rule in rules.items())
    return _names(rules, f"{description}\n\n{lines}")


def _drop_validation_errors(document: dict[str, Any]) -> None:
    """Drop the 422 that FastAPI adds to routes with a path parameter: any text is a valid one here."""
    for unused in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(unused, None)
    for path in document["paths"].values():
        for operation in path.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]


def _drop_made_up_titles(document: dict[str, Any]) -> None:
    """Drop the titles that FastAPI derives from names of functions and parameters, such as Response Oiplistmodels."""
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                parameter["schema"].pop("title", None)
            for response in operation["responses"].values():
                for content in response.get("content", {}).values():
                    content["schema"].pop("title", None)


def _describe_tokens(document: dict[str, Any]) -> None:
    """Describe bearer tokens, which a setting asks for: the document is the same with and without them."""
    document["components"]["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "One of the service's tokens. Not needed if the setting `tokens_file` is not set.",
        }
    }
    document["security"] = [{}, {"bearer": []}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path in PROBES:
                operation["security"] = []
            else:
                operation["responses"]["401"] = problems(401)[401]


def _describe_cross_site(document: dict[str, Any]) -> None:
    """Describe what web pages of other sites get."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            statuses = (*(() if method == "get" else (403,)), *(() if path in PROBES else (421,)))
            operation["responses"] |= {str(status): reply for status, reply in problems(*statuses).items()}


def _tidy(component: dict[str, Any]) -> None:
    """Put in the references to enum components, and drop titles: some generators make a type of each."""
    component.pop("title", None)
    for field in component.get("properties", {}).values():
        field.pop("title", None)
        if name := field.pop(COMPONENT, None):
            del field["type"]
            field["$ref"] = SCHEMAS + name


# Problems that cannot be provoked while replies are recorded.
_RARE: dict[str, RequantError] = {
    "401": no_valid_token(),
    "403": foreign_origin(b"https://example.com"),
    "409": DestinationError(
        "/models/tiny-W4A16 holds files that do not belong to this conversion: choose an empty one"
    ),
    "421": unknown_host(b"example.com", LOOPBACK_HOSTS),
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
                    name = PROBLEM_REPLIES[int(status)].component
                    shared["content"] = {PROBLEM: {**response["content"][PROBLEM], "example": _example(status)}}
                    assert responses.setdefault(name, shared) == shared, f"{status} is described in two ways"
                    shared = {"$ref": f"#/components/responses/{name}"}
                operation["responses"][status] = shared
    document["components"] |= {"headers": headers, "responses": responses}


def _example(status: str) -> dict[str, Any]:
    error = _RARE.get(status)
    if error is None:
        recorded: dict[str, Any] = recorded_replies().get(status, {"json": {}})["json"]
        return recorded
    return problem_document(error, int(status), EXAMPLE_REQUEST_ID)


def _with_shared_headers(response: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    for name, header in response["headers"].items():
        assert headers.setdefault(name, header) == header, f"{name} is described in two ways"
    return {**response, "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in response["headers"]}}
