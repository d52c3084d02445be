"""A client that costs as little as Python can: requests made beforehand, one epoll, and replies that are only counted.

The body of a server's reply has the same length each time, so that its head is only searched for its end. A connection
sends its whole request before it reads, as most clients do.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

_ROOM = 1 << 18


class Exchanging(Protocol):
    """A connection on which the same exchange takes place again and again."""

    socket: socket.socket
    begun: float
    events: int
    """What it waits for: those of epoll."""

    def begin(self) -> None:
        """Begin an exchange."""

    def proceed(self, room: bytearray) -> bool:
        """Do what can be done without waiting. Return whether the exchange is complete."""


class Connection:
    """One keep-alive connection on which one request is sent again and again."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = memoryview(request)
        self.body_bytes = 0
        self.expected = 0
        self.begun = 0.0
        self.events = 0
        self.sent = 0
        self.received = 0

    def exchange(self) -> bytes:
        """Send the request, read the reply by its Content-Length, and return its body. Raise unless it is a 200."""
        body = self.try_exchange()
        assert body is not None, "the server refuses the request"
        return body

    def try_exchange(self) -> bytes | None:
        """Like `exchange`, but return None for another status."""
        self.socket.sendall(self.request)
        reply = bytearray()
        while (end := reply.find(b"\r\n\r\n")) < 0:
            reply += self._receive()
        head = bytes(reply[:end]).decode("latin-1").lower()
        length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
        while len(reply) < end + 4 + length:
            reply += self._receive()
        self.body_bytes = length
        return bytes(memoryview(reply)[end + 4 :]) if head.startswith("http/1.1 200") else None

    def _receive(self) -> bytes:
        data = self.socket.recv(_ROOM)
        assert data, "the server has hung up"
        return data

    def whole_reply(self, first: bytearray, count: int) -> int:
        """Return how long the reply is that begins with these bytes. Heads differ: in the times they tell, for one."""
        end = first.find(b"\r\n\r\n", 0, count)
        assert end >= 0, "the head does not come in one piece"
        assert first.startswith(b"HTTP/1.1 200"), bytes(first[:count])
        return end + 4 + self.body_bytes

    def begin(self) -> None:
        """Begin an exchange: see `Exchanging`."""
        self.sent = self.received = 0
        self._send()

    def _send(self) -> None:
        self.sent += send(self.socket, self.request[self.sent :])
        self.events = select.EPOLLIN if self.sent == len(self.request) else select.EPOLLOUT

    def proceed(self, room: bytearray) -> bool:
        """Send, or receive once all is sent: see `Exchanging`."""
        if self.sent < len(self.request):
            self._send()
            return False
        count = self.socket.recv_into(room)
        assert count, "the server has hung up"
        if not self.received:
            self.expected = self.whole_reply(room, count)
        self.received += count
        return self.received >= self.expected

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def send(connected: socket.socket, data: memoryview) -> int:
    """Send what a socket takes without waiting. Return how many bytes that are."""
    try:
        return connected.send(data)
    except BlockingIOError:
        return 0


def latencies(connections: list[Connection], seconds: float, fewest: int) -> tuple[list[float], float]:
    """Keep one request under way on each connection for about `seconds`, and until there are `fewest` replies.

    Return the seconds of each exchange and those of all together. `body_bytes` of each connection has to be known.
    """
    if len(connections) == 1:
        return _alone(connections[0], seconds, fewest)
    return multiplexed(connections, seconds, fewest)


def multiplexed(connections: Sequence[Exchanging], seconds: float, fewest: int) -> tuple[list[float], float]:
    """Measure as `latencies`, on connections of any protocol."""
    taken: list[float] = []
    poll = select.epoll()
    by_number = {connection.socket.fileno(): connection for connection in connections}
    room = bytearray(_ROOM)
    started = perf_counter()
    try:
        for number, connection in by_number.items():
            connection.socket.setblocking(False)
            connection.begun = perf_counter()
            connection.begin()
            poll.register(number, connection.events)
        under_way = len(connections)
        while under_way:
            for number, _ in poll.poll():
                connection = by_number[number]
                events = connection.events
                if connection.proceed(room):
                    now = perf_counter()
                    taken.append(now - connection.begun)
                    if now - started >= seconds and len(taken) >= fewest:
                        poll.unregister(number)
                        under_way -= 1
                        continue
                    connection.begun = now
                    connection.begin()
                if connection.events != events:
                    poll.modify(number, connection.events)
    finally:
        poll.close()
        for connection in connections:
            connection.socket.settimeout(120)
    return taken, perf_counter() - started


def _alone(connection: Connection, seconds: float, fewest: int) -> tuple[list[float], float]:
    taken: list[float] = []
    send, receive = connection.socket.sendall, connection.socket.recv_into
    room, request = bytearray(_ROOM), connection.request
    started = now = perf_counter()
    while now - started < seconds or len(taken) < fewest:
        begun = now
        send(request)
        received, expected = 0, 1
        while received < expected:
            count = receive(room)
            if not received:
                expected = connection.whole_reply(room, count)
            assert count, "the server has hung up"
            received += count
        now = perf_counter()
        taken.append(now - begun)
    return taken, now - started
