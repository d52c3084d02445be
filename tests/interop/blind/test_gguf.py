"""Dumps of gguf's Python and of ggml: each label gives their bits."""

from __future__ import annotations

import pytest

from tests.interop.blind.dump import check
from tests.interop.llama_cpp.library import needs_llama_cpp
from tests.interop.seed_of_the_day import generator

pytest.importorskip("gguf")

from tests.interop.blind import gguf_blocks

pytestmark = pytest.mark.interop


def test_labels_of_gguf() -> None:
    check("gguf", gguf_blocks.dumps_of_gguf(generator(610), 100), at_least=100)


@needs_llama_cpp
def test_labels_of_ggml() -> None:
    check("ggml, in llama.cpp", gguf_blocks.dumps_of_ggml(generator(611), 60), at_least=60)
