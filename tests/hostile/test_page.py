"""docs/hostile_input.md: every attack gets what the page says, quickly, in few words and little memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import ROOT, Server, started
from tests.hostile.attacks import ATTACKS, answer_to, outcome
from tests.support.cases import EXHAUSTIVE
from tests.support.process_memory import peak_kib

PAGE = ROOT / "docs" / "hostile_input.md"
_ROW = re.compile(r"\| (.+) \| ([0-9]+) \| `([a-z0-9_]+)` \|")

LONGEST_ANSWER = 4096
LONGEST_SECONDS = 5.0
MAX_GROWTH_KIB = 200 << 10


def rows() -> dict[str, tuple[int, str]]:
    found = [match.groups() for line in PAGE.read_text().splitlines() if (match := _ROW.fullmatch(line))]
    assert len({name for name, _, _ in found}) == len(found)
    return {name: (int(status), code) for name, status, code in found}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("hostile") / "log"
    options = {"drain-seconds": "0", "head-seconds": "1", "body-seconds": "1"}
    options |= {"access-log": "true", "shared-memory": "true"}
    with started(log, *(f"--{name}={value}" for name, value in options.items())) as (server, process):
        before = peak_kib(process.pid)
        yield server
        assert httpx.get(f"{server.url}/v2/health/ready", verify=False).status_code == 200
        assert peak_kib(process.pid) - before < MAX_GROWTH_KIB
    lines = log.read_text().splitlines()
    assert max(map(len, lines)) < 300
    assert not [line for line in lines if "%" in line or "\x1b" in line or "aaaa" in line or " 50" in line[-4:]]


def test_the_page_lists_every_attack() -> None:
    assert list(rows()) == list(ATTACKS)


# The server ends each slow one after a second.
QUICK = [name for name in rows() if not name.startswith("slow: ") or name == "slow: a body without an end"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", rows() if EXHAUSTIVE else QUICK)
def test_an_attack_gets_what_the_page_says(attacked: Server, name: str) -> None:
    began = time.monotonic()
    answer = answer_to(ATTACKS[name], attacked.port)
    assert outcome(answer) == rows()[name]
    assert len(answer) < LONGEST_ANSWER
    assert time.monotonic() - began < LONGEST_SECONDS
