"""The calls of docs/errata.md to the version of torch that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errata_page import check_calls_to

pytestmark = pytest.mark.interop

pytest.importorskip("torch")


def test_calls_print_what_stands_under_them(tmp_path: Path) -> None:
    check_calls_to("torch", tmp_path)
