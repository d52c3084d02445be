"""Dumps of compressed-tensors: each label gives its bits."""

from __future__ import annotations

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytest.importorskip("compressed_tensors", reason="it is in the environment of the checkpoints only")

from tests.interop.blind import compressed_tensors_weights

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]


def test_labels() -> None:
    check("compressed-tensors", compressed_tensors_weights.dumps(generator(615), 80), at_least=80)
