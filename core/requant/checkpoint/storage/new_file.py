"""Whether files may be written to a store that holds none of their names."""

from __future__ import annotations

from collections.abc import Mapping

from requant.checkpoint.storage.store import Store
from requant.errors import DestinationError, StorageError


def check_new(destination: Store, sizes: Mapping[str, int]) -> None:
    """Raise DestinationError if a file with one of the names exists, StorageError if there is not enough space."""
    for name in sizes:
        if destination.find(name) is not None:
            detail = f"{destination.url} holds '{name}' already: remove it, or choose another name"
            raise DestinationError(detail, file=name)
    free = destination.free_bytes()
    if free is not None and free < sum(sizes.values()):
        raise StorageError(f"{destination.url} has {free} bytes free, but {sum(sizes.values())} are to be written")
