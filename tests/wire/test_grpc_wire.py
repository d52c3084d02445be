"""Samples of the fuzz of gRPC and of the attacks on it (`tests.wire.grpc_fuzz`, `tests.wire.grpc_attacks`)."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop

from tests.support.cases import EXHAUSTIVE
from tests.wire.grpc_attacks import ATTACKS, BUDGET, Seen, measure
from tests.wire.grpc_fuzz import fuzz, fuzz_round

SAMPLE = ("4,190,000 empty raw_input_contents", "Health/Check without a message, 100 on each of 20 connections")


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


@pytest.fixture(scope="module")
def usual() -> float:
    """How long an honest client waits when nobody attacks: on a busy machine that is long too."""
    return measure("nothing", 2.0).usual


def check(seen: Seen, usual: float) -> None:
    assert seen.failed == 0
    assert seen.usual < max(0.1, 10 * usual)
    assert seen.memory < BUDGET + (128 << 20)


@pytest.mark.parametrize("name", SAMPLE)
def test_an_honest_client_is_served_beside_an_attack(name: str, usual: float) -> None:
    check(measure(name, 2.0), usual)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in (*SAMPLE, "nothing")])
def test_an_honest_client_is_served_beside_every_attack(name: str, usual: float) -> None:
    check(measure(name, 4.0), usual)
