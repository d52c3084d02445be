"""The OpenAPI document as a source of requests: the examples of every POST operation, and values by field name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.conftest import ROOT

DOCUMENT: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8"))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
JSON = "application/json"

POSTS: dict[str, dict[str, Any]] = {path: item["post"] for path, item in DOCUMENT["paths"].items() if "post" in item}
"""Every operation that is reached by POST, by its path."""


def _example(operation: dict[str, Any]) -> Any:
    return operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("example")


EXAMPLES: dict[str, Any] = {
    path: example for path, operation in POSTS.items() if (example := _example(operation)) is not None
}
"""The JSON body of a request that works, by path."""


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference stands for, or the schema itself."""
    while "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    return schema


def stated_values(schema: dict[str, Any]) -> list[Any]:
    """The values that a schema itself names: its enumeration, examples and default."""
    found = [*schema.get("examples", ()), *([schema["default"]] if "default" in schema else ())]
    return [*found, *resolved(schema).get("enum", ())]


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """Every member of every object in `value`, by its name."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield name, member
            yield from _members(member)
    elif isinstance(value, list):
        for member in value:
            yield from _members(member)


def _values_by_name() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for example in EXAMPLES.values():
        for name, member in _members(example):
            # The operands and attributes of one operator are of no use to another.
            if name not in ("inputs", "attributes"):
                found[name].append(member)
    for schema in SCHEMAS.values():
        for name, member in schema.get("properties", {}).items():
            found[name] += stated_values(member)
    for operation in POSTS.values():
        for parameter in operation.get("parameters", ()):
            found[parameter["name"]] += stated_values(parameter["schema"])
    return {name: values for name, values in found.items() if values}


VALUES: dict[str, list[Any]] = _values_by_name()
"""Values that a field of this name has somewhere in the document."""

TEXTS: list[str] = sorted({value for values in VALUES.values() for value in values if isinstance(value, str)})
TYPE_TEXTS: list[str] = [text for text in TEXTS if text.startswith(("tensor<", "!quant"))]


def request_fields(path: str) -> dict[str, dict[str, Any]]:
    """The fields that the body of an operation may have, each with its schema."""
    content = POSTS[path].get("requestBody", {}).get("content", {})
    return dict(resolved(content.get(JSON, {}).get("schema", {})).get("properties", {}))
