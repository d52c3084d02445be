"""Dumps of ONNX's reference evaluator: each label gives its bits."""

from __future__ import annotations

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.interop.blind import onnx_models

pytestmark = pytest.mark.interop


def test_labels() -> None:
    check("ONNX ReferenceEvaluator", onnx_models.dumps(generator(603), 180, onnx_models.REFERENCE), at_least=180)
