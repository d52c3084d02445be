"""Which release of a package is installed."""

from __future__ import annotations

from importlib import metadata


def installed_release(distribution: str) -> str:
    """Return its version without the local label, which names a build: 2.13.0+cpu is torch 2.13.0 without CUDA."""
    return metadata.version(distribution).partition("+")[0]
