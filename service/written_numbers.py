"""The numbers of a request as they were written, for the few that binary64 is not enough for."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, cast

from service.json_slices import Text


class WrittenNumbers:
    """The numbers in a JSON body as texts. The body is read again when the first are asked for, and only then."""

    def __init__(self, body: Text) -> None:
        self._body = body

    @cached_property
    def _document(self) -> Any:
        return json.loads(self._body, parse_float=str, parse_int=str)

    def values(self, field: str) -> list[str]:
        """Return the `values` of the tensor in a field: `input`, or `inputs/3`."""
        found = self._document
        for key in (*field.split("/"), "values"):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return cast(list[str], found)
