"""A page in Chromium that notes what it may not do: console errors, exceptions, requests to other origins, storage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
SIZES = {"desktop": DESKTOP, "phone": PHONE}
COLOR_SCHEMES = ("light", "dark")
MAX_MILLISECONDS = 30_000
"""How long a page may take to show what is expected."""

# A page shows what the API refuses; Chromium calls the status an error all the same.
_REFUSED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d ")


@contextmanager
def watched_page(chromium: Any, origin: str, complaints: list[str] | None = None, **options: Any) -> Iterator[Any]:
    """Yield a page in a context of its own, with `origin` as its base URL and the Content-Security-Policy in force.

    Args:
        chromium: Playwright's browser.
        origin: where the service is, such as `http://127.0.0.1:8080`.
        complaints: takes what the page did that it may not do. Without it that is an assertion at the end.
        options: of Playwright's `new_context`, such as `DESKTOP`, `PHONE` and `color_scheme`.
    """
    noted: list[str] = [] if complaints is None else complaints

    def on_console(message: Any) -> None:
        refused = _REFUSED.match(message.text) and urlsplit(message.location["url"]).path.startswith("/v1/")
        if message.type in ("error", "warning") and not refused:
            noted.append(f"console {message.type}: {message.text}")

    def on_request(request: Any) -> None:
        if not request.url.startswith((f"{origin}/", "data:", f"blob:{origin}/")):
            noted.append(f"request to another origin: {request.url}")

    def on_page(page: Any) -> None:
        page.on("pageerror", lambda error: noted.append(f"exception: {error}"))
        page.set_default_timeout(MAX_MILLISECONDS)

    with chromium.new_context(base_url=origin, **(DESKTOP | options)) as context:
        context.on("page", on_page)
        context.on("console", on_console)
        context.on("request", on_request)
        page = context.new_page()
        yield page
        state = context.storage_state()
        noted.extend(f"stored: {kept}" for kept in (*state["cookies"], *state["origins"]))
    if complaints is None:
        assert not noted, "\n".join(noted)


def screenshot(page: Any, name: str, *, whole: bool = True) -> None:
    """Write `name`.png to the directory that the environment variable SCREENSHOTS names, if any.

    `whole`: of the whole page, not of what is on the screen.
    """
    if directory := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=whole)
