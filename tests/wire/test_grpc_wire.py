"""A sample of the fuzz of gRPC (`tests.wire.grpc_fuzz`)."""

from __future__ import annotations

from pathlib import Path

import uvloop

from tests.support.cases import EXHAUSTIVE
from tests.wire.grpc_fuzz import fuzz, fuzz_round


def test_each_answer_is_that_of_a_connection_of_its_own(tmp_path: Path) -> None:
    seen = []

    def run(port: int, _: int) -> bool:
        seen.append(
            uvloop.run(fuzz_round(port, 1, connections=60 if EXHAUSTIVE else 6, pool=600 if EXHAUSTIVE else 150))
        )
        return False

    assert fuzz(tmp_path, run) < 128 << 20
    assert seen[0].differences == []
    assert seen[0].messages > 300
