"""One call of each operation: its example."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requant_service.app  # noqa: F401 - it describes all routes
from requant_service.http.openapi_operation import EXAMPLES

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "openapi" / "openapi.json"


@dataclass(frozen=True)
class Call:
    """An operation with what it is given: a JSON body, or bytes, or the fields of a form, or nothing."""

    operation: str
    tag: str
    method: str
    path_template: str
    path: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    json: Any = None
    data: bytes | None = None
    form: dict[str, str | int | bytes] = field(default_factory=dict)

    @property
    def answers_bytes(self) -> bool:
        """Whether the reply is a file."""
        return self.data is not None or bool(self.form)

    @property
    def url(self) -> str:
        return self.path_template.format(**self.path)


def calls() -> Iterator[Call]:
    """Every operation of the document but those of shared memory and of checkpoints, which need a setting and more."""
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    for path, methods in document["paths"].items():
        if "sharedmemory" in path:
            continue
        for method, operation in methods.items():
            name = operation["operationId"]
            example = EXAMPLES[name]
            if not example.recorded:
                continue
            yield Call(
                operation=name,
                tag=operation["tags"][0],
                method=method,
                path_template=path,
                path=dict(example.path),
                query=dict(example.query),
                json=example.json,
                data=example.npy,
                form=dict(example.form),
            )
