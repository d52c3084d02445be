"""Schemathesis goes through the committed document and asks the running service whether it keeps every word of it.

Texts that are types come from the project's own generator, and `.npy` bodies from here, valid and slightly broken:
random text and bytes would never get past the first check.
"""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.conftest import Server
from tests.generated_clients.calls import DOCUMENT, calls
from tests.support.cases import OF_THE_DAY
from tests.support.mlir_strategies import mutated, type_text

schemathesis: Any = pytest.importorskip("schemathesis")

pytestmark = pytest.mark.generators

EXAMPLES = 12

# The document says what JSON Schema can say. That a text is a type, that data have its size: the service says that, and
# answers with a problem.
CONFIGURATION = {
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ["2xx", "400", "404", "413", "415", "422"]},
        # A list that is too long is 413.
        "negative_data_rejection": {"expected-statuses": ["400", "401", "404", "405", "413", "415", "422"]},
    },
}
TYPE_FIELDS = ("type", "output_type", "input_type", "text")
KNOWN_BODIES = {call.operation: call.json for call in calls() if call.json is not None}


@st.composite
def npy_files(draw: st.DrawFn) -> bytes:
    """A `.npy`: whole, or with a byte changed, or cut off, or with something behind it."""
    dtype = draw(st.sampled_from(["f4", "f2", "f8", "i1", "u1", "i2", "i4", "c8", ">f4", "?", "S3"]))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    file = io.BytesIO()
    np.save(file, np.zeros(shape, dtype))
    body = bytearray(file.getvalue())
    match draw(st.sampled_from(["whole", "whole", "changed", "cut", "longer"])):
        case "changed":
            body[draw(st.integers(0, min(len(body), 127) - 1))] = draw(st.integers(0, 255))
        case "cut":
            del body[draw(st.integers(0, len(body))) :]
        case "longer":
            body += b"\0"
    return bytes(body)


schemathesis.openapi.media_type("application/octet-stream", npy_files())


def _type(random: Random) -> str:
    text = type_text(random)
    return mutated(random, text) if random.random() < 0.3 else text


def _with_types(value: Any, random: Random) -> Any:
    """`value` with every text that should be a type replaced by one that mostly is."""
    if isinstance(value, dict):
        return {
            key: _type(random) if key in TYPE_FIELDS and isinstance(entry, str) else _with_types(entry, random)
            for key, entry in value.items()
        }
    return value


def enrich(case: Any) -> None:
    """Bring a case that keeps to the document further in than random texts get: with types, or as one that works."""
    random = Random(crc32(repr((case.body, case.query)).encode()))
    case.query = _with_types(case.query, random)
    if isinstance(case.body, dict) and case.body:
        known = KNOWN_BODIES.get(case.operation.definition.raw["operationId"])
        if known is not None and random.random() < 0.5:
            field = random.choice(sorted(case.body))
            case.body = {**known, field: case.body[field]}
        else:
            case.body = _with_types(case.body, random)


schema = schemathesis.openapi.from_dict(
    json.loads(DOCUMENT.read_text(encoding="utf-8")),
    config=schemathesis.config.SchemathesisConfig.from_dict(CONFIGURATION),
).include(lambda context: (crc32(context.operation.label.encode()) + OF_THE_DAY) % 3 == 0)
"""A third of the operations: in three days all."""


@schema.parametrize()  # type: ignore[untyped-decorator]
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_service_keeps_its_document(server: Server, case: schemathesis.Case) -> None:
    # A case that breaks the document on purpose stays as it is: it has to be refused.
    if case.meta is not None and case.meta.generation.mode is schemathesis.GenerationMode.POSITIVE:
        enrich(case)
    case.call_and_validate(base_url=server.url)
