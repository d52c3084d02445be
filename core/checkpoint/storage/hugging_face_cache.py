"""The directory of a model in Hugging Face's cache.

    models--<owner>--<name>/refs/<revision>        the commit of a branch or tag, as text
    models--<owner>--<name>/snapshots/<commit>/    the files, as links into blobs/

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache, huggingface_hub 1.0.
"""

from __future__ import annotations

import re
from pathlib import Path

from core.errors import StorageError, excerpt

_DEFAULT_REVISION = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}")


def snapshot_directory(directory: Path) -> Path:
    """Return the directory with the model's files: that of the revision `main`, or else the only snapshot.

    A directory that is not a model's in the cache is returned as it is. Raises StorageError where the cache has no
    snapshot, or several and none of them is `main`.
    """
    snapshots = directory / "snapshots"
    if not directory.name.startswith("models--") or not snapshots.is_dir():
        return directory
    try:
        commit = (directory / "refs" / _DEFAULT_REVISION).read_text().strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    if _COMMIT.fullmatch(commit) and (snapshots / commit).is_dir():
        return snapshots / commit
    found = sorted(path for path in snapshots.iterdir() if path.is_dir())
    if len(found) == 1:
        return found[0]
    if not found:
        raise StorageError(f"{directory} has no snapshot: the model was not downloaded")
    listed = ", ".join(excerpt(path.name) for path in found[:3])
    raise StorageError(f"{directory} has {len(found)} snapshots and no revision main: name one of them ({listed})")
