"""Requests made from those that work, by mutation: none breaks a promise. Each day's are others (`make test-all`)."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conftest import Server, started
from tests.fuzz.campaign import CODES, Outcome, campaign
from tests.fuzz.mutation import encoded, fuzzed
from tests.fuzz.seeds import INFER, INFER_VERSION, ROUTES, of_model, of_route
from tests.fuzz.verdict import faults
from tests.fuzz.wire import Connection, Request
from tests.requests.catalog import CATALOG
from tests.requests.document import POSTS
from tests.support.cases import EXHAUSTIVE
from tests.support.process_memory import peak_kib

SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
# The first requests load kernels and fill caches.
WARMING_SECONDS = 20.0
MAX_GROWTH_KIB = 200 << 10


def seed_of_the_day() -> str:
    """FUZZ_SEED, or else today's date."""
    return os.environ.get("FUZZ_SEED") or datetime.now(UTC).date().isoformat()


def told(outcome: Outcome, seed: str, server: Server) -> str:
    return "\n\n".join([*(each.told(seed, server.url) for each in outcome.findings.values()), outcome.summary(seed)])


@pytest.mark.exhaustive
def test_every_seed_is_a_request_that_works(server: Server) -> None:
    requests = [encoded(None, of_route(path)) for path in ROUTES]
    for model in CATALOG.values():
        requests += [encoded(None, of_model(model, model.example, None))]
        requests += [encoded(None, of_model(model, model.example, model.versions[-1]))]
    assert {request.operation for request in requests} == {*POSTS} == {*ROUTES, INFER, INFER_VERSION}
    with Connection(server.port) as connection:
        for request in requests:
            reply = connection.send(request)
            # Shared memory is off, and none of CUDA's is supported; checkpoint jobs are off.
            refused = b'"shared_memory"' in reply.body and "sharedmemory" in request.operation
            refused |= b"checkpoint_roots" in reply.body and request.operation.startswith("/v1/checkpoints")
            done = 202 if request.operation.endswith("/equivalence/jobs") else 200
            # There is no job of that name to be cancelled.
            done = 404 if b"it is forgotten" in reply.body else done
            assert reply.status == (422 if refused else done), (request, reply.body)
            assert list(faults(request, reply, CODES)) == []


def test_a_seed_and_a_number_are_a_request() -> None:
    made = [fuzzed("1", index) for index in range(300)]
    assert made == [fuzzed("1", index) for index in range(300)]
    assert len(set(made)) > 290
    assert made != [fuzzed("2", index) for index in range(300)]


def test_a_reproduction_is_the_request() -> None:
    text = Request("/v1/x", "/v1/x?a=%7B1,2%7D", (("Content-Type", "application/json"),), b'{"a": "it\'s"}')
    assert text.reproduction("http://h") == (
        """printf %s '{"a": "it'"'"'s"}' | """
        "curl -sS -g -i -H 'Content-Type: application/json' --data-binary @- 'http://h/v1/x?a=%7B1,2%7D'"
    )
    assert "echo AP8= | base64 -d | curl" in Request("/v1/x", "/v1/x", (), b"\0\xff").reproduction("http://h")


def test_a_few_mutated_requests_break_no_promise(server: Server) -> None:
    outcome = campaign(server.port, "few", seconds=60, requests=1000 if EXHAUSTIVE else 400)
    assert not outcome.findings, told(outcome, "few", server)


@pytest.mark.exhaustive
def test_no_mutated_request_breaks_a_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = seed_of_the_day()
    with started(tmp_path / "log", "--drain-seconds", "0") as (server, process):
        warming = campaign(server.port, seed, seconds=min(WARMING_SECONDS, SECONDS))
        before = peak_kib(process.pid)
        outcome = campaign(server.port, seed, seconds=SECONDS - WARMING_SECONDS, first=warming.requests)
        grown = 0 if process.poll() is not None else peak_kib(process.pid) - before
        with capsys.disabled():
            print(f"\n{warming.summary(seed)}\n{outcome.summary(seed)}, memory +{grown >> 10} MiB")  # noqa: T201
        assert process.poll() is None, f"the service ended at one of the requests {[*outcome.last]} of seed {seed}"
        assert not warming.findings, told(warming, seed, server)
        assert not outcome.findings, told(outcome, seed, server)
        assert grown < MAX_GROWTH_KIB
    assert "Warning" not in (tmp_path / "log").read_text()
