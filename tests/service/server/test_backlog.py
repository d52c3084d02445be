"""Bytes that wait for the parser: cut between messages, counted in the memory budget, refused when it is used up."""

from __future__ import annotations

import asyncio

import pytest

from requant.errors import OverloadedError
from requant_service.runtime.memory_budget import MemoryBudget
from requant_service.server.http_exchange import HIGH_WATER_BYTES, PendingRequests


class Transport(asyncio.Transport):
    """Remembers whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def pending(byte_count: int = 1 << 30) -> tuple[PendingRequests, Transport, MemoryBudget]:
    transport, budget = Transport(), MemoryBudget(byte_count, 0, 0.0)
    return PendingRequests(transport, budget), transport, budget


def test_what_waits_is_held_of_the_budget_until_it_is_taken() -> None:
    waiting, transport, budget = pending()
    waiting.add(b"a" * 1000)
    waiting.reserve()
    assert (budget.reserved, transport.reads) == (1000, True)
    waiting.add(b"b" * HIGH_WATER_BYTES)
    waiting.reserve()
    assert (budget.reserved, transport.reads) == (1000 + HIGH_WATER_BYTES, False)
    while waiting:
        waiting.take(0, 1 << 20)
    waiting.reserve()
    waiting.resume_reading()
    assert (budget.reserved, transport.reads) == (0, True)


def test_without_room_in_the_budget_it_is_refused() -> None:
    waiting, _, budget = pending(999)
    waiting.add(b"a" * 1000)
    with pytest.raises(OverloadedError):
        waiting.reserve()
    assert budget.reserved == 0
    waiting.clear()
    assert (len(waiting), budget.reserved) == (0, 0)


def test_reading_stays_paused_while_too_much_waits() -> None:
    waiting, transport, _ = pending()
    waiting.add(b"a" * (HIGH_WATER_BYTES + 1))
    waiting.reserve()
    waiting.resume_reading()
    assert not transport.reads
    waiting.clear()
    assert transport.reads


def test_a_piece_ends_with_the_head_or_the_body() -> None:
    waiting, _, _ = pending()
    waiting.add(b"GET / HTTP/1.1\r\n\r\n0123456789rest")
    assert bytes(waiting.take(0, 1 << 20)) == b"GET / HTTP/1.1\r\n\r\n"
    assert bytes(waiting.take(10, 1 << 20)) == b"0123456789"
    assert bytes(waiting.take(0, 2)) == b"re"
    assert len(waiting) == 2
