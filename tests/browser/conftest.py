"""Chromium, as installed, and a page of the service in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.watched_page import MAX_MILLISECONDS, watched_page
from tests.conftest import Server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, headless: the one that CHROMIUM names, or `chromium` on the path."""
    from playwright.sync_api import expect, sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert path, "there is no Chromium; tests/browser/install_chromium says what to install"
    # In a container root cannot have the sandbox, and /dev/shm may be small.
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    # A machine that does other things as well takes its time.
    expect.set_options(timeout=MAX_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*root, "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, server: Server) -> Iterator[Any]:
    """A page of desktop size that fails its test if it does what it may not do."""
    with watched_page(chromium, server.url) as opened:
        yield opened
