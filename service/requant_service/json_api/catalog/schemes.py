"""The schemes of requantization: how each derives multipliers and shifts, and what it computes with them."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import UnknownNameError
from requant.schemes import SCHEMES, scheme_named
from requant_service.http.models import ABSENT, Int64, ReplyModel
from requant_service.http.openapi_operation import static_operation
from requant_service.http.problems import error_response
from requant_service.http.query import no_query
from requant_service.http.responses import static_json
from requant_service.json_api.catalog.conformance import Conformance, conformance_of

router = APIRouter(tags=["catalogs"], dependencies=[Depends(no_query)])


class Bounds(ReplyModel):
    """The lowest and highest accepted values."""

    lowest: Int64
    highest: Int64


class Scheme(ReplyModel):
    """A scheme: how multiplier m and shift are derived from a factor, and how v = q - z_in is scaled by them."""

    name: str
    summary: str
    source: str
    factor: str = Field(description="How the factor is computed from scales.")
    derivation: str = Field(description="How m and shift are derived from the factor d.")
    convention: str = Field(description="The real value of m and shift.")
    formula: str = Field(description="The result for v, before it is clamped to the storage bounds.")
    where: str = Field(description="Definitions of the names in the formula.")
    rounding: str
    multipliers: Bounds
    shifts: Bounds
    demands: list[str] = Field(description="Preconditions on each element; a violation is an error.")
    conformance: dict[str, Conformance] = Field(
        default=ABSENT, description="What was compared with real systems. Absent from the list of schemes."
    )


class SchemeList(ReplyModel):
    """All schemes."""

    schemes: list[Scheme]


def scheme_page(name: str) -> Scheme:
    """Return the page of the scheme of that name, or raise UnknownNameError."""
    scheme = scheme_named(name)
    multipliers, shifts = (Bounds(lowest=low, highest=high) for low, high in (scheme.multipliers, scheme.shifts))
    return Scheme(
        name=scheme.name,
        summary=scheme.summary,
        source=scheme.source,
        factor=scheme.factor,
        derivation=scheme.derivation,
        convention=scheme.convention,
        formula=scheme.formula,
        where=scheme.where,
        rounding=scheme.rounding,
        multipliers=multipliers,
        shifts=shifts,
        demands=list(scheme.stage.demands.values()),
    )


def _conforming_page(name: str) -> Scheme:
    return scheme_page(name).model_copy(update={"conformance": conformance_of("scheme", name)})


_PAGES = {name: static_json(partial(_conforming_page, name)) for name in SCHEMES}
_LIST = static_json(lambda: SchemeList(schemes=[scheme_page(name) for name in SCHEMES]))


@router.get("/v1/schemes", **static_operation("listSchemes", "List schemes", SchemeList, excerpt="schemes"))
async def list_schemes(request: Request) -> Response:
    """List the requantization schemes, in words and formulas."""
    return await _LIST.response(request)


@router.get(
    "/v1/schemes/{name}",
    **static_operation("getScheme", "Describe a scheme", Scheme, 404, path={"name": "litert"}),
)
async def get_scheme(request: Request, name: str) -> Response:
    """Describe one requantization scheme."""
    try:
        scheme = scheme_named(name)
    except UnknownNameError as error:
        return error_response(request, error, status=404)
    return await _PAGES[scheme.name].response(request)
