"""The programs of docs/cookbook and docs/cases.md that run LiteRT or onnxruntime, and what they go with."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.support.page_programs import DOCS, Reader, blocks

pytestmark = pytest.mark.interop

pytest.importorskip("ai_edge_litert")
pytest.importorskip("onnxruntime")

INSTALLED = {"ai_edge_litert", "onnxruntime"}


@pytest.mark.parametrize(
    "page",
    ["cookbook/fully_connected.md", "cookbook/node_by_node.md", "cookbook/torch_to_onnx.md", "cases.md"],
)
def test_the_programs_print_what_stands_under_them(server: Server, tmp_path: Path, page: str) -> None:
    if page != "cookbook/torch_to_onnx.md" and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the page shows LiteRT on x86-64")
    found = list(blocks((DOCS / page).read_text()))
    assert any(block.needs & INSTALLED for block in found)
    with Reader(tmp_path, server) as reader:
        for block in found:
            if block.needs <= INSTALLED:
                reader.follow(block)
