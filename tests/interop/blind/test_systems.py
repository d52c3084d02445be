"""Dumps of the systems that share an environment: each label gives the bits of its dump, and is identified."""

from __future__ import annotations

import platform

import pytest

from tests.interop.blind.rounds import check_rounds
from tests.interop.blind.systems import OTHERS, System, check_labels

pytestmark = [
    pytest.mark.interop,
    pytest.mark.usefixtures("no_debugger"),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the labels are those of x86-64"),
]


@pytest.mark.parametrize("system", OTHERS, ids=str)
def test_labels(system: System) -> None:
    check_labels(system)


@pytest.mark.parametrize("system", OTHERS, ids=str)
def test_identified(system: System) -> None:
    check_rounds(system)
