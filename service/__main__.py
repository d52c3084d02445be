"""`python -m service`: read the settings and serve until a signal ends it.

Most of the time until the service is ready goes to importing packages and to loading kernels. The latter is begun
first, in a thread: much of it is the linker's work, which needs no GIL and goes on beside the imports. All that is made
by then stays for good, so the garbage collector, which would go through it many times, begins when the service is ready
(`Runtime.warm_up`).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

# How long connections without a request stay open after the drain.
_LAST_SECONDS = 1.0
# As uvicorn's own command ends when it cannot listen.
_NOT_STARTED = 3


def _load_kernels() -> None:
    """Begin what `Runtime.warm_up` waits for, and reports if it fails."""
    from core.warmup import compile_kernels

    with suppress(Exception):
        compile_kernels()


def main() -> None:
    """Serve. One process: more CPUs are threads here, more machines are replicas."""
    gc.disable()
    # uvicorn raises the signal that ended it again: a stop that was asked for is no failure.
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, lambda *_: sys.exit(0))
    from core.kernels.baked import use_baked

    if baked := os.environ.get("REQUANT_BAKED_KERNELS"):
        use_baked(Path(baked), Path(os.environ.get("NUMBA_CACHE_DIR", "/tmp/requant-kernels")))
    # Imports numba, which reads its environment once.
    threading.Thread(target=_load_kernels, name="kernels", daemon=True).start()

    import uvicorn
    from pydantic import ValidationError
    from pydantic_settings import CliApp

    from service.allocator import keep_memory
    from service.app import create_app
    from service.arrival import ArrivalLimits
    from service.http_protocol import http_protocol
    from service.logs import set_up_logs
    from service.server import DrainingServer
    from service.settings import Settings

    try:
        settings = CliApp.run(Settings)
    except ValidationError as error:
        sys.exit("\n".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()))
    limits = ArrivalLimits(
        settings.max_head_bytes, settings.max_header_fields, settings.head_seconds, settings.body_seconds
    )
    set_up_logs(settings.log_level, settings.log_format)
    keep_memory()
    try:
        app = create_app(settings)
    except (OSError, ValueError) as error:
        sys.exit(f"tokens_file: {error}")
    server = DrainingServer(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=http_protocol(limits, min(settings.drain_seconds, _LAST_SECONDS), app.state.runtime.admission),
            loop="uvloop",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            # Nobody asks where a request comes from.
            proxy_headers=False,
            timeout_keep_alive=settings.keep_alive_seconds,
            timeout_graceful_shutdown=settings.shutdown_seconds,
        ),
        app.state.runtime,
    )
    server.run()
    if not server.started:
        sys.exit(_NOT_STARTED)


if __name__ == "__main__":
    main()
