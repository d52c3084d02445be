"""urllib3's connections, with a time for the head of an answer: theirs begins anew with each byte."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Timer

from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

HEAD_SECONDS = 30.0


class _Connection(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """Return the answer once its head is there. Raises TimeoutError if that is not in time."""
        late = Event()
        timer = Timer(HEAD_SECONDS, _end, (self.sock, late))
        timer.daemon = True
        timer.start()
        try:
            response = super().getresponse()
        finally:
            timer.cancel()
        if late.is_set():
            # The end of a connection is taken for that of the head.
            response.close()
            raise TimeoutError("timed out")
        return response


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS = {"http": _Pool, "https": _TlsPool}


def _end(connection: socket.socket | None, late: Event) -> None:
    late.set()
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
