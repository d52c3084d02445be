"""The calls of docs/errata.md to the systems of this environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errata_page import check_calls_to

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("onnxruntime", "onnxruntime"),
        ("ai-edge-litert", "ai_edge_litert"),
        ("jaxlib", "jaxlib"),
        ("tosa-tools", "tosa_reference_model"),
        ("gguf", "gguf"),
        ("ml_dtypes", "jaxlib"),  # ml_dtypes is everywhere, and one run of it is enough
    ],
)
def test_calls_print_what_stands_under_them(name: str, module: str, tmp_path: Path) -> None:
    pytest.importorskip(module)
    check_calls_to(name, tmp_path)
