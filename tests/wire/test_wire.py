"""A sample of the fuzz of the wire: `python -m tests.wire` sends a million messages."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop

from tests.conftest import started
from tests.support.cases import EXHAUSTIVE
from tests.support.process_memory import memory
from tests.wire.__main__ import BUDGET, OPTIONS
from tests.wire.fuzz import fuzz_round

CONNECTIONS = 60 if EXHAUSTIVE else 5


@pytest.mark.parametrize("seed", [1])
def test_each_reply_is_that_of_a_connection_of_its_own(tmp_path: Path, seed: int) -> None:
    with started(tmp_path / "log", *OPTIONS) as (server, process):
        before = memory(process.pid)["VmRSS"]
        seen = uvloop.run(fuzz_round(server.port, seed, connections=CONNECTIONS))
        assert memory(process.pid)["VmHWM"] - before < BUDGET
    assert seen.differences == []
    assert seen.messages > 16 * CONNECTIONS
