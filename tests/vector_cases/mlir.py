"""lower_quant_ops.json and the uniform_quantize and uniform_dequantize of stablehlo_passes.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.vector_cases.conversion import Array, Conversion, load, storage_dtype

_FLOATS = {"f16": ("<u2", "<f2"), "bf16": ("<u2", "<u2"), "f32": ("<u4", "<f4"), "f64": ("<u8", "<f8")}
_PARTS = re.compile(r"!quant\.uniform<(u?)i?(\d+)(?:<[^>]*>)?:(\w+)")


def _parts(quantized: str) -> tuple[str, str]:
    """The storage and the expressed type of a text."""
    unsigned, width, expressed = re.match(_PARTS, quantized.replace("<ui", "<u")).groups()  # type: ignore[union-attr]
    return f"{'u' if unsigned else 'i'}{width}", expressed


def _real(values: list[Any], expressed: str) -> Array:
    spelled = {"NaN": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
    numbers = [spelled.get(value, value) for value in values]
    return np.array([float(number) for number in numbers]).astype(_FLOATS[expressed][1])


def _bits(pattern: str, expressed: str) -> Array:
    if not pattern.startswith("0x"):
        return _real([float(pattern)], expressed)
    bits, dtype = _FLOATS[expressed]
    return np.array([int(pattern, 16)], bits).view(dtype)


def _tensor(element: str, shape: list[int]) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def mlir_conversions() -> Iterator[Conversion]:
    """quant.qcast and quant.dcast through lower-quant-ops; poison is an error."""
    data = load("lower_quant_ops")
    for index, case in enumerate(data["scalars"]):
        storage, expressed = _parts(case["type"])
        dtype = storage_dtype(storage)
        name = f"lower_quant_ops/scalars/{index}"
        if case["op"] == "qcast":
            poison = case["output"] == "poison"
            yield Conversion(
                name,
                "quantize",
                "mlir",
                _tensor(expressed, [1]),
                case["type"],
                _bits(case["input_bits"], expressed),
                None if poison else np.array([case["output"]], dtype),
                "precondition_failed" if poison else None,
            )
        else:
            stored = np.array([case["input"]], dtype)
            expected = _bits(case["output_bits"], expressed)
            yield Conversion(name, "dequantize", "mlir", _tensor(case["type"], [1]), expressed, stored, expected)
    for index, case in enumerate(data["tensors"]):
        storage, expressed = _parts(case["type"])
        dtype = storage_dtype(storage)
        name = f"lower_quant_ops/tensors/{index}"
        if case["op"] == "qcast":
            real = _real(case["input"], expressed)
            stored = np.array(case["output"], dtype)
            yield Conversion(name, "quantize", "mlir", _tensor(expressed, case["shape"]), case["type"], real, stored)
        else:
            stored, real = np.array(case["input"], dtype), _real(case["output"], expressed)
            input_type = _tensor(case["type"], case["shape"])
            yield Conversion(name, "dequantize", "mlir", input_type, expressed, stored, real)


def stablehlo_conversions() -> Iterator[Conversion]:
    """What StableHLO's interpreter gave for the lowered operations."""
    executed = load("stablehlo_passes")["quant_to_math"]["executed"]
    for index, case in enumerate(executed["uniform_quantize"]):
        storage, expressed = _parts(case["type"])
        yield Conversion(
            f"stablehlo_passes/uniform_quantize/{index}",
            "quantize",
            "stablehlo",
            _tensor(expressed, case["shape"]),
            case["type"],
            _real(case["input"], expressed),
            np.array(case["output"], storage_dtype(storage)),
        )
    for index, case in enumerate(executed["uniform_dequantize"]):
        storage, expressed = _parts(case["type"])
        output = [float.fromhex(value) for value in case["output_hex"]]
        yield Conversion(
            f"stablehlo_passes/uniform_dequantize/{index}",
            "dequantize",
            "stablehlo",
            _tensor(case["type"], case["shape"]),
            expressed,
            np.array(case["input"], storage_dtype(storage)),
            _real(output, expressed),
        )
