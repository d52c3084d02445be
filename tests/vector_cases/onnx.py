"""ort_quantize.json: onnxruntime, and the ReferenceEvaluator where the file has it apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.oracles import quantization as oracle
from tests.vector_cases.conversion import Conversion, Quantized, floats, load, plain, storage_dtype

# The blocked cases name no type; all of them are int8.
_BLOCKED = "i8"


def _quantize(name: str, case: Any, expected: str, shape: Sequence[int], quantized: Quantized) -> Conversion:
    profile = "onnx_reference" if expected == "ref" else "onnx"
    output = np.array(case[expected], quantized.dtype)
    if "x_f16" in case:
        x = np.array([int(pattern, 16) for pattern in case["x_f16"]], "<u2").view("<f2")
        return Conversion(name, "quantize", profile, plain("f16", *shape), str(quantized), x, output)
    return Conversion(name, "quantize", profile, plain("f32", *shape), str(quantized), floats(case["x"]), output)


def _blocked(case: Any) -> str:
    """The sub-channel type of a blocked case: blocks along one axis, each index of the others on its own."""
    blocks = [
        case["block_size"] if axis == case["axis"] % len(case["shape"]) else 1 for axis in range(len(case["shape"]))
    ]
    parameters = [f"{float(scale):.17e}:{zero}" for scale, zero in zip(floats(case["scale"]), case["zp"], strict=True)]
    rows: list[str] = parameters
    for size in reversed(case["scale_shape"]):
        rows = ["{" + ", ".join(rows[i : i + size]) + "}" for i in range(0, len(rows), size)]
    listed = ", ".join(f"{axis}:{size}" for axis, size in enumerate(blocks))
    return f"!quant.uniform<{_BLOCKED}:f32:{{{listed}}}, {rows[0]}>"


def onnx_conversions() -> Iterator[Conversion]:
    """QuantizeLinear and DequantizeLinear to and from integers, by both implementations."""
    data = load("ort_quantize")
    for group, implementations in (("quantize", ("q",)), ("special", ("ort", "ref")), ("odd_scales", ("ort", "ref"))):
        for index, case in enumerate(data[group]):
            scale = oracle.from_bits(case["scale"])
            # Scales that are not positive and finite are not types of this language.
            if not 0 < scale < float("inf"):
                continue
            quantized = Quantized(case["dtype"], [scale], [case["zp"]])
            for which in implementations:
                yield _quantize(f"ort_quantize/{group}/{index}/{which}", case, which, [len(case["x"])], quantized)
    for index, case in enumerate(data["float16"]):
        scale = float(np.array(int(case["scale_f16"], 16), "<u2").view("<f2"))
        quantized = Quantized(case["dtype"], [scale], [case["zp"]], expressed="f16")
        for which in ("ort", "ref"):
            yield _quantize(f"ort_quantize/float16/{index}/{which}", case, which, [len(case["x_f16"])], quantized)
    for index, case in enumerate(data["per_axis"]):
        scales = [float(s) for s in floats(case["scale"])]
        axis = case["axis"] % len(case["shape"])
        quantized = Quantized(case.get("dtype", "uint8"), scales, case["zp"], axis)
        yield _quantize(f"ort_quantize/per_axis/{index}", case, "q", case["shape"], quantized)
    for index, case in enumerate(data["blocked"]):
        yield Conversion(
            f"ort_quantize/blocked/{index}",
            "quantize",
            "onnx",
            plain("f32", *case["shape"]),
            _blocked(case),
            floats(case["x"]),
            np.array(case["q"], storage_dtype(_BLOCKED)),
        )
    yield from _dequantizations(data)


def _dequantizations(data: Any) -> Iterator[Conversion]:
    for group, implementations in (("dequantize", ("y",)), ("int32_dequantize", ("ort", "ref"))):
        for index, case in enumerate(data[group]):
            dtype = case.get("dtype", "int32")
            quantized = Quantized(dtype, [oracle.from_bits(case["scale"])], [case["zp"]])
            for which in implementations:
                # A zero point on int32 is against the ONNX text; onnxruntime wraps there, and we refuse.
                refused = dtype == "int32" and case["zp"] != 0 and which == "ort"
                yield Conversion(
                    f"ort_quantize/{group}/{index}/{which}",
                    "dequantize",
                    "onnx_reference" if which == "ref" else "onnx",
                    quantized.tensor(len(case["q"])),
                    "f32",
                    np.array(case["q"], quantized.dtype),
                    None if refused else floats(case[which]),
                    "unsupported" if refused else None,
                )
