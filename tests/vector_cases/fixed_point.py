"""tflite_multiplier.json and tosa_rescale.json: multipliers, and multiplication by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.oracles import quantization as oracle
from tests.vector_cases.conversion import Conversion, Derivation, Quantized, load


def fixed_point_conversions() -> Iterator[Conversion]:
    """tflite_multiplier.json: the multiplication of int32 values, as requantizations with given multipliers."""
    data = load("tflite_multiplier")

    def conversions(
        name: str, case: Any, column: str, profile: str, multiplier: tuple[int, int]
    ) -> Iterator[Conversion]:
        # The file leaves out a single-rounding result of exactly -2^31 as if it did not fit int32; C's check takes it.
        exact = [
            oracle.multiply_single(x, *multiplier) if y is None else y
            for x, y in zip(case["x"], case[column], strict=True)
        ]
        pairs = [
            (x, exact_y if exact_y == -(2**31) and column == "single" else y)
            for x, y, exact_y in zip(case["x"], case[column], exact, strict=True)
        ]
        # A shift that C does not define is a fault of the multiplier; a result that does not fit, of the element.
        undefined = "precondition_failed" if abs(multiplier[1]) <= 31 else "parameter_invalid"
        groups = (
            ([x for x, y in pairs if y is not None], [y for _, y in pairs if y is not None], None),
            ([x for x, y in pairs if y is None], None, undefined),
        )
        for values, expected, error in groups:
            if values:
                yield Conversion(
                    f"{name}/{column}{'/undefined' if error else ''}",
                    "requantize",
                    profile,
                    Quantized("i32").tensor(len(values)),
                    str(Quantized("i32")),
                    np.array(values, "<i4"),
                    None if expected is None else np.array(expected, "<i4"),
                    error,
                    (multiplier,),
                )

    for group in ("multipliers", "ties"):
        for index, case in enumerate(data[group]):
            name = f"tflite_multiplier/{group}/{index}"
            yield from conversions(name, case, "double", "litert", (case["m"], case["shift"]))
            if "single" in case:
                single = (case.get("m_single", case["m"]), case.get("shift_single", case["shift"]))
                yield from conversions(name, case, "single", "litert_single_rounding", single)
    for index, case in enumerate(data["srdhm"]):
        # With shift 0 the double-rounding multiplication is the high multiplication alone.
        one = {"x": [case["a"]], "double": [case["y"]]}
        yield from conversions(f"tflite_multiplier/srdhm/{index}", one, "double", "litert", (case["b"], 0))


def tosa_conversions() -> Iterator[Conversion]:
    """tosa_rescale.json: RESCALE with scale32, SINGLE_ROUND and DOUBLE_ROUND."""
    errors = {"valid": None, "error": "unsupported", "unpredictable": "precondition_failed"}
    of_the_multiplier = {"shift range", "multiplier<0"}
    profiles = {"SINGLE_ROUND": "tosa", "DOUBLE_ROUND": "tosa_double_round"}
    for case in load("tosa_rescale")["cases"]:
        if not case["scale32"] or case["rounding_mode"] not in profiles or case["in_t"] == "i48":
            continue
        # Not expressible here: per channel without a dimension, and unsigned 32 bits, which conversions do not take.
        if case["per_channel"] and not case["shape"]:
            continue
        sides = []
        for side in ("in", "out"):
            storage = case[f"{side}_t"]
            if case[f"{side}put_unsigned"]:
                storage = storage.replace("i", "u")
            sides.append(storage)
        if "u32" in sides:
            continue
        axis = len(case["shape"]) - 1 if case["per_channel"] else None
        count = case["shape"][-1] if case["per_channel"] else 1
        source = Quantized(sides[0], [1.0] * count, [case["input_zp"]], axis)
        target = Quantized(sides[1], [1.0] * count, [case["output_zp"]], axis)
        valid = case["status"] == "valid"
        error = "parameter_invalid" if of_the_multiplier & set(case.get("reasons", ())) else errors[case["status"]]
        yield Conversion(
            f"tosa_rescale/{case['id']}",
            "requantize",
            profiles[case["rounding_mode"]],
            source.tensor(*case["shape"]),
            str(target),
            np.array(case["values"], source.dtype),
            np.array(case["output"], target.dtype) if valid else None,
            error,
            tuple(zip(case["multiplier"], case["shift"], strict=True)),
        )


def fixed_point_derivations() -> list[Derivation]:
    """The multiplier derivations of both files."""
    cases = []
    for index, case in enumerate(load("tflite_multiplier")["multipliers"]):
        name = f"tflite_multiplier/multipliers/{index}"
        cases.append(Derivation(name, "litert", case["real"], case["m"], case["shift"]))
        if "m_single" in case:
            cases.append(
                Derivation(name, "litert_single_rounding", case["real"], case["m_single"], case["shift_single"])
            )
        if "m_emulate_float" in case:
            pair = case["m_emulate_float"], case["shift_emulate_float"]
            cases.append(Derivation(name, "litert_emulate_float", case["real"], *pair))
    for index, case in enumerate(load("tflite_multiplier")["softmax_scaling"]):
        # LiteRT's PreprocessSoftmaxScaling: the factor is at most the largest that the build's multipliers stand for.
        factor = float.fromhex(case["beta"]) * float.fromhex(case["scale"]) * 2.0 ** (31 - case["integer_bits"])
        for column, scheme, most in (
            ("double", "litert", 2.0**31 - 1),
            ("single", "litert_single_rounding", 2.0**30 - 1),
        ):
            name = f"tflite_multiplier/softmax_scaling/{index}"
            cases.append(Derivation(name, scheme, min(factor, most).hex(), *case[column]))
    for index, case in enumerate(load("tosa_rescale")["multiplier_shift"]["cases"]):
        scheme = "tosa" if case["width"] == 32 else "tosa_scale16"
        error = None if case["mlir_ok"] else "parameter_invalid"
        name = f"tosa_rescale/multiplier_shift/{index}"
        cases.append(Derivation(name, scheme, case["scale_hex"], case["mlir_multiplier"], case["mlir_shift"], error))
    return cases
