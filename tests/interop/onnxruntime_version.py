"""The version of onnxruntime that is installed, as far as our profiles and operators tell versions apart.

QuantizeLinear saturates in all of its loops since 1.32.
"""

from __future__ import annotations

from importlib import metadata, util


def _since_1_32() -> bool:
    if util.find_spec("onnxruntime") is None:
        return False
    major, minor = metadata.version("onnxruntime").split(".")[:2]
    return (int(major), int(minor)) >= (1, 32)


IMPLEMENTATION = "onnxruntime_1_32" if _since_1_32() else "onnxruntime"
"""The implementation of the operators."""
PROFILE = "onnx_1_32" if _since_1_32() else "onnx"
