"""The directory of a model in Hugging Face's cache.

    models--<owner>--<name>/refs/<revision>        the commit of a branch or tag, as text
    models--<owner>--<name>/snapshots/<commit>/    the files, as links into blobs/

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache, huggingface_hub 1.0.
"""

from __future__ import annotations

import re

from requant.checkpoint.storage.local import LocalStore
from requant.errors import StorageError, excerpt

_DEFAULT_REVISION = "refs/main"
_MAX_REVISION_BYTES = 100
_COMMIT = re.compile(r"[0-9a-f]{40}")


def snapshot(store: LocalStore) -> LocalStore:
    """Return the store with the model's files: that of the revision `main`, or else the only snapshot.

    A directory that is not a model's in the cache is returned as it is. Raises StorageError where the cache has no
    snapshot, or several and none of them is `main`.
    """
    if not store.directory.name.startswith("models--"):
        return store
    snapshots = store.below("snapshots")
    found = snapshots.folders()
    if found is None:
        return store
    commit = _commit(store)
    if commit in found:
        return snapshots.below(commit)
    if len(found) == 1:
        return snapshots.below(found[0])
    if not found:
        raise StorageError(f"{store.directory} has no snapshot: the model was not downloaded")
    listed = ", ".join(excerpt(each) for each in found[:3])
    raise StorageError(
        f"{store.directory} has {len(found)} snapshots and no revision main: name one of them ({listed})"
    )


def _commit(store: LocalStore) -> str:
    """Return the commit of the revision `main`; nothing where it cannot be read."""
    try:
        text = (store.get(_DEFAULT_REVISION, _MAX_REVISION_BYTES) or b"").decode(errors="replace").strip()
    except StorageError:
        return ""
    return text if _COMMIT.fullmatch(text) else ""
