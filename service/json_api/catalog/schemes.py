"""A scheme as its page shows it: everything that is needed to write its arithmetic again."""

from __future__ import annotations

from core.schemes import scheme_named
from service.json_api.schemas.multipliers import Bounds, Scheme


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
