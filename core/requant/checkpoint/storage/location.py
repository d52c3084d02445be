"""A store by its path or URL."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from requant.checkpoint.storage.http_store import SCHEMES as HTTP_SCHEMES
from requant.checkpoint.storage.http_store import HttpStore
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.object_store import open_object_store
from requant.checkpoint.storage.object_store_client import SCHEMES
from requant.checkpoint.storage.store import Store
from requant.checkpoint.storage.urls import parts_of_url
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
