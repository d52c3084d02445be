"""The reference: a page that shows every operation with an example and runs it. All of its files are served here.

The page lists the operations itself, so that they can be read before any script has run. It is made from the routes,
not from the OpenAPI document, which takes a second to make. Swagger UI, from the package fastapi-offline, shows the one
that is chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from html import escape
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from requant_service.http.openapi_operation import BINARY
from requant_service.http.problems import not_found
from requant_service.http.responses import PAGE_HEADERS, StaticContent
from requant_service.openapi.examples import FILES, example_files
from requant_service.openapi.tags import GROUPS
from requant_service.runtime.settings import Settings

_STATIC = Path(__file__).parent / "static"
_TEMPLATE = _STATIC / "reference.html"


def render_page(routes: Sequence[APIRoute], *, playground: bool) -> str:
    """Return the page for these routes. `playground`: whether there is one to link to."""
    by_tag: dict[str, list[APIRoute]] = defaultdict(list)
    for route in routes:
        if route.include_in_schema:
            by_tag[str(route.tags[0])].append(route)
    text = _TEMPLATE.read_text(encoding="utf-8")
    link = '<a href="./">Playground</a>' if playground else ""
    return text.replace("<!-- playground -->", link).replace("<!-- operations -->", "\n".join(_groups(by_tag)))


def _groups(routes: Mapping[str, Sequence[APIRoute]]) -> Iterator[str]:
    for group, tags in GROUPS.items():
        yield f"<section><h2>{escape(group)}</h2>"
        for tag in tags:
            yield f'<section><h3 title="{escape(tag.description)}">{escape(tag.title)}</h3><ul>'
            # The anchors of Swagger UI's own pages, so that links to those still work.
            yield from (_operation(route, f"#/{tag.name}/{route.operation_id}") for route in routes[tag.name])
            yield "</ul></section>"
        yield "</section>"


def _operation(route: APIRoute, anchor: str) -> str:
    method = "".join(route.methods or ())
    place = f'<code><b class="{method.lower()}">{method}</b> {escape(route.path)}</code>'
    return f'<li><a href="{anchor}"><span>{escape(route.summary or "")}</span> {place}</a></li>'


router = APIRouter(include_in_schema=False)

_SWAGGER_UI = files("fastapi_offline") / "static"
_JAVASCRIPT = "text/javascript; charset=utf-8"
_CSS = "text/css; charset=utf-8"
_PNG = "image/png"
_ASSETS = {
    "reference.css": (_STATIC, _CSS),
    "reference.js": (_STATIC, _JAVASCRIPT),
    "operation_document.js": (_STATIC, _JAVASCRIPT),
    "operation_list.js": (_STATIC, _JAVASCRIPT),
    "swagger_ui.js": (_STATIC, _JAVASCRIPT),
    "swagger-ui-bundle.js": (_SWAGGER_UI, _JAVASCRIPT),
    "swagger-ui.css": (_SWAGGER_UI, _CSS),
    "favicon.png": (_SWAGGER_UI, _PNG),
}
_PREFIX = f"/{FILES}/"


def _asset(name: str) -> StaticContent:
    folder, media_type = _ASSETS[name]
    headers = {"cache-control": "public, max-age=86400"} if folder is _SWAGGER_UI else None
    return StaticContent((folder / name).read_bytes, media_type, headers, compressed=media_type != _PNG)


@cache
def _example_files() -> dict[str, StaticContent]:
    return {path: StaticContent(partial(bytes, file), BINARY) for path, file in example_files().items()}


_CONTENT = {name: _asset(name) for name in _ASSETS}


def reference_paths() -> frozenset[str]:
    """Return all paths that a browser asks for to show the page."""
    assets = (f"/docs/assets/{name}" for name in _ASSETS)
    return frozenset({"/openapi.json", "/docs", *assets, *(_PREFIX + path for path in _example_files())})


def reference_page(routes: Sequence[APIRoute], settings: Settings) -> StaticContent:
    """Return the page for the routes of an application."""
    return StaticContent(
        lambda: render_page(routes, playground=settings.playground).encode(),
        "text/html; charset=utf-8",
        PAGE_HEADERS,
        compressed=True,
    )


@router.get("/openapi.json")
async def document(request: Request) -> Response:
    """The OpenAPI document."""
    content: StaticContent = request.app.document
    return await content.response(request)


@router.get("/docs")
async def page(request: Request) -> Response:
    """The page."""
    content: StaticContent = request.app.reference_page
    return await content.response(request)


@router.get("/docs/assets/{name}")
async def asset(request: Request, name: str) -> Response:
    """One of the page's files."""
    content = _CONTENT.get(name)
    return not_found(request) if content is None else await content.response(request)


@router.get(_PREFIX + "{operation}/{name}")
async def example_file(request: Request, operation: str, name: str) -> Response:
    """A `.npy` file that an example sends, or that is the reply to it."""
    file = _example_files().get(f"{operation}/{name}")
    return not_found(request) if file is None else await file.response(request)
