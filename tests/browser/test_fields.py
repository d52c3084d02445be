"""What each field says of itself while it has the focus, and where each view is described."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.browser.watched_page import PHONE, watched_page
from tests.conftest import Server

pytestmark = pytest.mark.browser

VIEWS = (
    *("quantize", "requantize", "identify", "multiplier?from=scales", "type"),
    *("integer", "blocks", "calibration", "vectors"),
)
# Of chips their own text says all, and files are chosen by a button.
_FIELDS = ":is(main, #call) :is(input, select, textarea):not([type=file], [name=profile])"


@pytest.mark.parametrize("view", VIEWS)
def test_each_field_has_a_sentence(page: Any, view: str) -> None:
    page.goto(f"/#{view}")
    page.get_by_role("tab", name="JSON").wait_for()
    page.wait_for_load_state("networkidle")
    page.evaluate("for (const closed of document.querySelectorAll('details')) closed.open = true")
    described = page.locator(_FIELDS).evaluate_all(
        """fields => fields.map(field => {
          const ids = (field.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean);
          const elements = ids.map(id => document.getElementById(id));
          const sentences = elements.filter(each => each?.classList.contains("explained"));
          return [field.labels?.[0]?.textContent ?? "", sentences.map(each => each.textContent)];
        })"""
    )
    assert described
    observed = "What came out, element by element, in row-major order."
    for label, sentences in described:
        assert len(sentences) == 1, label
        assert sentences[0].endswith("."), label
        assert sentences[0] != observed or view == "identify", label


def test_the_line_is_there_while_a_field_has_the_focus(chromium: Any, server: Server) -> None:
    from playwright.sync_api import expect

    for size, edge in (({}, "bottom"), (PHONE, "top")):
        with watched_page(chromium, server.url, **size) as page:
            page.goto("/#multiplier")
            line = page.locator("#field-explanation")
            expect(line).to_be_hidden()
            before = page.get_by_label("Real factor").bounding_box()
            page.get_by_label("Real factor").focus()
            expect(line).to_contain_text("The real number that multiplier and shift stand for")
            # It lies over the page, and moves nothing.
            assert page.get_by_label("Real factor").bounding_box() == before
            box = line.bounding_box()
            assert (box["y"] <= 1) == (edge == "top")
            page.get_by_label("Given").focus()
            expect(line).to_contain_text("Whether the factor itself is given")
            page.get_by_label("Given").blur()
            expect(line).to_be_hidden()


def test_each_view_is_described_in_the_reference(page: Any, client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    places = {
        f"docs#/{operation['tags'][0]}/{operation['operationId']}": operation["summary"]
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    for view in VIEWS:
        page.goto(f"/#{view}")
        links = page.get_by_role("navigation", name="Reference of this view").get_by_role("link").all()
        assert links, view
        for link in links:
            assert places[link.get_attribute("href")] == link.inner_text(), view
