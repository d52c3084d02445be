"""Dumps of StableHLO's interpreter and of XLA: each label gives their bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytest.importorskip("jaxlib")

from tests.interop.blind import xla
from tests.interop.stablehlo_upstream import loaded

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with loaded():
        yield


def test_labels_of_the_interpreter() -> None:
    check("StableHLO's interpreter", xla.dumps(generator(608), 150), at_least=150)


def test_labels_of_xla() -> None:
    check("XLA", xla.dumps_of_xla(generator(609), 120), at_least=120)
