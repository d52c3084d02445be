"""Honest clients are served during attacks (`tests.hostile.under_attack`)."""

from __future__ import annotations

import pytest

from tests.hostile.under_attack import ATTACKS, BUDGET, Seen, measure

SAMPLE = (
    "gRPC: 4,190,000 empty raw_input_contents",
    "gRPC: Health/Check without a message, 100 on each of 20 connections",
    "plan: a header of 6 MB",
)
MEMORY = BUDGET + (128 << 20)


@pytest.fixture(scope="module")
def undisturbed() -> Seen:
    """How long honest clients wait when nobody attacks: on a busy machine that is long too."""
    return measure("nothing", 2.0)


def check(seen: Seen, undisturbed: Seen) -> None:
    for found, usual in ((seen.http, undisturbed.http), (seen.grpc, undisturbed.grpc)):
        assert found.failed == 0
        assert found.usual < max(0.1, 10 * usual.usual)
    assert seen.memory < MEMORY


@pytest.mark.parametrize("name", SAMPLE)
def test_honest_clients_are_served_during_an_attack(name: str, undisturbed: Seen) -> None:
    check(measure(name, 2.0), undisturbed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in (*SAMPLE, "nothing")])
def test_honest_clients_are_served_during_every_attack(name: str, undisturbed: Seen) -> None:
    check(measure(name, 4.0), undisturbed)
