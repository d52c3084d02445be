"""The supervisor of a service with several worker processes: it accepts connections, and hands each to a worker.

It imports all that the workers need, loads and checks the kernels, binds the sockets and forks the workers, which share
its memory: a further one takes some 16 MiB. Then it does nothing but wait. A new connection goes to the worker that has
the fewest, which no way of the system's does: workers that listen on one socket take whatever one of them sees first,
and with a socket for each (SO_REUSEPORT) a hash decides.

If kernels have to be compiled, one worker is forked before that. It compiles them and serves meanwhile, as a service of
one process does; when it is ready, the supervisor loads them, between connections, and forks the others.

A worker that ends is replaced. The system ends all workers when the supervisor ends, however that comes about.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import logging
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import NoReturn

from requant.errors import SelfTestError
from requant.self_test.self_test import CacheDirectoryError, loading_kernels
from requant_service.oip.grpc.server import bind_grpc, log_grpc
from requant_service.runtime.listening import BACKLOG, Port
from requant_service.runtime.runtime import HealthStatus, Runtime, status_number
from requant_service.runtime.shared_memory.registry import RegionRegistry
from requant_service.runtime.shared_numbers import Shared
from requant_service.server.worker import WorkerServer
from requant_service.server.worker_channel import Command, WorkerChannel

_log = logging.getLogger("uvicorn.error")

_PR_SET_PDEATHSIG = 1
# How often it looks at what no event tells: the time, and the state of the workers.
_TICK_SECONDS = 0.1
# Connections that are accepted before other events get a turn.
_ACCEPTED_AT_ONCE = 64
# How long it accepts nothing when the process or the machine has no descriptors left.
_PAUSE_SECONDS = 1.0
# A worker that ends is replaced at once, and later and later if that happens often.
_DELAYS = (0.0, 0.1, 0.2, 0.5, 1.0)
_CALM_SECONDS = 10.0
# So many workers in a row, in one place, that end before they are ready end the service.
_MAX_FAILED_STARTS = 5
# For the rest of the shutdown, after requests have used all of their time.
_LAST_SECONDS = 3.0


@dataclass
class _Worker:
    """One place for a worker: the process in it, if there is one, and what connects it."""

    index: int
    process: int = 0
    channel: WorkerChannel | None = None
    questions: socket.socket | None = None
    given: int = 0
    was_ready: bool = False
    failed_starts: int = 0
    starts_at: float = 0.0
    ends: list[float] = field(default_factory=list)


class Supervisor:
    """Runs `work` in several processes, with connections from `ports`, until the service has to end.

    `work(channel, questions)`: the life of a worker; it does not return before the worker's end.
    """

    def __init__(
        self,
        running: Runtime,
        ports: Mapping[Port, Sequence[socket.socket]],
        work: Callable[[WorkerChannel, socket.socket], None],
    ) -> None:
        self._running = running
        self._settings = running.settings
        self._rereads = running.rereads()
        self._numbers = numbers = running.numbers
        self._ports = ports
        self._work = work
        self._loads_kernels = False
        self._workers = [_Worker(index) for index in range(numbers.workers)]
        self._registry = RegionRegistry(numbers)
        self._selector = selectors.DefaultSelector()
        self._signals, self._wake_up = socket.socketpair()
        self._accepting = False
        self._accepts_at = 0.0
        self._drains_until: float | None = None
        self._ends_at: float | None = None
        self._code = 0

    def run(self) -> int:
        """Serve until a signal ends it. Return the exit code."""
        self._signals.setblocking(False)
        self._wake_up.setblocking(False)
        signal.set_wakeup_fd(self._wake_up.fileno())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._selector.register(self._signals, selectors.EVENT_READ, self._take_signals)
        for listening in self._sockets():
            listening.setblocking(False)
            listening.listen(BACKLOG)
        for _ in self._load():
            pass
        self._loads_kernels = not self._running.kernels
        gc.freeze()
        self._start(self._workers[0])
        if not self._loads_kernels:
            self._start_missing()
        while any(worker.process for worker in self._workers) or self._ends_at is None:
            self._wait(_TICK_SECONDS)
            self._tick()
        return self._code

    def _sockets(self) -> list[socket.socket]:
        return [each for sockets in self._ports.values() for each in sockets]

    # --- Events

    def _wait(self, seconds: float) -> None:
        """Handle what has happened, or wait for it."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def _tick(self) -> None:
        now = monotonic()
        self._note_ready()
        if self._ends_at is not None:
            if now >= self._ends_at:
                self._kill_all()
            return
        if self._drains_until is not None and now >= self._drains_until:
            self._close()
            return
        if self._loads_kernels and self._workers[0].was_ready:
            # Connections do not wait for longer than a step of it.
            for _ in self._load():
                self._wait(0.0)
            self._loads_kernels = False
            gc.freeze()
        if self._loads_kernels:
            if not self._workers[0].process and now >= self._workers[0].starts_at:
                self._start(self._workers[0])
        else:
            self._start_missing()
        self._listen(any(worker.process for worker in self._workers) and now >= self._accepts_at)

    def _note_ready(self) -> None:
        for worker in self._workers:
            if worker.process and not worker.was_ready:
                worker.was_ready = self._numbers.of(worker.index, Shared.STATUS) == status_number(HealthStatus.READY)
                if worker.was_ready:
                    worker.failed_starts = 0

    def _load(self) -> Iterator[None]:
        """Load the kernels that are in the cache, and check all if they are complete. If not, workers do it."""
        try:
            for kernels in loading_kernels():
                self._running.kernels = kernels
                yield
        except (SelfTestError, CacheDirectoryError) as error:
            _log.warning("The supervisor has no kernels, so each worker loads its own: %s.", error)

    def _take_signals(self) -> None:
        with suppress(BlockingIOError):
            for number in self._signals.recv(256):
                self._take_signal(number)

    def _take_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._reap()
        elif number == signal.SIGHUP:
            self._reread()
        elif number == signal.SIGTERM and self._drains_until is None and self._may_drain():
            self._drains_until = monotonic() + self._settings.drain_seconds
            self._tell(Command.DRAIN)
            _log.info("Draining: requests are served for another %g seconds.", self._settings.drain_seconds)
        elif number in (signal.SIGTERM, signal.SIGINT):
            if self._ends_at is None:
                self._close()
            elif number == signal.SIGINT:
                self._kill_all()

    def _reread(self) -> None:
        """Read the files of settings again, here for the workers that are forked later."""
        if not self._rereads:
            self._close()  # as the system's default
        for each in self._rereads:
            each()
        for worker in self._workers:
            if self._rereads and worker.process:
                os.kill(worker.process, signal.SIGHUP)

    def _may_drain(self) -> bool:
        return bool(self._settings.drain_seconds) and all(worker.was_ready for worker in self._workers)

    def _tell(self, command: Command) -> None:
        for worker in self._workers:
            if worker.channel is not None:
                worker.channel.tell(command)

    # --- Connections

    def _listen(self, wanted: bool) -> None:
        """Accept connections, or leave them to wait in the system."""
        if wanted is self._accepting:
            return
        self._accepting = wanted
        for port, sockets in self._ports.items():
            for each in sockets:
                if wanted:
                    self._selector.register(each, selectors.EVENT_READ, lambda e=each, p=port: self._accept(e, p))
                else:
                    self._selector.unregister(each)

    def _accept(self, listening: socket.socket, port: Port) -> bool:
        """Accept connections and hand them over. Return whether there may be more."""
        if listening.fileno() < 0 or not any(worker.channel for worker in self._workers):
            return False  # it was closed, or all workers have ended, while other events were handled
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except ConnectionError:
                continue  # the client has left before
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                _log.error("No connection can be accepted: %s.", error.strerror)
                self._accepts_at = monotonic() + _PAUSE_SECONDS
                self._listen(wanted=False)
                return False
            with connection:
                self._hand_over(connection, port)
        return True

    def _hand_over(self, connection: socket.socket, port: Port) -> None:
        """Give a connection to the worker that has the fewest; to the next if that one takes nothing."""
        present = [worker for worker in self._workers if worker.channel is not None]
        for worker in sorted(present, key=self._load_of):
            assert worker.channel is not None
            if worker.channel.hand_over(connection, port):
                worker.given += 1
                return
        # All are stuck or have just ended: the client sees a closed connection.

    def _load_of(self, worker: _Worker) -> tuple[int, int]:
        """Return how many connections a worker has, those counted that it has not received yet."""
        return worker.given - self._numbers.of(worker.index, Shared.CLOSED_CONNECTIONS), worker.given

    # --- Workers

    def _start_missing(self) -> None:
        now = monotonic()
        for worker in self._workers:
            if not worker.process and now >= worker.starts_at:
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        """Fork a worker."""
        channel, far_channel = WorkerChannel.pair()
        questions, far_questions = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        supervisor = os.getpid()
        try:
            process = os.fork()
        except OSError as error:
            _log.error("A worker cannot be started: %s.", error.strerror)
            for each in (channel, far_channel, questions, far_questions):
                each.close()
            worker.starts_at = monotonic() + _PAUSE_SECONDS
            return
        if process == 0:
            channel.close()
            questions.close()
            self._become_worker(worker.index, supervisor, far_channel, far_questions)
        far_channel.close()
        far_questions.close()
        worker.process, worker.channel, worker.questions = process, channel, questions
        worker.given, worker.was_ready = 0, False
        self._selector.register(questions, selectors.EVENT_READ, lambda: self._answer(worker, questions))

    def _become_worker(self, index: int, supervisor: int, channel: WorkerChannel, questions: socket.socket) -> NoReturn:
        """Live as a worker and end the process."""
        _end_with(supervisor)
        signal.set_wakeup_fd(-1)
        # A terminal sends its signals to all; what is to be done about them, the supervisor says.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        # Held here, they would hide the end of the supervisor and of its neighbours.
        for each in self._workers:
            if each.channel is not None and each.questions is not None:
                each.channel.close()
                each.questions.close()
        for end in (self._signals, self._wake_up, *self._sockets()):
            end.close()
        self._numbers.index = index
        try:
            self._work(channel, questions)
        except Exception:
            _log.exception("Worker %d failed.", index)
            sys.exit(1)
        sys.exit(0)

    def _answer(self, worker: _Worker, questions: socket.socket) -> None:
        """Answer a question about regions of shared memory."""
        if worker.questions is not questions:
            return  # it has ended while other events were handled
        try:
            present = self._registry.answer(questions)
        except OSError:
            present = False
        if not present:
            self._selector.unregister(questions)

    def _reap(self) -> None:
        """Take note of workers that have ended."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            for worker in self._workers:
                if worker.process == process:
                    self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, code: int) -> None:
        """Clear the place of a worker, and say when another may take it."""
        assert worker.channel is not None
        assert worker.questions is not None
        with suppress(KeyError):
            self._selector.unregister(worker.questions)
        worker.channel.close()
        worker.questions.close()
        worker.process, worker.channel, worker.questions = 0, None, None
        self._numbers.clear(worker.index)
        if self._ends_at is not None:
            return
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        now = monotonic()
        worker.ends = [*(each for each in worker.ends if now - each < _CALM_SECONDS), now]
        worker.starts_at = now + _DELAYS[min(len(worker.ends), len(_DELAYS)) - 1]
        self._numbers.add_to_service(Shared.RESTARTS, 1)
        if not worker.was_ready:
            worker.failed_starts += 1
        if worker.failed_starts >= _MAX_FAILED_STARTS:
            _log.error("%d workers ended before they were ready, the last with %s.", worker.failed_starts, reason)
            self._code = 1
            self._close()
        else:
            _log.error("Worker %d ended with %s and is replaced. Its connections are lost.", worker.index, reason)

    # --- The end

    def _close(self) -> None:
        """Accept nothing more but what the system has accepted already, and let the workers end."""
        if self._ends_at is not None:
            return
        self._ends_at = monotonic() + self._settings.shutdown_seconds + _LAST_SECONDS
        self._listen(wanted=False)
        for port, sockets in self._ports.items():
            for each in sockets:
                if self._code == 0:
                    while self._accept(each, port):
                        pass
                each.close()
        for worker in self._workers:
            if worker.channel is not None:
                worker.channel.end()

    def _kill_all(self) -> None:
        """End the workers that have not ended in time."""
        for worker in self._workers:
            if worker.process:
                os.kill(worker.process, signal.SIGKILL)


def _end_with(supervisor: int) -> None:
    """Let the system kill this process when the supervisor ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != supervisor:
        os._exit(1)


def bound_ports(server: WorkerServer) -> dict[Port, list[socket.socket]]:
    """Return the sockets of all ports that the settings name. Raise CannotListenError."""
    settings = server.running.settings
    ports = {}
    if server.monitoring is not None:
        ports[Port.MONITORING] = server.monitoring.bind()
        _log.info("Listening on %s", server.monitoring.address)
    ports[Port.HTTP] = server.bind()
    _log.info("Listening on %s", server.address)
    if settings.grpc_port is not None:
        ports[Port.GRPC] = bind_grpc(settings)
        log_grpc(settings)
    return ports
