"""torch_quantize.json: PyTorch's eager quantized tensors and its quantized_decomposed operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.vector_cases.conversion import STORAGE, Conversion, Quantized, floats, load, plain


def _scales(case: Any) -> list[float]:
    if "scale_f64" in case:
        return [float.fromhex(case["scale_f64"])]
    given = case["scale"] if isinstance(case["scale"], list) else [case["scale"]]
    return [float(s) for s in floats(given)]


def _quantize(name: str, case: Any, profile: str) -> Conversion:
    zero_points = case["zp"] if isinstance(case["zp"], list) else [case["zp"]]
    axis = 0 if "per_channel" in case.get("op", "") else case.get("axis")
    x = floats(case["x"])
    shape = case.get("shape", [1, x.size] if axis is not None else [x.size])
    quantized = Quantized(STORAGE[case["dtype"]], _scales(case), zero_points, axis)
    stored = np.array(case["q"], quantized.dtype)
    return Conversion(name, "quantize", profile, plain("f32", *shape), str(quantized), x, stored)


def torch_conversions() -> Iterator[Conversion]:
    """All quantizations and dequantizations; fake_quantize is both in one, and left to the operators."""
    data = load("torch_quantize")
    profiles = {
        "quantize_per_tensor": "torch",
        "quantize_per_channel": "torch",
        "decomposed_quantize_per_tensor": "torch_decomposed",
        "decomposed_quantize_per_tensor_tensor": "torch_decomposed",
        "decomposed_per_channel": "torch_decomposed",
    }
    for group, profile in profiles.items():
        for index, case in enumerate(data[group]):
            yield _quantize(f"torch_quantize/{group}/{index}", case, profile)
    for index, case in enumerate(data["special"]):
        profile = "torch_decomposed" if "decomposed" in case["op"] else "torch"
        yield _quantize(f"torch_quantize/special/{index}", case, profile)
    for index, case in enumerate(data["dequantize"]):
        quantized = Quantized(STORAGE[case["dtype"]], _scales(case), [case["zp"]])
        q = np.array(case["q"], quantized.dtype)
        yield Conversion(
            f"torch_quantize/dequantize/{index}",
            "dequantize",
            "torch",
            quantized.tensor(q.size),
            "f32",
            q,
            floats(case["y"]),
        )
