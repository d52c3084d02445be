"""A store by its path or URL, and the directory of a model in Hugging Face's cache.

    models--<owner>--<name>/refs/<revision>        the commit of a branch or tag, as text
    models--<owner>--<name>/snapshots/<commit>/    the files, as links into blobs/

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache, huggingface_hub 1.0.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from requant.checkpoint.storage.http_store import SCHEMES as HTTP_SCHEMES
from requant.checkpoint.storage.http_store import HttpStore
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.object_store import open_object_store
from requant.checkpoint.storage.store import Store
from requant.checkpoint.storage.urls import SCHEMES, parts_of_url
from requant.errors import StorageError, excerpt

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(location: str | os.PathLike[str], *, below: str | None = None) -> Store:
    """Return the store at a path or a URL, `file:///models/x` or one of an object store. Nothing is read.

    below: the URL below which redirects of an HTTP server have to stay; None: they lead anywhere. Raises StorageError.
    """
    text = os.fspath(location)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalStore(os.path.expanduser(text))
    if scheme[1].lower() == "file":
        parts = parts_of_url(text)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise StorageError(f"'{excerpt(text)}' is not the URL of a local directory: file:///path/to/directory")
        return LocalStore(unquote(parts.path))
    if scheme[1].lower() in HTTP_SCHEMES:
        return HttpStore(text, below=below)
    if scheme[1].lower() in SCHEMES:
        return open_object_store(text)
    kinds = ", ".join(f"{each}://" for each in ("file", *SCHEMES))
    raise StorageError(f"'{excerpt(scheme[1])}://' is not a supported URL scheme: give a path, or a URL of {kinds}")


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
