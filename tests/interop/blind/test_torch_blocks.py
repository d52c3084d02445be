"""Dumps of torchao: each label gives its bits."""

from __future__ import annotations

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytest.importorskip("torchao", reason="it is in the environment of the checkpoints only")

from tests.interop.blind import torchao_blocks

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]


def test_labels() -> None:
    check("torchao", torchao_blocks.dumps(generator(616), 90), at_least=90)
