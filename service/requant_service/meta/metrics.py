"""What the service counts and times, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from requant_service.runtime.metrics import CONTENT_TYPE
from requant_service.runtime.runtime import runtime

# Scrapers know the format; clients that are generated from the document have no use for it.
router = APIRouter(include_in_schema=False)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """All of it, in Prometheus' text format."""
    return Response(runtime(request).metrics.text(), media_type=CONTENT_TYPE)
