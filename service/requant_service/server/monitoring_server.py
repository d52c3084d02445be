"""The server of the metrics port, beside the main one on the same event loop.

It serves while the main one does, drains, and waits for its last requests, so that probes and scrapes see all of it.
"""

from __future__ import annotations

from typing import Any

import uvicorn
from starlette.types import ASGIApp

from requant_service.server.http1_protocol import http_protocol
from requant_service.server.listening_server import ListeningServer
from requant_service.server.read_timeouts import RequestLimits

# Probes and scrapers send nothing large, and nothing slowly.
_LIMITS = RequestLimits(head_bytes=8 << 10, header_fields=50, head_seconds=5.0, body_seconds=5.0)
# How long a scrape that has begun may take when all else has ended.
_LAST_SECONDS = 1


class MonitoringServer(ListeningServer):
    """A server without a lifespan of its own. `options`: those of `uvicorn.Config` that it shares with the main one."""

    def __init__(self, app: ASGIApp, host: str, port: int, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=http_protocol(_LIMITS),
                lifespan="off",
                timeout_graceful_shutdown=_LAST_SECONDS,
                **options,
            ),
            port_setting="metrics_port",
        )
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
