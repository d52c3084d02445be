"""uvicorn's server, which does not stop at once when it is told to.

A balancer learns from the probes that this replica is not ready any more, and that takes it some seconds. Until then it
sends requests, which are answered like all others, each the last of its connection. Then nothing more is accepted, what
is under way ends, and the process with it. An interrupt (Ctrl-C), or a second SIGTERM, stops without that pause.
"""

from __future__ import annotations

import logging
import signal
from time import monotonic
from types import FrameType

import uvicorn

from service.lifespan import Runtime

_log = logging.getLogger("uvicorn.error")


class DrainingServer(uvicorn.Server):
    """A server that drains before it stops."""

    def __init__(self, config: uvicorn.Config, running: Runtime) -> None:
        super().__init__(config)
        self._running = running
        self._stops_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal: drain first, the first time."""
        pause = self._running.settings.drain_seconds
        if sig == signal.SIGTERM and self._stops_at is None and pause and self.started:
            self._running.drain()
            self._stops_at = monotonic() + pause
            _log.info("Draining: requests are still taken for %g seconds.", pause)
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """See, ten times a second, whether the time has come."""
        if self._stops_at is not None and monotonic() >= self._stops_at:
            self.should_exit = True
        return await super().on_tick(counter)
