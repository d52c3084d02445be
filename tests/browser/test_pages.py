"""Each page in light and dark, at desktop and phone size: it does nothing that it may not do, and is accessible."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser.accessibility import violations
from tests.browser.watched_page import COLOR_SCHEMES, SIZES, screenshot, watched_page
from tests.conftest import Server

pytestmark = pytest.mark.browser


def _requantized(integers: str, output: str) -> str:
    """Return the state of the view that identifies."""
    types = {"input.type": "!quant.uniform<i32:f32, 0.001>", "output_type": "!quant.uniform<i8:f32, 0.25:-1>"}
    call = {"operation": "requantize", "arguments": {"input": integers, **types}, "observed": {"output": output}}
    return f"calls={quote(json.dumps([call]))}"


ACCESSIBLE = {
    "compare": "/",
    "requantize": "/#requantize",
    "identify": "/#identify",
    "identify-excluded": "/#identify?" + _requantized("585 125", "1 -1"),
    "identify-unexplained": "/#identify?" + _requantized("585 7984 -12", "1 31 -2"),
    "multiplier": "/#multiplier?factor=3",
    "multiplier-scales": "/#multiplier?from=scales",
    "type": "/#type",
    "integer": "/#integer",
    "blocks": "/#blocks",
    "calibration": "/#calibration",
    "vectors": "/#vectors",
    "refused": "/#quantize?numbers=0.25+100+nan+1.25",
    "docs": "/docs",
    "docs-operation": "/docs#/npy/quantizeNpy",
}
OTHERS: dict[str, str] = {}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ACCESSIBLE | OTHERS)
def test_page(chromium: Any, server: Server, name: str, size: str) -> None:
    with watched_page(chromium, server.url, **SIZES[size]) as page:
        page.goto((ACCESSIBLE | OTHERS)[name], wait_until="networkidle")
        for color_scheme in COLOR_SCHEMES:
            page.emulate_media(color_scheme=color_scheme)
            screenshot(page, f"{name}-{size}-{color_scheme}", whole=name in ACCESSIBLE)
        if name in ACCESSIBLE:
            page.evaluate("for (const closed of document.querySelectorAll('details')) closed.open = true")
            for color_scheme in COLOR_SCHEMES:
                page.emulate_media(color_scheme=color_scheme)
                found = violations(page)
                assert not found, f"{color_scheme}\n" + "\n".join(found)
            # A phone zooms out to show what is too wide: innerWidth is no measure.
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= page.viewport_size["width"], f"{width} pixels wide"
