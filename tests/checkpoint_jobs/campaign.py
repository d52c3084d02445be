"""Hostile requests to a service in this process, and what they did."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from unittest.mock import patch
from urllib.parse import unquote_to_bytes

from starlette.types import Message

from requant_service.app import Application
from tests.checkpoint_jobs.attacker import Attacker
from tests.checkpoint_jobs.places import CANARY, Places, make_places
from tests.checkpoint_jobs.requests import HostileRequests, Request
from tests.core.checkpoint.storage.http_files import HttpFiles, serving
from tests.support.asgi import ready_app

SECONDS = 60.0
"""An answer that takes longer is none."""


@dataclass
class Outcome:
    """What a campaign found. `findings`: by kind, with the number of one request."""

    requests: int = 0
    swaps: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    findings: dict[str, int | None] = field(default_factory=dict)

    def summary(self) -> str:
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        codes = ", ".join(f"{code}: {count}" for code, count in self.codes.most_common())
        states = ", ".join(f"{state}: {count}" for state, count in self.states.most_common())
        return (
            f"{self.requests} requests in {self.seconds:.0f} s, {self.swaps} swaps\n"
            f"slowest answer: {self.slowest:.2f} s\nstatuses: {statuses}\ncodes: {codes}\njobs: {states}\n"
            + "".join(f"FOUND: {what} (request {number})\n" for what, number in self.findings.items())
        )


def campaign(directory: Path, seed: str, requests: int, *, attack: bool = True, seconds: float = 1e9) -> Outcome:
    """Send the requests, with `attack` while a thread swaps what they name."""
    outcome, began = Outcome(), monotonic()
    with _service(directory) as (places, app, url), _unexpected_errors() as unexpected, ExitStack() as stack:
        attacker = stack.enter_context(Attacker(places)) if attack else None
        jobs = app.state.runtime.checkpoint_jobs
        try:
            asyncio.run(_send(app, HostileRequests(places, url, seed), requests, began + seconds, outcome))
        finally:
            stack.close()
            jobs.close(SECONDS)
        outcome.findings |= dict.fromkeys(unexpected)
        if jobs.running:
            outcome.findings["a job does not end"] = None
        outcome.findings |= dict.fromkeys(places.touched())
        outcome.findings |= dict.fromkeys(f"{path} holds the canary" for path in places.leaks())
        outcome.swaps = attacker.swaps if attacker else 0
    outcome.seconds = monotonic() - began
    return outcome


@contextmanager
def _unexpected_errors() -> Iterator[list[str]]:
    """Yield what jobs log of errors that nobody expected, filled meanwhile."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if error is not None:
                found.append(f"a job has an unexpected error: {type(error).__name__}: {error}")

    logger, kept = logging.getLogger("requant.checkpoint.jobs"), Kept()
    logger.addHandler(kept)
    try:
        yield found
    finally:
        logger.removeHandler(kept)


@contextmanager
def _service(directory: Path) -> Iterator[tuple[Places, Application, str]]:
    """Yield the places, a service with roots of all kinds, and the URL of its HTTP root."""
    places = make_places(directory)
    with serving(HttpFiles()) as served:
        url = f"{served.url}/models"
        model = places.root / "second"
        served.files = {f"models/model/{path.name}": path.read_bytes() for path in model.iterdir()}
        served.files |= {f"secret/{path.name}": CANARY.encode() for path in model.iterdir()}
        served.redirects = {f"models/redirect/{path.name}": f"/secret/{path.name}" for path in model.iterdir()}
        store = {
            "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "x", "AWS_ENDPOINT_URL": served.url,
            "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
        with patch.dict(os.environ, store):
            app = ready_app(
                checkpoint_roots=[str(places.root), url, "s3://bucket/models"], checkpoint_jobs=4, checkpoint_threads=1
            )
            yield places, app, url


async def _send(app: Application, source: HostileRequests, count: int, end: float, outcome: Outcome) -> None:
    for number in range(count):
        if monotonic() > end:
            break
        request, began = source.request(number), monotonic()
        try:
            status, body = await asyncio.wait_for(_answer(app, request), SECONDS)
        except TimeoutError:
            outcome.findings["no answer"] = number
            return
        except Exception as error:
            outcome.findings.setdefault(f"{type(error).__name__} leaves the application", number)
            continue
        outcome.slowest = max(outcome.slowest, monotonic() - began)
        outcome.requests += 1
        outcome.statuses[status] += 1
        _judge(status, body, number, outcome)


def _judge(status: int, body: bytes, number: int, outcome: Outcome) -> None:
    if CANARY.encode() in body:
        outcome.findings.setdefault("the canary in an answer", number)
    if status >= 500 and status != 503:
        outcome.findings.setdefault(f"status {status}", number)
    try:
        answer = json.loads(body)
    except ValueError:
        outcome.findings.setdefault("an answer that is not JSON", number)
        return
    if status >= 400:
        outcome.codes[str(answer.get("code"))] += 1
    elif "state" in answer:
        error = answer.get("error", {})
        outcome.states[" ".join(filter(None, (answer["state"], error.get("code"))))] += 1
        if error.get("code") == "internal_error":
            outcome.findings.setdefault("a job that fails by an unexpected error", number)


async def _answer(app: Application, request: Request) -> tuple[int, bytes]:
    path, _, query = request.target.partition("?")
    headers = [(name.encode(), value.encode("latin-1")) for name, value in request.headers]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        # As uvicorn decodes it.
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [*headers, (b"content-length", str(len(request.body)).encode())],
        "server": None,
        "client": None,
    }
    messages: list[Message] = []
    received = False

    async def receive() -> Message:
        nonlocal received
        if received:
            # Whoever waits for the client to leave waits.
            await asyncio.Event().wait()
        received = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])
