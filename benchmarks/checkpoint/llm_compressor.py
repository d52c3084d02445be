"""`python -m benchmarks.checkpoint.llm_compressor [SOURCE TARGET SCHEME]`: by llm-compressor; or its import alone."""

from __future__ import annotations

import sys

from llmcompressor.entrypoints.model_free import model_free_ptq

if __name__ == "__main__" and len(sys.argv) > 1:
    from benchmarks.checkpoint.model import IGNORE

    model_free_ptq(sys.argv[1], sys.argv[2], sys.argv[3], ignore=list(IGNORE), device="cpu")
