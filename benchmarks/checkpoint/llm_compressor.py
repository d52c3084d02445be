"""`python -m benchmarks.checkpoint.llm_compressor [SOURCE TARGET SCHEME]`: by llm-compressor; or its import alone.

A source in blocks of FP8 is dequantized by compressed-tensors' converter, in the same pass.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from compressed_tensors.entrypoints.convert.converters import FP8BlockDequantizer
from llmcompressor.entrypoints.model_free import model_free_ptq

if __name__ == "__main__" and len(sys.argv) > 1:
    from benchmarks.checkpoint.model import IGNORE

    _source, _target, _scheme = sys.argv[1:]
    _stored = json.loads(Path(_source, "config.json").read_text()).get("quantization_config")
    _converter = FP8BlockDequantizer.from_pretrained(_source) if _stored else None
    model_free_ptq(_source, _target, _scheme, ignore=list(IGNORE), device="cpu", converter=_converter)
