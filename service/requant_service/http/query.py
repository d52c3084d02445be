"""The query of a request: known parameters, each at most once."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from starlette.requests import Request

from requant.errors import FieldFault, InvalidRequestError, excerpt
from requant.errors.names import not_among
from requant_service.http.problems import pointer

_MAX_PARAMETERS = 16
_MISSING = "required; in a shell, a URL with & in it needs quotes"


def read_query(request: Request, known: Collection[str], required: Collection[str] = ()) -> dict[str, str]:
    """Return the query's parameters. Unknown ones are refused: a misspelt option is not ignored."""
    text = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise InvalidRequestError(f"the query has more than {_MAX_PARAMETERS} parameters") from None
    faults = []
    query: dict[str, str] = {}
    for name, value in pairs:
        place = pointer(excerpt(name))
        if name not in known:
            faults.append(FieldFault(place, "extra_forbidden", _not_known(name, known, request.method)))
        elif name in query:
            faults.append(FieldFault(place, "repeated", "given more than once"))
        query[name] = value
    faults += [FieldFault(pointer(name), "missing", _MISSING) for name in required if name not in query]
    if faults:
        first = faults[0]
        raise InvalidRequestError(f"query parameter {first.pointer[1:]}: {first.detail}", tuple(faults))
    return query


def _not_known(name: str, known: Collection[str], method: str) -> str:
    if known:
        return not_among("parameter", name, known)
    options = "; options are fields of the body" if method == "POST" else ""
    return f"not a parameter; this route has none in its query{options}"


async def no_query(request: Request) -> None:
    """Refuse every query parameter: the dependency of routes that have none."""
    if request.scope["query_string"]:
        read_query(request, ())
