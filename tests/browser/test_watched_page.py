"""The watch on pages, and axe-core, notice what they are there for, under a strict Content-Security-Policy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.accessibility import violations
from tests.browser.watched_page import watched_page
from tests.conftest import Server

pytestmark = pytest.mark.browser

_POLICY = {"content-security-policy": "default-src 'self'; img-src 'self' data: http://other.test"}
_MISDEEDS = {
    "<p>well": "",
    "<script src=/refused.js></script>": "",
    "<script src=/throws.js></script>": "exception: thrown",
    "<script src=/stores.js></script>": "stored: ",
    "<script>0</script>": "inline script violates",
    "<p style='color: red'>": "inline style violates",
    "<link rel=stylesheet href=http://other.test/x.css>": "violates the following Content Security Policy",
    "<img alt='' src=http://other.test/x.png>": "request to another origin: http://other.test/x.png",
    "<img alt='' src=/absent.png>": "the server responded with a status of 404",
}
_SCRIPTS = {
    "throws": "throw new Error('thrown')",
    "stores": "localStorage.x = 1",
    "refused": "fetch('/v1/types/parse', {method: 'POST', body: '{}'}).then(reply => reply.text())",
}


def _answer(page: Any, url: str, **reply: Any) -> None:
    """Answer requests for `url` in the place of the service."""
    page.route(url, lambda route: route.fulfill(**reply))


def _serve(page: Any, markup: str) -> None:
    """Open a page of `markup`."""
    for name, script in _SCRIPTS.items():
        _answer(page, f"**/{name}.js", body=script, content_type="text/javascript")
    page.route("http://other.test/**", lambda route: route.abort())
    body = f"<!DOCTYPE html><html lang=en><title>x</title><link rel=icon href=data:,><main><h1>x</h1>{markup}</main>"
    _answer(page, "**/opened", body=body, content_type="text/html", headers=_POLICY)
    page.goto("/opened", wait_until="networkidle")


def test_misdeeds_are_noted(chromium: Any, server: Server) -> None:
    for markup, expected in _MISDEEDS.items():
        noted: list[str] = []
        with watched_page(chromium, server.url, noted) as page:
            _serve(page, markup)
        assert any(expected in note for note in noted) if expected else not noted, (markup, noted)


def test_violations_are_found(page: Any) -> None:
    _serve(page, "<input>")
    assert [found.partition(" ")[0] for found in violations(page)] == ["label"]
