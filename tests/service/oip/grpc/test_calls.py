"""What all calls have in common, without a connection."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from service.oip.grpc.calls import Calls
from service.runtime.request_context import RequestContext
from service.runtime.runtime import Runtime
from service.runtime.settings import Settings


class RefusedError(Exception):
    """What a call ends with."""


class Context:
    """What grpcio hands to a handler."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def add_done_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    async def abort(self, code: grpc.StatusCode, detail: str, _: object) -> None:
        raise RefusedError(code, detail)


async def echo(message: bytes, _: RequestContext) -> bytes:
    return message


def call(running: Runtime, message: bytes) -> Context:
    """Call a handler as grpcio does after it has received a message."""
    context = Context()
    handler = Calls(running, (), 1.0).unary("/route", echo)(())
    assert asyncio.run(handler.unary_unary(message, context)) == message
    return context


def held(running: Runtime) -> tuple[int, int]:
    return running.metrics.in_flight, running.memory_budget.reserved


def test_a_small_reply_holds_no_memory_when_it_is_sent() -> None:
    running = Runtime(Settings())
    assert call(running, bytes(64 << 10)).callbacks == []
    assert held(running) == (0, 0)


def test_a_large_reply_holds_memory_until_it_is_sent() -> None:
    running = Runtime(Settings())
    context = call(running, bytes((64 << 10) + 1))
    assert held(running) == (1, (64 << 10) + 1)
    for each in context.callbacks:
        each(context)
    assert held(running) == (0, 0)


def test_too_many_calls_are_refused() -> None:
    running = Runtime(Settings())
    running.metrics.in_flight = 1024
    with pytest.raises(RefusedError, match="more than 1024 requests are being served"):
        call(running, b"")
    assert held(running) == (1024, 0)
