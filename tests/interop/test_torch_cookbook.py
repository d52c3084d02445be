"""The programs of docs/cookbook that run torch, as installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.page_programs import DOCS, Reader, blocks

pytestmark = pytest.mark.interop

pytest.importorskip("torch")


def test_the_program_prints_what_stands_under_it(tmp_path: Path) -> None:
    (program,) = (
        block for block in blocks((DOCS / "cookbook" / "torch_to_onnx.md").read_text()) if "torch" in block.needs
    )
    with Reader(tmp_path) as reader:
        reader.follow(program)
