"""Dumps of torch, of the version that is installed, and of libraries on it: each label gives the bits of its dump, and
is identified.
"""

from __future__ import annotations

import pytest

from tests.interop.blind.rounds import check_rounds
from tests.interop.blind.systems import OF_TORCH, System, check_labels

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("system", OF_TORCH, ids=str)
def test_labels(system: System) -> None:
    check_labels(system)


@pytest.mark.parametrize("system", OF_TORCH, ids=str)
def test_identified(system: System) -> None:
    check_rounds(system)
