"""The configured roots: paths and URLs from requests must be below one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from core.checkpoint.storage.hugging_face_cache import snapshot_directory
from core.checkpoint.storage.location import open_store
from core.checkpoint.storage.store import Store
from core.errors import ParameterError, StorageError

_MOST_CHARACTERS = 1024


class Roots:
    """Directories and URLs of object stores. Anything outside them is refused, links included."""

    def __init__(self, roots: Sequence[str]) -> None:
        """Raise ParameterError for a root that is neither an absolute path nor a URL."""
        self._urls = tuple(_plain_url(root.rstrip("/")) for root in roots if "://" in root)
        directories = [root for root in roots if "://" not in root]
        for root in directories:
            if not os.path.isabs(root):
                raise ParameterError(f"the root '{root}' is not an absolute path")
        self._directories = tuple(os.path.realpath(root) for root in directories)

    def __bool__(self) -> bool:
        return bool(self._urls or self._directories)

    def source(self, name: str) -> Store:
        """Return the store of a checkpoint to be read, with all of its files below the roots.

        Raises StorageError, without saying what is outside.
        """
        if "://" in name:
            return open_store(self._url(name))
        directory = self._directory(name)
        # A model in Hugging Face's cache is a directory of links.
        found = Path(self._directory(str(snapshot_directory(Path(directory)))))
        store = open_store(found)
        self._check_links(found)
        return store

    def destination(self, name: str) -> Store:
        """Return the store of a checkpoint to be written. Raises StorageError."""
        if "://" not in name:
            directory = self._directory(name)
            self._check_links(Path(directory))
            return open_store(directory)
        url = self._url(name)
        if urlsplit(url).scheme in ("http", "https"):
            raise StorageError("expected a directory or the URL of an object store as destination; HTTP is read-only")
        return open_store(url)

    def _check_links(self, directory: Path) -> None:
        """Raise StorageError for a link that points outside and would be read or written through."""
        for folder, folders, files in os.walk(directory, followlinks=False):
            for entry in (*folders, *files):
                path = os.path.join(folder, entry)
                if os.path.islink(path) and not self._is_inside(os.path.realpath(path)):
                    raise StorageError("the directory has a symbolic link that points outside the configured roots")

    def _directory(self, name: str) -> str:
        if not name or len(name) > _MOST_CHARACTERS or "\0" in name or not os.path.isabs(name):
            raise StorageError("expected an absolute path or a URL below one of the configured roots")
        # Resolves links of all parents that there are; below them there is nothing that could be one.
        real = os.path.realpath(name)
        if not self._is_inside(real):
            raise _outside()
        return real

    def _is_inside(self, real: str) -> bool:
        return any(real.startswith(f"{root.rstrip(os.sep)}{os.sep}") for root in self._directories)

    def _url(self, name: str) -> str:
        url = _plain_url(name.rstrip("/"))
        if not any(url.startswith(f"{root}/") for root in self._urls):
            raise _outside()
        return url


def _plain_url(url: str) -> str:
    """Return a URL without escapes or relative parts. Raises StorageError."""
    parts = urlsplit(url) if len(url) <= _MOST_CHARACTERS and url.isprintable() else None
    segments = [] if parts is None else parts.path.split("/")[1:]
    if (
        parts is None
        or not parts.netloc
        or any(mark in url for mark in "?#%\\@")
        or any(segment in ("", ".", "..") for segment in segments)
    ):
        raise StorageError(
            "expected a URL such as s3://bucket/folder, without a user, a query, percent signs, or empty or dotted "
            "path segments"
        )
    return f"{parts.scheme.lower()}://{parts.netloc}{parts.path}"


def _outside() -> StorageError:
    return StorageError("the path or URL is not below any of the configured roots")
