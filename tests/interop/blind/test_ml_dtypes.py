"""Dumps of ml_dtypes: each label gives its bits."""

from __future__ import annotations

import pytest

from tests.interop.blind import numpy_casts
from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytestmark = pytest.mark.interop


def test_labels() -> None:
    check("ml_dtypes", numpy_casts.dumps(generator(612), 150), at_least=150)
