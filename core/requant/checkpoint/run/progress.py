"""How far a run is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run: done, and in total. Outputs that an earlier run finished are not counted.

    Bytes read are those of the tensors, those of a first pass over a tensor that needs one included.
    """

    bytes_read: int = 0
    bytes_to_read: int = 0
    bytes_written: int = 0
    bytes_to_write: int = 0
    outputs_finished: int = 0
    outputs: int = 0


ProgressCallback = Callable[[Progress], None]


class ProgressCounter:
    """Counts for all threads, and calls `callback` with the sum, one call at a time."""

    def __init__(self, callback: ProgressCallback | None, total: Progress) -> None:
        self._callback = callback
        self._lock = Lock()
        self.state = total

    def add(self, *, read: int = 0, written: int = 0, finished: int = 0) -> None:
        """Count bytes and outputs."""
        with self._lock:
            now = self.state
            self.state = replace(
                now,
                bytes_read=now.bytes_read + read,
                bytes_written=now.bytes_written + written,
                outputs_finished=now.outputs_finished + finished,
            )
            if self._callback is not None:
                self._callback(self.state)
