"""Dumps of torch, of the version that is installed: each label gives its bits."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

torch: Any = pytest.importorskip("torch")

from tests.interop.blind import pytorch  # noqa: E402

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="torch has no FBGEMM here"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def test_labels_of_eager_tensors() -> None:
    check(f"torch {metadata.version('torch')}, eager", pytorch.eager_dumps(generator(605), 240), at_least=240)


def test_labels_of_quantized_decomposed() -> None:
    system = f"torch {metadata.version('torch')}, quantized_decomposed"
    check(system, pytorch.decomposed_dumps(generator(606), 120), at_least=120)
