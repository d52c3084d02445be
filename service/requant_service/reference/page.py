"""The page as HTML, with the list of operations, which can be read before any script has run.

It is made from the routes, not from the OpenAPI document, which takes a second to make.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from fastapi.routing import APIRoute

from requant_service.openapi.tags import GROUPS

_TEMPLATE = Path(__file__).parent / "static" / "reference.html"


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
