"""Dumps of TOSA's reference model: each label gives its bits."""

from __future__ import annotations

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytest.importorskip("tosa_serializer")
pytest.importorskip("tosa_reference_model")

from tests.interop.blind import tosa

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("no_debugger")]


def test_labels() -> None:
    check("TOSA reference model", tosa.dumps(generator(607), 200), at_least=200)
