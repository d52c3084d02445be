"""The documentation site as built by `make docs`: it has every page, and loads nothing from another origin."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
_ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_LOADED_BY_CSS = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")


class Loads(HTMLParser):
    """What a page loads: the addresses in its attributes, but for links that a reader follows; and its classes."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.classes |= set(given.get("class", "").split())
        self.addresses += [
            given[name]
            for name in ("src", "srcset", "href", "data", "poster", "action", "style")
            if name in given and (tag, name) != ("a", "href")
        ]


def loads(page: Path) -> Loads:
    reader = Loads()
    reader.feed(page.read_text())
    return reader


def test_it_has_every_page() -> None:
    built = {path.relative_to(SITE).with_suffix("") for path in SITE.rglob("*.html")}
    pages = [path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 25
    assert {page.with_name("index") if page.name == "README" else page for page in pages} <= built


def test_pages_load_nothing_from_another_origin() -> None:
    for page in SITE.rglob("*.html"):
        found = loads(page)
        assert any(address.endswith(".css") for address in found.addresses), page
        assert [address for address in found.addresses if _ELSEWHERE.match(address)] == [], page
        # The theme's script would fetch Mermaid for these.
        assert "mermaid" not in found.classes, page


def test_styles_load_nothing_from_another_origin() -> None:
    sheets = list(SITE.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        found = ["".join(match) for match in _LOADED_BY_CSS.findall(sheet.read_text())]
        assert [address for address in found if _ELSEWHERE.match(address)] == [], sheet
