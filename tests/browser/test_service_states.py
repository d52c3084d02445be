"""What the page says while the service compiles, when it asks for a token, and behind a prefix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.watched_page import watched_page
from tests.conftest import Server, started

pytestmark = pytest.mark.browser

TOKEN = "0123456789abcdef"


def test_while_kernels_are_compiled(chromium: Any, server: Server) -> None:
    from playwright.sync_api import expect

    complaints: list[str] = []
    with watched_page(chromium, server.url, complaints) as page:
        _see_the_compilation(page)
        expect(page.locator("#summary")).to_have_text("All 4 elements differ.")
        expect(page.locator("#waiting")).to_have_text("")
    assert all("status of 503" in complaint for complaint in complaints), complaints


def _see_the_compilation(page: Any) -> None:
    from playwright.sync_api import expect

    health = {"status": "compiling", "kernels": {"compiled": 37, "total": 108, "seconds_left": 20}}
    ready: list[bool] = []

    def quantize(route: Any) -> None:
        if ready:
            route.continue_()
        else:
            route.fulfill(status=503, headers={"retry-after": "1"}, json={"code": "not_ready"})

    page.route("**/healthz", lambda route: route.fulfill(body=json.dumps(health), content_type="application/json"))
    page.route("**/v1/quantize", quantize)
    page.goto("/")
    expect(page.locator("#waiting")).to_contain_text("compiling its kernels: 37 of 108, about 20 s left")
    ready.append(True)


def test_token(chromium: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    with (
        started(tmp_path / "log", "--drain-seconds", "0", "--tokens-file", str(tokens)) as (server, _),
        watched_page(chromium, server.url) as page,
    ):
        page.goto("/")
        for given, said in (("fedcba9876543210", "asks for a token"), (TOKEN, "refused this token")):
            expect(page.get_by_role("alert")).to_contain_text(said)
            page.get_by_label("Token").fill(given)
            page.keyboard.press("Enter")
        expect(page.locator("#summary")).to_have_text("All 4 elements differ.")
        assert page.get_by_label("Token").count() == 0
        assert TOKEN not in page.url
        _call_reads_the_token(page)


def _call_reads_the_token(page: Any) -> None:
    """The call to copy takes the token from the environment, and has it nowhere."""
    for form, command in (("curl", "bash"), ("Python", sys.executable)):
        page.get_by_role("tab", name=form, exact=True).click()
        text = page.get_by_role("tabpanel").locator("code").text_content()
        assert TOKEN not in text
        printed = subprocess.run(
            command,
            input=text,
            env={**os.environ, "TOKEN": TOKEN},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        assert len(json.loads(printed)["output"]["values"]) == 4


def test_behind_a_prefix(page: Any, server: Server) -> None:
    from playwright.sync_api import expect

    prefix = f"{server.url}/tools/requant"
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.route(
        f"{prefix}/**",
        lambda route: route.fulfill(response=route.fetch(url=route.request.url.replace(prefix, server.url))),
    )
    page.goto("/tools/requant/")
    expect(page.locator("#summary")).to_have_text("All 4 elements differ.")
    page.wait_for_load_state("networkidle")
    assert all(url.startswith(f"{prefix}/") for url in asked)


def test_a_service_that_is_gone(chromium: Any, server: Server) -> None:
    from playwright.sync_api import expect

    complaints: list[str] = []
    with watched_page(chromium, server.url, complaints) as page:
        page.goto("/")
        expect(page.locator("#summary")).to_have_text("All 4 elements differ.")
        page.route("**/v1/quantize", lambda route: route.abort())
        page.get_by_role("textbox", name="Numbers").fill("1 2 3")
        expect(page.locator(".note").first).to_contain_text("does not answer")
    assert all("net::ERR_FAILED" in complaint for complaint in complaints), complaints
