"""Conversions in one thread: ours, the same arithmetic in numpy, and a plain copy of the same bytes as the limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Contender, medians, table
from core.dequantize import plan_dequantize
from core.mlir import parse_type
from core.mlir.types import TensorType
from core.plan import Plan
from core.quantize import plan_quantize
from core.requantize import plan_requantize

Array = NDArray[Any]
_SIZES = (1_000, 100_000, 10_000_000)
_SCALE, _ZERO_POINT = np.float32(0.05), 3


def _tensor(text: str) -> TensorType:
    parsed = parse_type(text)
    assert isinstance(parsed, TensorType)
    return parsed


def _onnx_in_numpy(x: Array) -> Array:
    stored: Array = np.clip(np.rint(x / _SCALE) + np.float32(_ZERO_POINT), -128, 127).astype(np.int8)
    return stored


def _dequantize_in_numpy(q: Array) -> Array:
    real: Array = (q.astype(np.int32) - _ZERO_POINT).astype(np.float32) * _SCALE
    return real


def _litert_in_numpy(multiplier: int, shift: int) -> Callable[[Array], Array]:
    def requantize(q: Array) -> Array:
        high = (q.astype(np.int64) * multiplier + (1 << 30)) >> 31
        rounded = (high + (1 << (shift - 1)) + (high >> 63)) >> shift
        stored: Array = np.clip(rounded, -128, 127).astype(np.int8)
        return stored

    return requantize


def _cases(size: int) -> list[tuple[str, Plan, Array, Callable[[Array], Array] | None]]:
    rng = np.random.default_rng(1)
    real = rng.normal(0, 3, size).astype(np.float32)
    stored = rng.integers(-128, 128, size).astype(np.int8)
    accumulators = rng.integers(-(1 << 20), 1 << 20, size).astype(np.int32)
    floats, i8 = _tensor(f"tensor<{size}xf32>"), "!quant.uniform<i8:f32, 0.05:3>"
    channels = ", ".join(f"{0.01 * (i + 1):.17e}" for i in range(100))
    last_axis = f"!quant.uniform<i8:f32:1, {{{channels}}}>"
    to_i8 = plan_requantize(
        _tensor(f"tensor<{size}x!quant.uniform<i32:f32, 0.001>>"), parse_type("!quant.uniform<i8:f32, 7.0>")
    )
    multiplier = to_i8.multipliers[0]
    return [
        ("f32 to i8, onnx", plan_quantize(floats, parse_type(i8), "onnx"), real, _onnx_in_numpy),
        ("f32 to i8, stablehlo", plan_quantize(floats, parse_type(i8), "stablehlo"), real, None),
        ("f32 to i8, litert", plan_quantize(floats, parse_type(i8), "litert"), real, None),
        (
            "f32 to i8, onnx, last axis",
            plan_quantize(_tensor(f"tensor<{size // 100}x100xf32>"), parse_type(last_axis), "onnx"),
            real,
            None,
        ),
        ("i8 to f32", plan_dequantize(_tensor(f"tensor<{size}x{i8}>")), stored, _dequantize_in_numpy),
        (
            "i32 to i8, litert",
            to_i8,
            accumulators,
            _litert_in_numpy(multiplier.multiplier, -multiplier.shift),
        ),
    ]


def kernels() -> str:
    """Return the table. Where numpy computes the same, the bits are compared before anything is timed."""
    rows = []
    for size in _SIZES:
        for name, plan, source, in_numpy in _cases(size):
            target = np.empty(size, plan.output_dtype)
            plan.run(source, target)
            # A copy that reads and writes as many bytes as the conversion.
            traffic = (source.nbytes + target.nbytes) // 2
            read, written = np.zeros(traffic, np.uint8), np.zeros(traffic, np.uint8)
            contenders: dict[str, Contender] = {
                "ours": partial(plan.run, source, target),
                "copy": partial(np.copyto, written, read),
            }
            if in_numpy is not None:
                if in_numpy(source).tobytes() != target.tobytes():
                    raise AssertionError(f"{name}: numpy's bits differ from ours")
                contenders["numpy"] = partial(in_numpy, source)
            times = medians(contenders)
            ours = times["ours"]
            rows.append(
                [
                    name,
                    f"{size:,}",
                    f"{ours * 1e6:,.1f}",
                    f"{(source.nbytes + target.nbytes) / ours / 1e9:.1f}",
                    f"{times['numpy'] / ours:.1f}x" if "numpy" in times else "",
                    f"{times['copy'] / ours:.2f}",
                ]
            )
    header = ["conversion", "elements", "us", "GB/s", "faster than numpy", "share of a plain copy's speed"]
    return table("Conversions, one thread", header, rows)
