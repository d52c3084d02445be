"""`python -m service`: read the settings and serve until a signal ends it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import uvicorn
from pydantic import ValidationError
from pydantic_settings import CliApp

from core.kernels.baked import use_baked
from service.arrival import ArrivalLimits
from service.http_protocol import http_protocol
from service.settings import Settings


def main() -> None:
    """Serve. One process: more CPUs are threads here, more machines are replicas."""
    # uvicorn raises the signal that ended it again: a stop that was asked for is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if baked := os.environ.get("REQUANT_BAKED_KERNELS"):
        use_baked(Path(baked), Path(os.environ.get("NUMBA_CACHE_DIR", "/tmp/requant-kernels")))
    # Imports numba, which reads its environment once.
    from service.app import create_app

    try:
        settings = CliApp.run(Settings)
    except ValidationError as error:
        sys.exit("\n".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()))
    limits = ArrivalLimits(
        settings.max_head_bytes, settings.max_header_fields, settings.head_seconds, settings.body_seconds
    )
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        http=http_protocol(limits),
        loop="uvloop",
        ws="none",
        log_level=settings.log_level,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )


if __name__ == "__main__":
    main()
