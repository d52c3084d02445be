"""The query of a request: known parameters, each at most once."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from starlette.requests import Request

from requant.errors import FieldFault, InvalidRequestError, excerpt
from requant.errors.names import not_among
from requant.mlir.diagnostics import EXAMPLE_TYPE
from requant_service.http.json_body import IN_THE_TYPE
from requant_service.http.problems import pointer

_MAX_PARAMETERS = 16
_LISTED = "; available"
_MISSING = "required"
# What a shell leaves of a URL with several.
_ONE_MISSING = "required; in a shell, a URL with & in it needs quotes"


def read_query(request: Request, known: Collection[str], required: Collection[str] = ()) -> dict[str, str]:
    """Return the query's parameters. Unknown ones are refused: a misspelt option is not ignored."""
    text = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise InvalidRequestError(f"the query has more than {_MAX_PARAMETERS} parameters") from None
    faults, listed = [], False
    query: dict[str, str] = {}
    for name, value in pairs:
        place = pointer(excerpt(name))
        if name not in known:
            fault = _not_known(name, known, request.method, listed)
            listed = listed or _LISTED in fault
            faults.append(FieldFault(place, "extra_forbidden", fault))
        elif name in query:
            faults.append(FieldFault(place, "repeated", "given more than once"))
        query[name] = value
    missing = _ONE_MISSING if len(pairs) == 1 else _MISSING
    faults += [FieldFault(pointer(name), "missing", missing) for name in required if name not in query]
    if faults:
        first = faults[0]
        raise InvalidRequestError(f"query parameter {first.pointer[1:]}: {first.detail}", tuple(faults))
    return query


def _not_known(name: str, known: Collection[str], method: str, listed: bool) -> str:
    """`listed`: whether another fault names those that there are."""
    if name in IN_THE_TYPE and "output_type" in known:
        return f"not a parameter; it is part of the type: output_type={EXAMPLE_TYPE.replace(' ', '')}"
    if known:
        fault = not_among("parameter", name, known)
        return fault.partition(_LISTED)[0] if listed else fault
    options = "; options are fields of the body" if method == "POST" else ""
    return f"not a parameter; this route has none in its query{options}"


async def no_query(request: Request) -> None:
    """Refuse every query parameter: the dependency of routes that have none."""
    if request.scope["query_string"]:
        read_query(request, ())
