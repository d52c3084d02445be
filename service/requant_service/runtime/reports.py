"""What each worker process has to report: its metrics, and the comparisons that it runs.

A report is in memory that all workers can read. A worker writes its own once a second, and when another asks for
it; so a request for metrics is answered by whichever worker it reaches, with what all of them have counted, and what a
worker had counted outlives it. Two halves are written in turn: a reader never sees one that is being written, unless it
takes longer than a worker takes for two reports, which the length and the checksum reveal.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from requant_service.runtime.shared_numbers import Shared, SharedNumbers

_log = logging.getLogger(__name__)

REPORT_BYTES = 16 << 20
"""The most that a report may have. What no report needs takes no memory."""
_HEAD = 8
_WAIT_SECONDS = 0.25
_STEP_SECONDS = 0.001
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker reports."""

    metrics: Mapping[str, Any]
    comparisons: Sequence[Any]


class Reports:
    """The reports of the workers whose `numbers` these are. `made`: returns that of this one."""

    def __init__(self, numbers: SharedNumbers) -> None:
        self._numbers = numbers
        self.made: Callable[[], Report] | None = None
        # Anonymous memory is given out page by page as it is written.
        self._memory = [mmap.mmap(-1, 2 * REPORT_BYTES) for _ in range(numbers.workers)] if numbers.are_shared else []
        self._asked = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in self._memory]

    def start(self) -> None:
        """Answer other workers. Called on the event loop of a worker."""
        if self._asked:
            asyncio.get_running_loop().add_reader(self._asked[self._numbers.index], self._answer)

    def stop(self) -> None:
        """Answer no more, after a last report."""
        if self._asked:
            asyncio.get_running_loop().remove_reader(self._asked[self._numbers.index])
            self.publish()

    def _answer(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._asked[self._numbers.index])
        self.publish()

    def publish(self) -> None:
        """Write the report of this worker."""
        if not self._memory or self.made is None:
            return
        report = pickle.dumps(self.made())
        if len(report) > REPORT_BYTES - _HEAD:
            _log.error("A report of %d bytes is not published; at most %d are.", len(report), REPORT_BYTES - _HEAD)
            return
        count = self._numbers.own(Shared.REPORTS) + 1
        begin = count % 2 * REPORT_BYTES
        memory = self._memory[self._numbers.index]
        memory[begin + _HEAD : begin + _HEAD + len(report)] = report
        memory[begin : begin + _HEAD] = len(report).to_bytes(4, "little") + zlib.crc32(report).to_bytes(4, "little")
        self._numbers.put(Shared.REPORTS, count)

    def last(self) -> Report | None:
        """Return the last report of this worker: that of the one in whose place it was started."""
        return self._read(self._numbers.index) if self._memory else None

    def _read(self, worker: int) -> Report | None:
        memory = self._memory[worker]
        for _ in range(_TRIES):
            begin = self._numbers.of(worker, Shared.REPORTS) % 2 * REPORT_BYTES
            length = int.from_bytes(memory[begin : begin + 4], "little")
            report = memory[begin + _HEAD : begin + _HEAD + length]
            if length and zlib.crc32(report) == int.from_bytes(memory[begin + 4 : begin + _HEAD], "little"):
                made: Report = pickle.loads(report)  # by a process of this service
                return made
        return None

    async def of_others(self) -> list[Report]:
        """Return the reports of the other workers as they are now. Of one that does not answer soon, its last."""
        others = [worker for worker in range(len(self._memory)) if worker != self._numbers.index]
        before = {worker: self._numbers.of(worker, Shared.REPORTS) for worker in others}
        for worker in others:
            os.eventfd_write(self._asked[worker], 1)
        end = perf_counter() + _WAIT_SECONDS
        while perf_counter() < end and any(
            self._numbers.of(worker, Shared.STATUS) and self._numbers.of(worker, Shared.REPORTS) == count
            for worker, count in before.items()
        ):
            await asyncio.sleep(_STEP_SECONDS)
        return [report for report in map(self._read, others) if report is not None]
