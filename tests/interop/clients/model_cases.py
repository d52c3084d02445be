"""One small call of each model, computed by hand: what any client of the protocol has to get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Value = str | int | bool


@dataclass(frozen=True)
class ModelCase:
    """A call of a model, and the outputs that are due."""

    model: str
    inputs: dict[str, Array]
    parameters: dict[str, Value]
    expected: dict[str, Array]


_STORED = "!quant.uniform<i8:f32, 0.5:3>"
# 0.25 / 0.5 is a tie: to even, and then the zero point.
_X = np.array([[0.25, 0.75, -1.5], [2.0, 100.0, -1000.0]], np.float32)
_Q = np.array([[3, 5, 0], [7, 127, -128]], np.int8)

CASES = (
    ModelCase("quantize", {"x": _X}, {"output_type": _STORED, "profile": "onnx"}, {"y": _Q}),
    ModelCase(
        "quantize",
        {"x": _X, "scale": np.array([0.5], np.float32), "zero_point": np.array([3], np.int32)},
        {"storage_type": "i8", "profile": "onnx"},
        {"y": _Q},
    ),
    ModelCase(
        "dequantize",
        {"x": _Q},
        {"input_type": _STORED},
        {"y": np.array([[0, 1, -1.5], [2, 62, -65.5]], np.float32)},
    ),
    # 1 and 2 in steps of 0.25, less 1.
    ModelCase(
        "requantize",
        {"x": np.array([1000, 2000], np.int32)},
        {"input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": "!quant.uniform<i8:f32, 0.25:-1>"},
        # f32(0.001) / 0.25 in Q31 with 7 bits to the left.
        {
            "y": np.array([3, 7], np.int8),
            "multiplier": np.array([round(float(np.float32(0.001)) / 0.25 * 2**38)], np.int64),
            "shift": np.array([-7], np.int32),
        },
    ),
    # Half of each, by a multiplier that is given: plain integers have no scale. Ties go up.
    ModelCase(
        "requantize",
        {
            "x": np.array([5, -1000, 7], np.int64),
            "multiplier": np.array([1 << 30], np.int64),
            "shift": np.array([0], np.int32),
        },
        {"output_type": "i8", "scheme": "litert"},
        {
            "y": np.array([3, -128, 4], np.int8),
            "multiplier": np.array([1 << 30], np.int64),
            "shift": np.array([0], np.int32),
        },
    ),
    # A cast: to the nearest f16, of which 1e-8 is none but 0.
    ModelCase(
        "quantize",
        {"x": np.array([1.0, -2.0, 1e-8, 0.1], np.float32)},
        {"output_type": "f16", "profile": "ml_dtypes"},
        {"y": np.array([1.0, -2.0, 0.0, 0.1], np.float16)},
    ),
    ModelCase(
        "compare",
        {"a": np.array([1, 2, 3], np.int16), "b": np.array([1, 4, 3], np.int16)},
        {"max_reported": 5},
        {"first": np.array([1], np.int64), "histogram": np.array([[0, 0, 2], [1, 1, 0], [2, 2, 1]], np.int64)},
    ),
    # Of ones, the shared exponent is that of 4, the largest power of two of the format: code 6 times 2^-2.
    ModelCase(
        "quantize_blocks",
        {"x": np.ones((1, 32), np.float32)},
        {"format": "mxfp4_e2m1"},
        {"elements": np.full((1, 32), 6, np.uint8), "scales": np.array([[125]], np.uint8)},
    ),
    ModelCase(
        "dequantize_blocks",
        {"elements": np.full((1, 32), 6, np.uint8), "scales": np.array([[125]], np.uint8)},
        {"format": "mxfp4_e2m1", "output_type": "tensor<1x32xf32>"},
        {"y": np.ones((1, 32), np.float32)},
    ),
)


def check(case: ModelCase, outputs: dict[str, Array]) -> None:
    """Compare what a client got with what is due: names, shapes, dtypes and bits."""
    assert outputs.keys() == case.expected.keys()
    for name, expected in case.expected.items():
        assert outputs[name].dtype == expected.dtype, name
        assert outputs[name].shape == expected.shape, name
        assert outputs[name].tobytes() == expected.tobytes(), name
