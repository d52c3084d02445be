"""Ranges of files in a store, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.storage.store import Store, StoredFile
from requant.errors import StorageError

Array = NDArray[Any]


def read_range(store: Store, file: StoredFile, offset: int, size: int) -> Array:
    """Return bytes [offset, offset + size) of a file as uint8. Raises what `Store.read_into` raises."""
    target = np.empty(size, "|u1")
    if size:
        store.read_into(file, offset, target.data)
    return target


def file_named(store: Store, name: str) -> StoredFile:
    """Return a file of the store by its name. Raises StorageError if it does not exist."""
    file = store.find(name)
    if file is None:
        raise StorageError(f"there is no file '{name}' in {store.url}", file=name)
    return file
