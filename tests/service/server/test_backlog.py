"""Bytes that wait for the parser: cut between messages, held of the memory budget, and refused when there is none."""

from __future__ import annotations

import asyncio

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from core.errors import OverloadedError
from service.runtime.memory_budget import Admission
from service.server.backlog import Backlog


class Transport(asyncio.Transport):
    """Remembers whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def backlog(budget: int = 1 << 30) -> tuple[Backlog, Transport, Admission]:
    transport, admission = Transport(), Admission(budget, 0, 0.0)
    return Backlog(transport, admission), transport, admission


def test_what_waits_is_held_of_the_budget_until_it_is_taken() -> None:
    waiting, transport, admission = backlog()
    waiting.add(b"a" * 1000)
    waiting.settle()
    assert (admission.reserved, transport.reads) == (1000, True)
    waiting.add(b"b" * HIGH_WATER_LIMIT)
    waiting.settle()
    assert (admission.reserved, transport.reads) == (1000 + HIGH_WATER_LIMIT, False)
    while waiting:
        waiting.take(0, 1 << 20)
    waiting.settle()
    waiting.resume_reading()
    assert (admission.reserved, transport.reads) == (0, True)


def test_without_room_in_the_budget_it_is_refused() -> None:
    waiting, _, admission = backlog(budget=999)
    waiting.add(b"a" * 1000)
    with pytest.raises(OverloadedError):
        waiting.settle()
    assert admission.reserved == 0
    waiting.drop()
    assert (len(waiting), admission.reserved) == (0, 0)


def test_reading_stays_paused_while_too_much_waits() -> None:
    waiting, transport, _ = backlog()
    waiting.add(b"a" * (HIGH_WATER_LIMIT + 1))
    waiting.settle()
    waiting.resume_reading()
    assert not transport.reads
    waiting.drop()
    assert transport.reads


def test_a_piece_ends_with_the_head_or_the_body() -> None:
    waiting, _, _ = backlog()
    waiting.add(b"GET / HTTP/1.1\r\n\r\n0123456789rest")
    assert bytes(waiting.take(0, 1 << 20)) == b"GET / HTTP/1.1\r\n\r\n"
    assert bytes(waiting.take(10, 1 << 20)) == b"0123456789"
    assert bytes(waiting.take(0, 2)) == b"re"
    assert len(waiting) == 2
