"""The view that derives multiplier and shift of a factor in every scheme."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.browser

# How many schemes refuse each: 3 is too large for some.
FACTORS = {"0.0123": 0, "0x1.8p-5": 0, "3": 1}


def _derived(client: httpx.Client, scheme: str, factor: str) -> list[str]:
    """Return the cells of a scheme, from the API."""
    reply = client.post("/v1/parameters/multiplier", json={"factors": [factor], "scheme": scheme})
    if reply.status_code != 200:
        return [f"Refused: {reply.json()['detail']}"]
    found = reply.json()["results"][0]
    return [str(found["multiplier"]), str(found["shift"]), found["represented"]]


def test_every_scheme(page: Any, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    schemes = [scheme["name"] for scheme in client.get("/v1/schemes").json()["schemes"]]
    assert len(schemes) == 31
    page.goto("/#multiplier")
    for factor, refusals in FACTORS.items():
        page.get_by_label("Real factor").fill(factor)
        expected = [_derived(client, scheme, factor) for scheme in schemes]
        assert sum(len(cells) == 1 for cells in expected) == refusals
        # Beside the name: multiplier, shift and represented value, or why there are none.
        cells = page.locator("tbody td:nth-child(-n+4)")
        expect(cells).to_have_text([text for cells in expected for text in cells])
        for row, scheme in zip(page.get_by_role("rowheader").all(), schemes, strict=True):
            assert row.locator("span").first.text_content() == scheme


def test_no_number(page: Any) -> None:
    page.goto("/#multiplier?factor=0.5")
    page.get_by_role("rowheader").first.wait_for()
    page.get_by_label("Real factor").fill("abc")
    page.get_by_role("alert").filter(has_text="'abc' is not a number").wait_for()
    assert page.get_by_role("rowheader").count() == 0
    assert page.get_by_label("Real factor").get_attribute("aria-invalid") == "true"
    assert "#multiplier?factor=abc&scheme=litert&" in page.url


def test_factor_of_three_scales(page: Any, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    page.goto("/#multiplier")
    page.get_by_label("Given").select_option("scales")
    scales = {"input": "0.05", "weight": "0x1.8p-3", "output": "0.3"}
    for name, scale in scales.items():
        page.get_by_label(f"{name.title()} scale").fill(scale)
    for given in (scales, {name: scales[name] for name in ("input", "output")}):
        page.get_by_label("Weight scale").fill(given.get("weight", ""))
        expected = {}
        for scheme in [scheme["name"] for scheme in client.get("/v1/schemes").json()["schemes"]]:
            body = {"scales": [given], "scheme": scheme}
            expected[scheme] = client.post("/v1/parameters/multiplier", json=body).json()["results"][0]
        cells = [str(each[name]) for each in expected.values() for name in ("multiplier", "shift", "represented")]
        expect(page.locator("tbody td:nth-child(-n+4)")).to_have_text(cells)
        # The factor is that of each scheme's own precision.
        factors = {each["factor"] for each in expected.values()}
        assert len(factors) > 1
        assert set(page.locator(".factors dt").all_text_contents()) == factors
    page.get_by_label("Output scale").fill("-")
    page.get_by_role("alert").filter(has_text="not a number").wait_for()
    page.reload()
    expect(page.get_by_label("Output scale")).to_have_value("-")
