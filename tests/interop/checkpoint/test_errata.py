"""The calls of docs/errata.md to libraries that write checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errata_page import check_calls_to

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", ["compressed-tensors", "auto-round"])
def test_calls_print_what_stands_under_them(name: str, tmp_path: Path) -> None:
    check_calls_to(name, tmp_path)
