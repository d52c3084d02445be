"""The calls of docs/errata.md to TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errata_page import check_calls_to

pytestmark = pytest.mark.interop

pytest.importorskip("tensorflow")


def test_calls_print_what_stands_under_them(tmp_path: Path) -> None:
    check_calls_to("tensorflow-cpu", tmp_path)
