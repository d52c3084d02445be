"""Which release of a package is installed."""

from __future__ import annotations

import os
from importlib import metadata, util


def installed_release(distribution: str) -> str:
    """Return its version without the local label, which names a build: 2.13.0+cpu is torch 2.13.0 without CUDA."""
    return metadata.version(distribution).partition("+")[0]


def expected_release(distribution: str) -> tuple[int, int] | None:
    """Return major and minor number of the release whose arithmetic a test expects, None without the package.

    It is the installed one, unless EXPECTED_RELEASES names another, as `make drift` does.
    """
    if util.find_spec(distribution) is None:
        return None
    expected = dict(each.split("==") for each in os.environ.get("EXPECTED_RELEASES", "").split())
    major, minor, *_ = expected.get(distribution, metadata.version(distribution)).split(".")
    return int(major), int(minor)
