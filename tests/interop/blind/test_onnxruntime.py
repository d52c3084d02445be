"""Dumps of onnxruntime, of the version that is installed: each label gives the bits of its dump, and is identified."""

from __future__ import annotations

import pytest

from tests.interop.blind.rounds import check_rounds
from tests.interop.blind.systems import ONNXRUNTIME, check_labels

pytestmark = pytest.mark.interop


def test_labels() -> None:
    check_labels(ONNXRUNTIME)


def test_identified() -> None:
    check_rounds(ONNXRUNTIME)
