"""tflite_quantize_op.json: LiteRT's kernels, run as one-op models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.oracles import quantization as oracle
from tests.vector_cases.conversion import Conversion, Quantized, floats, load, plain


def litert_conversions() -> Iterator[Conversion]:
    """tflite_quantize_op.json: what the reference kernels (BUILTIN_REF) gave."""
    data = load("tflite_quantize_op")

    def case_of(
        name: str,
        case: Any,
        x: Sequence[str],
        expected: Sequence[int],
        shape: Sequence[int],
        profile: str = "litert",
    ) -> Conversion:
        scales = case["scale"] if isinstance(case["scale"], list) else [case["scale"]]
        zero_points = case["zp"] if isinstance(case["zp"], list) else [case["zp"]]
        quantized = Quantized(case.get("out", "i8"), [float(s) for s in floats(scales)], zero_points, case.get("axis"))
        output = np.array(expected, quantized.dtype)
        return Conversion(name, "quantize", profile, plain("f32", *shape), str(quantized), floats(x), output)

    for index, case in enumerate(data["float_to_int"]):
        name, count = f"tflite_quantize_op/float_to_int/{index}", len(case["x"])
        yield case_of(name, case, case["x"], case["ref"], [count])
        if case["default_kernel"] == "xnnpack":
            yield case_of(f"{name}/default", case, case["x"], case["default"], [count], "litert_xnnpack")
    for index, case in enumerate(data["float_to_int_special"]):
        for part in ("vector", "tail"):
            expected = case[part]["ref"]
            name = f"tflite_quantize_op/float_to_int_special/{index}/{part}"
            yield case_of(name, case, case["x"][: len(expected)], expected, [len(expected)])
            if case["out"] not in ("i8", "u8"):
                continue
            yield case_of(
                f"{name}/default",
                case,
                case["x"][: len(expected)],
                case[part]["default"],
                [len(expected)],
                "litert_xnnpack",
            )
    for index, case in enumerate(data["float_to_int4"]):
        int4 = {**case, "out": "i4"}
        yield case_of(f"tflite_quantize_op/float_to_int4/{index}", int4, case["x"], case["ref"], [len(case["x"])])
    for index, case in enumerate(data["per_channel_float_to_int8"]):
        name = f"tflite_quantize_op/per_channel_float_to_int8/{index}"
        yield case_of(name, case, case["x"], case["ref"], case["shape"])
    for group in ("requantize", "int16_to_int32"):
        for index, case in enumerate(data[group]):
            source, target = (
                Quantized(case.get(side, default), [oracle.from_bits(case[f"{side}_scale"])], [case[f"{side}_zp"]])
                for side, default in (("in", "i16"), ("out", "i32"))
            )
            yield Conversion(
                f"tflite_quantize_op/{group}/{index}",
                "requantize",
                "litert",
                source.tensor(len(case["x"])),
                str(target),
                np.array(case["x"], source.dtype),
                np.array(case.get("ref", case.get("y")), target.dtype),
            )
    for index, case in enumerate(data["dequantize"]):
        source = Quantized(case["in"], [oracle.from_bits(case["scale"])], [case["zp"]])
        yield Conversion(
            f"tflite_quantize_op/dequantize/{index}",
            "dequantize",
            "litert",
            source.tensor(len(case["x"])),
            "f32",
            np.array(case["x"], source.dtype),
            floats(case["ref"]),
        )
    yield from _litert_output_stages(data["accumulator_requant"])


def _litert_output_stages(cases: Any) -> Iterator[Conversion]:
    """The convolutions' int32 accumulators. d = s_in * s_w / s_out in f64 (C.2), so the multipliers are given."""
    for index, case in enumerate(cases):
        # FULLY_CONNECTED's reference kernel scales in f64, and 64-bit accumulators have a rule of their own (C.8).
        if case["op"] == "FULLY_CONNECTED" or case["bias"] != "i32":
            continue
        weights = [float(s) for s in floats(case["weight_scale"])]
        input_scale, output_scale = oracle.from_bits(case["in_scale"]), oracle.from_bits(case["out_scale"])
        multipliers = tuple(oracle.litert_multiplier(input_scale * weight / output_scale) for weight in weights)
        count = len(case["acc"])
        source = Quantized("i32", [1.0] * len(weights), [0], 0 if len(weights) > 1 else None)
        target = Quantized(case["out"], [1.0], [case["out_zp"]])
        yield Conversion(
            f"tflite_quantize_op/accumulator_requant/{index}",
            "requantize",
            "litert",
            source.tensor(count),
            str(target),
            np.array(case["acc"], "<i4"),
            np.array(case["ref"], target.dtype),
            multipliers=multipliers,
        )
