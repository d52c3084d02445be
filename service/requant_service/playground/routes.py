"""The playground: a page to try the service on, made of static files that load nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from requant_service.http.problems import not_found
from requant_service.http.responses import PAGE_HEADERS, StaticContent

router = APIRouter(include_in_schema=False)

_STATIC = Path(__file__).parent / "static"
_PAGE = _STATIC / "index.html"
_MEDIA_TYPES = {
    "": "text/plain; charset=utf-8",  # LICENSE
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}


def _content(path: Path) -> StaticContent:
    return StaticContent(path.read_bytes, _MEDIA_TYPES[path.suffix], PAGE_HEADERS, compressed=True)


_INDEX = _content(_PAGE)
_ASSETS = {
    path.relative_to(_STATIC).as_posix(): _content(path)
    for path in sorted(_STATIC.rglob("*"))
    if path.is_file() and path != _PAGE
}

PATHS = frozenset({"/", *(f"/playground/{name}" for name in _ASSETS)})
"""All that a browser asks for to show the page. A browser cannot send a token with it, so these paths ask for none."""


@router.get("/")
async def page(request: Request) -> Response:
    """The page."""
    return await _INDEX.response(request)


@router.get("/playground/{name:path}")
async def asset(request: Request, name: str) -> Response:
    """One of the page's files."""
    if name not in _ASSETS:
        return not_found(request)
    return await _ASSETS[name].response(request)
