"""The shorter way for usual replies writes what uvicorn's own does, and ends as that ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.cycle import Cycle

Message = Any


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True


def reply(kind: type[RequestResponseCycle], messages: list[Message], **options: Any) -> list[object]:
    """Return what a cycle makes of the messages: bytes, what became of it, and the class of an error."""

    async def run() -> list[object]:
        wire, ended = Wire(), []
        cycle = kind(
            scope={"type": "http", "method": options.get("method", "POST")},  # type: ignore[typeddict-item]
            transport=wire,
            flow=FlowControl(wire),
            logger=logging.getLogger("test"),
            access_logger=logging.getLogger("test"),
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=options.get("keep_alive", True),
            on_response=lambda: ended.append(True),
        )
        cycle.disconnected = options.get("disconnected", False)
        failed = None
        try:
            for message in messages:
                await cycle.send(message)
        except RuntimeError as error:
            failed = str(error)
        return [wire.written, wire.closed, ended, failed, cycle.response_complete, cycle.message_event.is_set()]

    return asyncio.run(run())


def head(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


FIVE = (b"content-length", b"5")
MESSAGES: dict[str, list[Message]] = {
    "whole": [head(FIVE, (b"x-name", b"a value\t\xe9")), body(b"12345")],
    "in pieces": [head(FIVE), body(b"12", more=True), body(b"345", more=True), body(b"")],
    "empty": [head((b"content-length", b"0"), status=204), body(b"")],
    "too long": [head(FIVE), body(b"123456")],
    "too short": [head(FIVE), body(b"1234")],
    "after the end": [head(FIVE), body(b"12345"), body(b"")],
    "without a length": [head(), body(b"12", more=True), body(b"3")],
    "chunked": [head((b"transfer-encoding", b"chunked")), body(b"12")],
    "the last one": [head(FIVE, (b"connection", b"close")), body(b"12345")],
    "no head": [body(b"12345")],
    "two heads": [head(FIVE), head(FIVE)],
    "a line break": [head(FIVE, (b"x-name", b"a\r\nset-cookie: b"))],
    "half a line break": [head(FIVE, (b"x-name", b"a\nb"))],
    "the other half": [head(FIVE, (b"x-name", b"a\rb"))],
    "a control character": [head(FIVE, (b"x-name", b"a\x00b"))],
}


@pytest.mark.parametrize(
    "options", [{}, {"method": "HEAD"}, {"keep_alive": False}, {"disconnected": True}], ids=lambda each: str(each)
)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_reply_is_the_same_as_by_uvicorn(name: str, options: dict[str, Any]) -> None:
    assert reply(Cycle, MESSAGES[name], **options) == reply(RequestResponseCycle, MESSAGES[name], **options)
