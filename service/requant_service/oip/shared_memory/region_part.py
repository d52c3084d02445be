"""Where in shared memory a tensor is, as a request says it.

`shared_memory_region`, `shared_memory_byte_size` and `shared_memory_offset` stand among the parameters of an input or a
requested output, and of an output in the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from requant.errors import InvalidRequestError
from requant_service.http.problems import pointer

REGION = "shared_memory_region"
BYTE_SIZE = "shared_memory_byte_size"
OFFSET = "shared_memory_offset"
PARAMETERS = (REGION, BYTE_SIZE, OFFSET)


@dataclass(frozen=True, slots=True)
class RegionPart:
    """The part of a region that a request names for a tensor. `place` is the pointer of the tensor in the request."""

    region: str
    offset: int
    byte_size: int
    place: str

    @property
    def parameters(self) -> dict[str, str | int]:
        """The parameters that name this part. An offset of 0 is left out."""
        offset = {OFFSET: self.offset} if self.offset else {}
        return {REGION: self.region, BYTE_SIZE: self.byte_size, **offset}

    def pointer_to(self, parameter: str) -> str:
        """Return the pointer of one of the parameters that name this part."""
        return f"{self.place}{pointer('parameters', parameter)}"


def region_part(parameters: Mapping[str, Any], place: str) -> RegionPart | None:
    """Return the part of a region that the parameters of a tensor name, None if they name none.

    Raise InvalidRequestError for values that none can have, or if one is given without another.
    """
    if not any(name in parameters for name in PARAMETERS):
        return None
    given = {OFFSET: 0, **parameters}
    for name, kind, says in ((REGION, str, "a string"), (BYTE_SIZE, int, "a number"), (OFFSET, int, "a number")):
        where = f"{place}{pointer('parameters', name)}"
        if name not in given:
            raise InvalidRequestError.of_field(where, "missing", f"{REGION} and {BYTE_SIZE} are given together")
        if type(given[name]) is not kind or (kind is int and given[name] < 0):
            raise InvalidRequestError.of_field(where, "invalid", f"expected {says}{' of bytes' if kind is int else ''}")
    return RegionPart(given[REGION], given[OFFSET], given[BYTE_SIZE], place)
