"""llm-compressor's `model_free_ptq`, which reads and writes directories of safetensors files without a model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def quantize(source: Path, target: Path, how: Any, ignore: Sequence[str] = ()) -> Path:
    """Quantize a directory on the CPU, and return the new one.

    `how`: the name of a scheme, a QuantizationScheme, or a QuantizationConfig for several.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from compressed_tensors.quantization import QuantizationConfig
        from llmcompressor.entrypoints.model_free import model_free_ptq
        from loguru import logger

        logger.remove()
        logging.disable(logging.WARNING)
        try:
            given = {"config" if isinstance(how, QuantizationConfig) else "scheme": how}
            model_free_ptq(str(source), str(target), **given, ignore=list(ignore), device="cpu")
        finally:
            logging.disable(logging.NOTSET)
    return target
