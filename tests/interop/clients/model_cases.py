"""One small call of each model, computed by hand: what any client of the protocol has to get."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Value = str | int | float | bool


@dataclass(frozen=True)
class ModelCase:
    """A call of a model, and the outputs that are due. `said`: what is due among the parameters of the reply."""

    model: str
    inputs: dict[str, Array]
    parameters: dict[str, Value]
    expected: dict[str, Array]
    said: dict[str, Value] = field(default_factory=dict)


_HALVES = "!quant.uniform<i8:f32, 0.5>"
_DOUBLE = (
    "func.func @main(%x: tensor<2xi8>) -> tensor<2xi8> {\n"
    "  %0 = stablehlo.add %x, %x : tensor<2xi8>\n  return %0 : tensor<2xi8>\n}\n"
)
_ONE, _ZERO = np.array(1.0), np.array(0, np.int64)
_SUMS, _QUARTERS = "!quant.uniform<i32:f32, 0.001>", "!quant.uniform<i8:f32, 0.25:-1>"
_HALVES_AT_3 = "!quant.uniform<i8:f32, 5.000000e-01:3>"
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
        {"input_type": _SUMS, "output_type": _QUARTERS},
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
    # As quantize, requantize and dequantize; the steps are said in JSON.
    ModelCase(
        "explain_quantize",
        {"x": np.array([0.25], np.float32)},
        {"output_type": _STORED, "profile": "onnx"},
        {"y": np.array([3], np.int8)},
        {"formula": '["s = f32(scale)","v = x / s","n = RNE(v)","t = n + z","q = clamp(t, lo, hi)"]'},
    ),
    ModelCase(
        "explain_dequantize",
        {"x": np.array([5], np.int8)},
        {"input_type": _STORED, "profile": "onednn"},
        {"y": np.array([1], np.float32)},
        {"formula": '["s = f32(scale)","d = q - z","y = d * s"]'},
    ),
    ModelCase(
        "explain_requantize",
        {
            "x": np.array([5], np.int64),
            "multiplier": np.array([1 << 30], np.int64),
            "shift": np.array([0], np.int32),
        },
        {"output_type": "i8", "scheme": "litert"},
        {
            "y": np.array([3], np.int8),
            "multiplier": np.array([1 << 30], np.int64),
            "shift": np.array([0], np.int32),
        },
        {"scheme": "litert"},
    ),
    ModelCase(
        "vectors",
        {},
        {"operation": "dequantize", "input_type": "!quant.uniform<i2:f32, 0.5:1>", "count": 8},
        {
            "input": np.array([-2, -1, 0, 1], np.int8),
            "expected": np.array([-1.5, -1.0, -0.5, 0.0], np.float32),
            "parameter_set": np.zeros(4, np.int32),
        },
        {"profile": "stablehlo"},
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
    ModelCase(
        "matmul",
        {"lhs": np.array([[1, 2], [3, 4]], np.int8), "rhs": np.array([[1], [-1]], np.int8)},
        {"output_type": "i32"},
        {"y": np.array([[-1], [-1]], np.int32)},
        {"output_type": "tensor<2x1xi32>", "accumulator": "i32"},
    ),
    ModelCase(
        "conv2d",
        {"x": np.array([[1, 2, 3], [4, 5, 6]], np.int8).reshape(1, 2, 3, 1), "weights": np.ones((1, 2, 2, 1), np.int8)},
        {"output_type": "i32", "strides": "[1, 1]"},
        {"y": np.array([12, 16], np.int32).reshape(1, 1, 2, 1)},
    ),
    ModelCase(
        "add",
        {"lhs": np.array([2, 4], np.int8), "rhs": np.array([1, 127], np.int8)},
        {"lhs_type": _HALVES, "rhs_type": _HALVES, "output_type": _HALVES},
        {"y": np.array([3, 127], np.int8)},
        {"saturated_high": 1},
    ),
    # Steps of 1 from 0 to 255.
    ModelCase(
        "fake_quantize",
        {"x": np.array([0.4, 0.6, 300.0, -1.0], np.float32), "minimum": np.array([0.0]), "maximum": np.array([255.0])},
        {},
        {
            "y": np.array([0, 1, 255, 0], np.float32),
            "scale": _ONE,
            "nudged_minimum": np.array(0.0),
            "nudged_maximum": np.array(255.0),
        },
    ),
    ModelCase(
        "derive_from_range",
        {"minimum": np.array([0.0]), "maximum": np.array([255.0])},
        {"storage": "u8", "scheme": "onnxruntime", "minimum_real_range": 0.5},
        {"scale": _ONE, "zero_point": _ZERO},
        {"type": "!quant.uniform<u8:f32, 1.000000e+00>"},
    ),
    ModelCase(
        "derive_from_tensor",
        {"x_0": np.array([[3, 255]], np.float32), "x_1": np.array([[0, 7]], np.float32)},
        {"storage": "u8"},
        {"scale": _ONE, "zero_point": _ZERO, "minimum": np.array(0.0), "maximum": np.array(255.0)},
        {"method": "min_max", "left_out": 0},
    ),
    ModelCase(
        "derive_bias",
        {
            "input_scale": np.array([0.5]),
            "weight_scale": np.array([0.25, 0.5]),
            "bias": np.array([1.0, -2.0], np.float32),
        },
        {"scheme": "litert"},
        {
            "scale": np.array([0.125, 0.25]),
            "zero_point": np.zeros(2, np.int64),
            "y": np.array([8, -8], np.int32),
        },
    ),
    ModelCase(
        "derive_multiplier",
        {"factor": np.array([0.5, 0.75])},
        {"scheme": "litert"},
        {
            "multiplier": np.array([1 << 30, 3 << 29], np.int64),
            "shift": np.zeros(2, np.int32),
            "represented": np.array([0.5, 0.75]),
            "factor": np.array([0.5, 0.75]),
            "relative_error": np.zeros(2),
        },
    ),
    ModelCase(
        "parse_type",
        {},
        {"text": "tensor<2x!quant.uniform<i8:f32:0, {0.5:3, 0.25}>>"},
        {
            "scale": np.array([0.5, 0.25]),
            "zero_point": np.array([3, 0], np.int64),
            "shape": np.array([2], np.int64),
        },
        {"kind": "tensor", "element_kind": "uniform_per_axis", "axis": 0, "storage": "i8", "expressed": "f32"},
    ),
    ModelCase(
        "translate_type",
        {},
        {"litert": '{"type": "INT8", "scale": [0.5], "zero_point": [3]}', "systems": '["mlir"]'},
        {},
        {"type": "!quant.uniform<i8:f32, 5.000000e-01:3>", "source": "litert", "rounded_count": 0},
    ),
    # 585 is the accumulator of which LiteRT's fixed point gives 1, and XNNPACK's rule in f32 as well.
    ModelCase(
        "identify",
        {"tensor_0": np.array([585, 7984, -12], np.int32)},
        {
            "calls": json.dumps(
                [
                    {
                        "operation": "requantize",
                        "arguments": {"input": "tensor_0", "input_type": _SUMS, "output_type": _QUARTERS},
                        "observed": {"output": [1, 31, -1]},
                    }
                ]
            ),
            "suspects": '["litert", "litert_xnnpack"]',
        },
        {},
        {"elements": 3, "excluded": "[]"},
    ),
    ModelCase(
        "call_vectors",
        {"tensor_0": np.array([0.25, 1.5, -100], np.float32)},
        {
            "calls": json.dumps(
                [{"operation": "litert.QUANTIZE", "arguments": {"input": "tensor_0", "output_type": _HALVES_AT_3}}]
            ),
            "count": 1,
        },
        {},
        {
            "vectors": json.dumps(
                [
                    {
                        "call": 0,
                        "why": ["given", "storage_minimum"],
                        "differing": [],
                        "inputs": [{"name": "input", "type": "tensor<3xf32>", "values": [0.25, 1.5, -100.0]}],
                        "expected": [{"name": "output", "type": f"tensor<3x{_HALVES_AT_3}>", "values": [4, 6, -128]}],
                        "stages": [],
                    }
                ],
                separators=(",", ":"),
            )
        },
    ),
    # Of every input, 36 give another output.
    ModelCase(
        "equivalence",
        {},
        {
            "operation": "requantize",
            "input_type": _SUMS,
            "output_type": _QUARTERS,
            "first": '{"profile": "litert"}',
            "second": '{"profile": "litert_xnnpack"}',
        },
        {},
        {"equal": False, "inputs": str(2**32), "differing": "36"},
    ),
    ModelCase("lower", {}, {"module": _DOUBLE}, {}),
    ModelCase(
        "evaluate",
        {"input_0": np.array([1, 100], np.int8)},
        {"module": _DOUBLE},
        {"output_0": np.array([2, -56], np.int8)},
    ),
)


def check(case: ModelCase, outputs: dict[str, Array], said: dict[str, Value]) -> None:
    """Compare what a client got with what is due: names, shapes, dtypes and bits, and parameters of the reply."""
    assert {name: said[name] for name in case.said} == case.said
    assert outputs.keys() == case.expected.keys()
    for name, expected in case.expected.items():
        assert outputs[name].dtype == expected.dtype, name
        assert outputs[name].shape == expected.shape, name
        assert outputs[name].tobytes() == expected.tobytes(), name
