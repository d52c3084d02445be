"""Many requests one after the other, and what was found: one request of each kind of fault, the shortest."""

from __future__ import annotations

import http.client
import itertools
import re
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from requant_service.http.problems import PROBLEMS
from tests.fuzz.mutation import fuzzed
from tests.fuzz.verdict import faults
from tests.fuzz.wire import Connection, Reply, Request

CODES = {kind.code: kind.status for kind in PROBLEMS.values()}
# One request in so many is sent once more: a result is a function of its request.
_REPEATED = 50
_REQUEST_ID = re.compile(rb'"request_id":\s*"[^"]*"')
_LAST = 20


@dataclass(frozen=True)
class Finding:
    """A request and what was wrong with its reply."""

    index: int
    fault: str
    request: Request
    reply: bytes

    @property
    def kind(self) -> tuple[str, str]:
        """Findings of one kind are shown once."""
        return self.request.target.partition("?")[0], re.sub(r"[0-9]+|'[^']*'", "_", self.fault)

    def told(self, seed: str, origin: str) -> str:
        """All that it takes to look into it."""
        return (
            f"{self.request.target}: {self.fault}\n  {self.reply[:500]!r}\n"
            f"  python -m tests.fuzz --seed {seed} --only {self.index}\n  {self.request.reproduction(origin)}"
        )


@dataclass
class Outcome:
    """What a campaign did."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    longest: tuple[float, int] = (0.0, 0)
    """The seconds of the slowest request, and its number."""
    ended: bool = False
    """Whether the service stopped answering."""
    last: deque[int] = field(default_factory=lambda: deque(maxlen=_LAST))

    def add(self, finding: Finding) -> None:
        """Keep a finding unless there is a shorter one of its kind."""
        known = self.findings.get(finding.kind)
        if known is None or len(finding.request.body) < len(known.request.body):
            self.findings[finding.kind] = finding

    def summary(self, seed: str) -> str:
        """One line."""
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        return (
            f"fuzz: seed {seed}, {self.requests} requests ({statuses}), slowest {self.longest[0]:.2f} s "
            f"(number {self.longest[1]}), {len(self.findings)} kinds of fault"
        )


def campaign(
    port: int, seed: str, *, seconds: float, requests: int | None = None, first: int = 0, step: int = 1
) -> Outcome:
    """Send requests number `first`, `first + step`, ... until the time is over, or that many were sent."""
    outcome = Outcome()
    deadline = time.monotonic() + seconds
    with Connection(port) as connection:
        for index in itertools.count(first, step):
            if time.monotonic() > deadline or outcome.requests == requests or outcome.ended:
                return outcome
            one(connection, seed, index, outcome)
    raise AssertionError


def one(connection: Connection, seed: str, index: int, outcome: Outcome) -> Reply | None:
    """Send one request and judge its reply."""
    request = fuzzed(seed, index)
    outcome.requests += 1
    outcome.last.append(index)
    began = time.monotonic()
    try:
        reply = connection.send(request)
    except (OSError, http.client.HTTPException) as error:
        outcome.add(Finding(index, f"no reply: {error!r}", request, b""))
        outcome.ended = isinstance(error, ConnectionRefusedError)
        return None
    outcome.longest = max(outcome.longest, (time.monotonic() - began, index))
    outcome.statuses[reply.status] += 1
    for fault in _judged(connection, request, reply, repeated=index % _REPEATED == 0):
        outcome.add(Finding(index, fault, request, reply.body))
    return reply


def _judged(connection: Connection, request: Request, reply: Reply, *, repeated: bool) -> Iterator[str]:
    try:
        yield from faults(request, reply, CODES)
        if repeated and _lasting(connection.send(request)) != _lasting(reply):
            yield "another reply when it is sent again"
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException) as error:
        yield f"a reply that cannot be read: {error!r}"


def _lasting(reply: Reply) -> tuple[int, bytes]:
    """What two replies to one request have in common."""
    return reply.status, _REQUEST_ID.sub(b"", reply.body)
