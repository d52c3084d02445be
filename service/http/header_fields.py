"""The header fields of a request, looked through once for all that ask."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope

_KEPT = "header_fields"


def header_fields(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the fields by their names in lower case. Of a field that is there twice, the first counts."""
    state = scope.setdefault("state", {})
    found: Mapping[bytes, bytes] | None = state.get(_KEPT)
    if found is None:
        found = state[_KEPT] = dict(reversed(scope["headers"]))
    return found
