"""A store by its path or URL; the directory of a model in Hugging Face's cache; and the configured roots, below one of
which paths and URLs from requests must be.

    models--<owner>--<name>/refs/<revision>        the commit of a branch or tag, as text
    models--<owner>--<name>/snapshots/<commit>/    the files, as links into blobs/

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache, huggingface_hub 1.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import unquote

from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.object_store import open_object_store
from requant.checkpoint.storage.paths import OutsideRootsError, PathsBelow
from requant.checkpoint.storage.store import Store, storage_errors
from requant.checkpoint.storage.urls import HTTP_SCHEMES, SCHEMES, parts_of_url
from requant.errors import ParameterError, StorageError, excerpt

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
        # Its sockets and TLS take as long to import as a small checkpoint to convert.
        from requant.checkpoint.storage.http_store import HttpStore

        return HttpStore(text, below=below)
    if scheme[1].lower() in SCHEMES:
        return open_object_store(text)
    kinds = ", ".join(f"{each}://" for each in ("file", *SCHEMES))
    download = "; download it first: hf download OWNER/MODEL --local-dir MODEL" if scheme[1].lower() == "hf" else ""
    raise StorageError(
        f"'{excerpt(scheme[1])}://' is not a supported URL scheme: give a path, or a URL of {kinds}{download}"
    )


def open_folder(location: str) -> tuple[Store, str]:
    """Return the store of the folder of a file, and the file's name in it. Raises StorageError."""
    folder, name = location.rsplit("/", 1) if "://" in location else os.path.split(location)
    return open_store(folder or os.curdir), name


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
    commits = snapshots.folders()
    if commits is None:
        return store
    main = _commit(store)
    if main in commits:
        return snapshots.below(main)
    if len(commits) == 1:
        return snapshots.below(commits[0])
    if not commits:
        raise StorageError(f"{store.directory} has no snapshot: the model was not downloaded")
    listed = ", ".join(excerpt(each) for each in commits[:3])
    raise StorageError(
        f"{store.directory} has {len(commits)} snapshots and no revision main: name one of them ({listed})"
    )


def _commit(store: LocalStore) -> str:
    """Return the commit of the revision `main`; nothing where it cannot be read."""
    try:
        text = (store.get(_DEFAULT_REVISION, _MAX_REVISION_BYTES) or b"").decode(errors="replace").strip()
    except StorageError:
        return ""
    return text if _COMMIT.fullmatch(text) else ""


_MAX_CHARACTERS = 1024


class Roots:
    """Directories and URLs of object stores. Anything outside them is refused, links included.

    What a store of a directory opens is opened below a descriptor of its root: a link that is put in place after the
    path was checked leads no further than one that was there before.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        """Raise ParameterError for a root that is neither an absolute path nor a URL."""
        self._urls = tuple(_plain_url(root.rstrip("/")) for root in roots if "://" in root)
        directories = [root for root in roots if "://" not in root]
        for root in directories:
            if not os.path.isabs(root):
                raise ParameterError(f"the root '{root}' is not an absolute path")
        real = sorted({os.path.realpath(root) for root in directories})
        # What is below another root could be replaced by whoever may write there.
        self._directories = tuple(
            root
            for root in real
            if not any(root.startswith(f"{other.rstrip('/')}/") for other in real if other != root)
        )

    def __bool__(self) -> bool:
        return bool(self._urls or self._directories)

    def source(self, name: str) -> Store:
        """Return the store of a checkpoint to be read. Raises StorageError, without saying what is outside."""
        if "://" in name:
            url, root = self._url(name)
            return open_store(url, below=root)
        paths = PathsBelow(self._directories)
        # A model in Hugging Face's cache is a directory of links.
        model = snapshot(LocalStore(_resolved(name, paths), paths))
        return LocalStore(_resolved(model.url, paths), paths)

    def file(self, name: str) -> tuple[Store, str]:
        """Return the store of the folder of a file to be read, and the file's name in it. Raises StorageError."""
        if "://" in name:
            url, root = self._url(name)
            folder, _, file = url.rpartition("/")
            return open_store(folder, below=root), file
        paths = PathsBelow(self._directories)
        folder, file = os.path.split(name)
        return LocalStore(_resolved(folder, paths, root=True), paths), file

    def destination(self, name: str) -> Store:
        """Return the store of a checkpoint to be written. Raises StorageError."""
        if "://" not in name:
            paths = PathsBelow(self._directories)
            return LocalStore(_resolved(name, paths), paths)
        url, _ = self._url(name)
        if url.startswith(("http://", "https://")):
            raise StorageError("expected a directory or the URL of an object store as destination; HTTP is read-only")
        return open_store(url)

    def _url(self, name: str) -> tuple[str, str]:
        """Return a URL and the root that it is below."""
        url = _plain_url(name.rstrip("/"))
        for root in self._urls:
            if url.startswith(f"{root}/"):
                return url, root
        raise _outside()


def _resolved(name: str, paths: PathsBelow, *, root: bool = False) -> str:
    """Return an absolute path without links. `root`: it may be a root itself. Raises StorageError."""
    if not name or len(name) > _MAX_CHARACTERS or "\0" in name or not os.path.isabs(name) or not _is_unicode(name):
        raise StorageError("expected an absolute path or a URL below one of the configured roots")
    try:
        with storage_errors("use", excerpt(name)):
            path = paths.resolve(name, root=root)
    except StorageError as error:
        if isinstance(error.__cause__, OutsideRootsError):
            raise _outside() from None
        raise
    if not _is_unicode(path):
        raise StorageError(f"a link on the path {excerpt(name)} is not UTF-8: rename what it leads to")
    return path


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain_url(url: str) -> str:
    """Return a URL without escapes or relative parts. Raises StorageError."""
    parts = parts_of_url(url) if len(url) <= _MAX_CHARACTERS and url.isprintable() else None
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
