"""`requant serve`: read the settings and serve until a signal ends it.

Most of the time until the service is ready goes to importing packages and to loading kernels. The latter is begun as
soon as the settings are known to be right, in a thread: much of it is the linker's work, which needs no GIL and goes on
beside the imports. If kernels have to be compiled, that begins at once, in processes of their own. All that is made by
then stays for good, so the garbage collector, which would go through it many times, begins when the service takes work
(`Runtime.warm_up`).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from requant_service.runtime.cgroup import available_cpus
from requant_service.runtime.process_exit import PREPARING_THREAD, Deadline, end_process, kernels_are_being_prepared

if TYPE_CHECKING:
    import socket

    import uvicorn

    from requant_service.app import Application
    from requant_service.runtime.runtime import Runtime
    from requant_service.server.servers import MonitoringServer
    from requant_service.server.worker_channel import WorkerChannel

Server = TypeVar("Server")

# How long connections without a request stay open after the drain.
_LAST_SECONDS = 1.0
_STOPPING = (signal.SIGINT, signal.SIGTERM)
# As every command ends whose arguments are wrong.
_WRONG_SETTINGS = 2
# As uvicorn's own command ends when it cannot listen.
_NOT_STARTED = 3


def _load_kernels() -> None:
    """Begin what `Runtime.warm_up` waits for, and reports if it fails."""
    from requant.kernels.jit.warmup import start_compilation

    with suppress(Exception):
        start_compilation(available_cpus())


def _load_cached_kernels() -> None:
    """Load what workers share. What is missing one of them compiles."""
    from requant.kernels.jit.warmup import load_kernels

    with suppress(Exception):
        load_kernels().share()


def main(arguments: Sequence[str] | None = None, program: str = "requant serve") -> None:
    """Serve, with one process or, by the setting `workers`, with several.

    `arguments`: settings as flags, by default those of the process. `program`: what messages call this command.
    """
    for each in _STOPPING:
        # Until there is something to end in good order.
        signal.signal(each, lambda *_: end_process(0))
    try:
        _serve(sys.argv[1:] if arguments is None else arguments, program)
    except SystemExit as error:
        if not kernels_are_being_prepared():
            raise
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
        end_process(error.code if isinstance(error.code, int) else int(error.code is not None))
    if kernels_are_being_prepared():
        end_process(0)


def _refuse(reason: object) -> NoReturn:
    """End the process for wrong settings."""
    sys.stderr.write(f"{reason}\n")
    sys.exit(_WRONG_SETTINGS)


def _serve(arguments: Sequence[str], program: str) -> None:
    gc.disable()
    from requant.kernels.jit.cache_directory import CacheDirectoryError
    from requant.kernels.jit.environment import read_environment
    from requant_service.runtime.logs import set_up_logs
    from requant_service.runtime.settings import SettingError, given_name, read_settings

    try:
        settings = read_settings(arguments, os.environ, program)
    except ValueError as error:
        _refuse(error)
    set_up_logs(settings.log_level, settings.log_format)
    try:
        read_environment()
    except CacheDirectoryError as error:
        sys.exit(str(error))
    workers = settings.workers
    if workers > 1 and sys.platform != "linux":
        logging.getLogger("uvicorn.error").warning("Worker processes need Linux: there is one.")
        workers = 1
    # Imports numba, which reads its environment once.
    kernels = threading.Thread(
        target=_load_kernels if workers == 1 else _load_cached_kernels, name=PREPARING_THREAD, daemon=True
    )
    kernels.start()

    from requant_service.app import create_app
    from requant_service.runtime.shared_numbers import SharedNumbers
    from requant_service.server.malloc import keep_memory

    keep_memory()
    try:
        app = create_app(settings, SharedNumbers(workers))
    except SettingError as error:
        _refuse(f"{given_name(error.setting, arguments)}: {error}")
    if workers == 1:
        _serve_alone(app)
    else:
        # No thread may be there when workers are forked.
        kernels.join()
        _supervise(app)


def _server(app: Application, make: Callable[[uvicorn.Config, Runtime, MonitoringServer | None], Server]) -> Server:
    """Return the server of the application, with that of the metrics port if there is one."""
    import uvicorn

    from requant_service.app import MonitoringApplication
    from requant_service.server.http1_protocol import http_protocol
    from requant_service.server.servers import MonitoringServer
    from requant_service.server.timeouts import RequestLimits

    running = app.state.runtime
    settings, certificate = running.settings, running.certificate
    limits = RequestLimits(
        settings.max_head_bytes, settings.max_header_fields, settings.head_seconds, settings.body_seconds
    )
    options: dict[str, Any] = {
        "loop": "uvloop",
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        # Client addresses are not used.
        "proxy_headers": False,
        "timeout_keep_alive": settings.keep_alive_seconds,
    }
    monitoring = None
    if settings.metrics_port is not None:
        monitoring = MonitoringServer(MonitoringApplication(running), running, settings.metrics_port, **options)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        uds=None if settings.uds is None else os.fspath(settings.uds),
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
        http=http_protocol(limits, min(settings.drain_seconds, _LAST_SECONDS), running.memory_budget),
        timeout_graceful_shutdown=settings.shutdown_seconds,
        **options,
    )
    return make(config, running, monitoring)


def _serve_alone(app: Application) -> None:
    """Serve with this process."""
    from requant_service.server.servers import DrainingServer

    server = _server(app, partial(DrainingServer, end_within=Deadline().end_within))
    for each in _STOPPING:
        # uvicorn raises the signal that ended it again: a stop that was asked for is no failure.
        signal.signal(each, lambda *_: sys.exit(0))
    server.run()
    if not server.started:
        sys.exit(_NOT_STARTED)


def _supervise(app: Application) -> None:
    """Serve with worker processes."""
    from requant_service.runtime.listening import CannotListenError
    from requant_service.runtime.logs import JsonLines
    from requant_service.runtime.shared_memory.registry import RegistryClient
    from requant_service.server.supervisor import Supervisor, bound_ports
    from requant_service.server.worker import WorkerServer

    running = app.state.runtime
    server = _server(app, WorkerServer)
    try:
        ports = bound_ports(server)
    except CannotListenError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_NOT_STARTED)

    def work(channel: WorkerChannel, questions: socket.socket) -> None:
        JsonLines.worker = running.numbers.index
        if running.shared_memory is not None:
            running.shared_memory.registry = RegistryClient(questions, running.numbers)
        server.take_from(channel)
        server.run()
        if not server.started:
            sys.exit(_NOT_STARTED)

    code = Supervisor(running, ports, work).run()
    server.unlink()
    end_process(code)


if __name__ == "__main__":
    main()
