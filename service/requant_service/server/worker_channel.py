"""What the supervisor tells a worker: here is a connection; drain. The end of the channel says: stop.

A message is one record of a socket pair (SOCK_SEQPACKET): a byte, and with a connection its descriptor (SCM_RIGHTS).
They are received in the order in which they were sent, so what was handed over before the end is served.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum

from requant_service.runtime.listening import Port

# Beyond the numbers of ports.
_FIRST = 64


class Command(IntEnum):
    """What a worker is told."""

    DRAIN = _FIRST


class WorkerChannel:
    """One end of the channel between the supervisor and a worker."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.setblocking(False)

    @classmethod
    def pair(cls) -> tuple[WorkerChannel, WorkerChannel]:
        """Return both ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """Return the descriptor, for an event loop."""
        return self._end.fileno()

    def hand_over(self, connection: socket.socket, port: Port) -> bool:
        """Send a connection that was accepted on a port. Return whether the worker can take it."""
        try:
            socket.send_fds(self._end, [bytes((port,))], [connection.fileno()])
        except OSError:
            return False
        return True

    def tell(self, command: Command) -> None:
        """Send a command. A worker that takes nothing does not get it."""
        with suppress(OSError):
            self._end.send(bytes((command,)))

    def receive(self, serve: Callable[[socket.socket, Port], None], obey: Callable[[Command], None]) -> bool:
        """Receive what is there. Return False when the channel has ended."""
        with suppress(BlockingIOError):
            while True:
                message, descriptors, _, _ = socket.recv_fds(self._end, 1, 1)
                if not message:
                    return False
                if not descriptors:
                    obey(Command(message[0]))
                for descriptor in descriptors:
                    serve(socket.socket(fileno=descriptor), Port(message[0]))
        return True

    def end(self) -> None:
        """Send nothing more."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self._end.close()
