"""Dumps of ONNX's reference evaluator: each label gives the bits of its dump, and is identified."""

from __future__ import annotations

import pytest

from tests.interop.blind.rounds import check_rounds
from tests.interop.blind.systems import ONNX_REFERENCE, check_labels

pytestmark = pytest.mark.interop


def test_labels() -> None:
    check_labels(ONNX_REFERENCE)


def test_identified() -> None:
    check_rounds(ONNX_REFERENCE)
