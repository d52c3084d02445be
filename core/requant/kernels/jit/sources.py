"""The sources of all kernels, and the folder in which what was compiled from them is kept. It does not import numba."""

from __future__ import annotations

import hashlib
from pathlib import Path

CORE = Path(__file__).parents[2]
KERNELS = CORE / "kernels"
SHARED_SOURCES = ("formats/rounding.py", "formats/rules.py")
"""What else of core kernels are compiled from."""


def sources_digest(core: Path = CORE) -> str:
    """Return what tells the sources in `core`/kernels and all folders below, and SHARED_SOURCES, from any others.

    A kernel is compiled from more than the file that defines it, so every change of any of them counts.
    """
    digest = hashlib.sha256()
    for path in [*sorted((core / "kernels").rglob("*.py")), *(core / name for name in SHARED_SOURCES)]:
        for part in (path.relative_to(core).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


# Taken before any kernel is defined: what is compiled later comes from the sources as they are now.
SOURCES = sources_digest()
FOLDER = f"kernels-{SOURCES[:16]}"
"""The folder of the cache for these sources."""
