"""onnxruntime's dumps, of the version that is installed: each label gives its bits."""

from __future__ import annotations

from importlib import metadata

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.interop.blind import onnx_models

pytestmark = pytest.mark.interop


def test_labels() -> None:
    system = f"onnxruntime {metadata.version('onnxruntime')}"
    check(system, onnx_models.dumps(generator(602), 270, onnx_models.ONNXRUNTIME), at_least=270)
