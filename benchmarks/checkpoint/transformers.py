"""`python -m benchmarks.checkpoint.transformers [SOURCE TARGET]`: gpt-oss in MXFP4 loaded as BF16, and saved so.

Without SOURCE, the import alone.
"""

from __future__ import annotations

import sys

from transformers import GptOssForCausalLM, Mxfp4Config

if __name__ == "__main__" and len(sys.argv) > 1:
    _model = GptOssForCausalLM.from_pretrained(
        sys.argv[1], dtype="bfloat16", quantization_config=Mxfp4Config(dequantize=True)
    )
    # In its "original format", the names would be those of MXFP4.
    _model.save_pretrained(sys.argv[2], save_original_format=False)
