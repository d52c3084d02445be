"""The lease of an output: a file next to the records of the destination that only one worker can create.

A lease saves work and protects nothing. A worker that lost its lease without noticing writes the bytes that the next
one writes.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Self
from uuid import uuid4

from requant.checkpoint.run.destination import record_name
from requant.checkpoint.small_json import parse_small_json
from requant.checkpoint.storage.store import Store
from requant.errors import StorageError

_MAX_BYTES = 4096

SECONDS = 300.0
"""How long a lease is valid after it was taken or renewed. Clocks of workers may differ by less."""


class Lease:
    """The lease of an output. A context manager: renewed while it lasts, given back at its end."""

    def __init__(self, destination: Store, output: str, holder: str, seconds: float) -> None:
        self._destination = destination
        self._name = _name(output)
        self._holder = holder
        self._seconds = seconds
        self._ended = Event()
        self._renewal = Thread(target=self._renew, name="lease", daemon=True)

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            # The next renewal may succeed. If none does, another worker makes the output too.
            with suppress(StorageError):
                self._destination.put(self._name, _text(self._holder, self._seconds))

    def __enter__(self) -> Self:
        self._renewal.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._renewal.join()
        with suppress(StorageError):
            self._destination.remove(self._name)


def take_lease(destination: Store, output: str, *, seconds: float = SECONDS) -> Lease | None:
    """Return the lease of an output; None where another worker holds it. Raises StorageError."""
    name, holder = _name(output), uuid4().hex
    if not destination.put(name, _text(holder, seconds), only_if_absent=True):
        held = _held(destination.get(name, _MAX_BYTES))
        # It may be ours: a request whose answer was lost is sent again, and finds what it wrote.
        if held is not None and held[0] != holder and held[1] > time.time():
            return None
        destination.put(name, _text(holder, seconds))
    return Lease(destination, output, holder, seconds)


def _name(output: str) -> str:
    return record_name(output, ".lease")


def _text(holder: str, seconds: float) -> bytes:
    return json.dumps({"holder": holder, "until": time.time() + seconds}).encode()


def _held(data: bytes | None) -> tuple[str, float] | None:
    """Return the holder and until when it holds the lease; None for one that is gone or cannot be read."""
    try:
        parsed = parse_small_json(data or b"", _MAX_BYTES)
        return str(parsed["holder"]), float(parsed["until"])
    except (KeyError, TypeError, ValueError):
        return None
