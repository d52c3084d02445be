"""What axe-core finds on a page."""

from __future__ import annotations

from typing import Any

_MAX_ELEMENTS = 5


def violations(page: Any) -> list[str]:
    """Return the violations of axe-core's rules, best practices among them, each with its first elements."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{violation['id']} ({violation['impact']}, {len(violation['nodes'])} elements): {violation['help']}\n"
        + "\n".join(f"  {node['html']}\n  {node['failureSummary']}" for node in violation["nodes"][:_MAX_ELEMENTS])
        for violation in Axe().run(page).response["violations"]
    ]
