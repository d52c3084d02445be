"""The page as HTML: the list of operations, so that it is read before any script has run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

_TEMPLATE = Path(__file__).parent / "static" / "reference.html"


def render_page(document: Mapping[str, Any], *, playground: bool) -> str:
    """Return the page for a document. `playground`: whether there is one to link to."""
    text = _TEMPLATE.read_text(encoding="utf-8")
    link = '<a href="./">Playground</a>' if playground else ""
    return text.replace("<!-- playground -->", link).replace("<!-- operations -->", "\n".join(_groups(document)))


def _groups(document: Mapping[str, Any]) -> Iterator[str]:
    tags = {tag["name"]: tag for tag in document["tags"]}
    for group in document["x-tagGroups"]:
        yield f"<section><h2>{escape(group['name'])}</h2>"
        for name in group["tags"]:
            tag = tags[name]
            yield f'<section><h3 title="{escape(tag["description"])}">{escape(tag["x-displayName"])}</h3><ul>'
            yield from _operations(document, name)
            yield "</ul></section>"
        yield "</section>"


def _operations(document: Mapping[str, Any], tag: str) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["tags"] == [tag]:
                # The anchors of Swagger UI's own pages, so that links to them stay good.
                yield (
                    f'<li><a href="#/{tag}/{operation["operationId"]}"><span>{escape(operation["summary"])}</span> '
                    f'<code><b class="{method}">{method.upper()}</b> {escape(path)}</code></a></li>'
                )
