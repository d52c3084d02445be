"""The version of onnxruntime that is installed, as far as our profiles and operators tell versions apart.

QuantizeLinear saturates in all of its loops since 1.32.
"""

from __future__ import annotations

from tests.support.installed_release import expected_release

_SINCE_1_32 = (expected_release("onnxruntime") or (0, 0)) >= (1, 32)

IMPLEMENTATION = "onnxruntime_1_32" if _SINCE_1_32 else "onnxruntime"
"""The implementation of the operators."""
PROFILE = "onnx_1_32" if _SINCE_1_32 else "onnx"
