"""What was expensive to make and may be asked for again, up to a number of bytes. Any thread may ask."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")

# A value that would take a larger share of the cache is not kept: it would drive out too many others.
_LARGEST_SHARE = 8


class PlanCache(Generic[Value]):
    """The values that were used last, as many as fit into `limit` bytes by what their makers say of their size."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._lock = Lock()
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """Return the value of that key, if it is there, as the one that was used last."""
        found = self._values.get(key)
        if found is None:
            return None
        try:  # noqa: SIM105  # suppress() takes longer than all else here
            self._values.move_to_end(key)
        except KeyError:
            pass  # another thread has just dropped it
        return found[0]

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value of about `size` bytes, key included, and drop what was not used for longest."""
        if size * _LARGEST_SHARE > self._limit:
            return
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value, size
            self._held += size
            while self._held > self._limit:
                _, (_, dropped) = self._values.popitem(last=False)
                self._held -= dropped
