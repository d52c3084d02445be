"""`python -m benchmarks.checkpoint.converters [SOURCE TARGET]`: by compressed-tensors' converter of the source's form.

Without SOURCE, the import alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from compressed_tensors.entrypoints.convert import convert_checkpoint
from compressed_tensors.entrypoints.convert.converters import (
    AutoAWQConverter,
    FP8BlockDequantizer,
    ModelOptNvfp4Converter,
)

_CONVERTERS = {
    "awq": AutoAWQConverter.from_pretrained,
    "fp8": FP8BlockDequantizer.from_pretrained,
    "modelopt": lambda _: ModelOptNvfp4Converter(targets=["re:.*_proj$"]),
}

if __name__ == "__main__" and len(sys.argv) > 1:
    _source, _target = sys.argv[1:]
    _config = json.loads(Path(_source, "config.json").read_text())["quantization_config"]
    convert_checkpoint(_source, _target, _CONVERTERS[_config["quant_method"]](_source), device="cpu")
