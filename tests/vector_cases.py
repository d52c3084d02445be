"""The cases of `tests/vectors`, made by the real systems, in one form that core and every HTTP face are tested with.

What a file holds beyond the operations that exist here (other element types, other systems' rules) is skipped by name,
so that nothing is skipped by accident.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests import oracle

VECTORS = Path(__file__).parent / "vectors"
Array = NDArray[Any]

_STORAGE = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32"}
_STORAGE |= {name: name for name in ("i8", "u8", "i16", "u16", "i32")}
_DTYPE = {"i8": "|i1", "u8": "|u1", "i16": "<i2", "u16": "<u2", "i32": "<i4"}


@dataclass(frozen=True)
class Conversion:
    """One conversion: the types, the input, and the output's bits or the code of the error that is due."""

    name: str
    operation: str
    profile: str
    input_type: str
    output_type: str
    values: Array
    expected: Array | None
    error: str | None = None
    multipliers: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Derivation:
    """One multiplier: the factor, and multiplier and shift or the code of the error that is due."""

    name: str
    scheme: str
    factor: str
    multiplier: int = 0
    shift: int = 0
    error: str | None = None


@dataclass
class _Quantized:
    """Writes `!quant.uniform` text."""

    storage: str
    scales: Sequence[float] = (1.0,)
    zero_points: Sequence[int] = (0,)
    axis: int | None = None
    parameters: list[str] = field(init=False)

    def __post_init__(self) -> None:
        zero_points = list(self.zero_points) * (len(self.scales) if len(self.zero_points) == 1 else 1)
        self.parameters = [f"{s:.17e}:{z}" for s, z in zip(self.scales, zero_points, strict=True)]

    def __str__(self) -> str:
        storage = _STORAGE[self.storage]
        if self.axis is None:
            return f"!quant.uniform<{storage}:f32, {self.parameters[0]}>"
        return f"!quant.uniform<{storage}:f32:{self.axis}, {{{', '.join(self.parameters)}}}>"

    def tensor(self, *shape: int) -> str:
        return f"tensor<{''.join(f'{size}x' for size in shape)}{self}>"

    @property
    def dtype(self) -> str:
        return _DTYPE[_STORAGE[self.storage]]


@cache
def load(name: str) -> Any:
    """Read one file of vectors."""
    return json.loads((VECTORS / f"{name}.json").read_text())


def floats(patterns: Sequence[str]) -> Array:
    """f32 values of bit patterns in hexadecimal."""
    return np.array([int(pattern, 16) for pattern in patterns], "<u4").view("<f4")


def _plain(element: str, *shape: int) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def onnx_conversions() -> Iterator[Conversion]:
    """ort_quantize.json: the f32 cases with 8- and 16-bit storage."""
    data = load("ort_quantize")

    def quantize(name: str, case: Any, expected: str, shape: Sequence[int], quantized: _Quantized) -> Conversion:
        output = np.array(case[expected], quantized.dtype)
        return Conversion(name, "quantize", "onnx", _plain("f32", *shape), str(quantized), floats(case["x"]), output)

    for group, expected in (("quantize", "q"), ("special", "ort"), ("odd_scales", "ort")):
        for index, case in enumerate(data[group]):
            scale = oracle.from_bits(case["scale"])
            # The other widths, and scales that are not positive and finite, are not types of this language (yet).
            if case["dtype"] in _STORAGE and 0 < scale < float("inf"):
                quantized = _Quantized(case["dtype"], [scale], [case["zp"]])
                yield quantize(f"ort_quantize/{group}/{index}", case, expected, [len(case["x"])], quantized)
    for index, case in enumerate(data["per_axis"]):
        quantized = _Quantized(
            case.get("dtype", "uint8"),
            [float(s) for s in floats(case["scale"])],
            case["zp"],
            case["axis"] % len(case["shape"]),
        )
        yield quantize(f"ort_quantize/per_axis/{index}", case, "q", case["shape"], quantized)
    for group, expected in (("dequantize", "y"), ("int32_dequantize", "ort")):
        for index, case in enumerate(data[group]):
            dtype = case.get("dtype", "int32")
            if dtype not in _STORAGE:
                continue
            quantized = _Quantized(dtype, [oracle.from_bits(case["scale"])], [case["zp"]])
            # A zero point on int32 is against the ONNX text; onnxruntime wraps there, and we refuse.
            refused = dtype == "int32" and case["zp"] != 0
            yield Conversion(
                f"ort_quantize/{group}/{index}",
                "dequantize",
                "onnx",
                quantized.tensor(len(case["q"])),
                "f32",
                np.array(case["q"], quantized.dtype),
                None if refused else floats(case[expected]),
                "unsupported" if refused else None,
            )


def litert_conversions() -> Iterator[Conversion]:
    """tflite_quantize_op.json: what the reference kernels (BUILTIN_REF) gave."""
    data = load("tflite_quantize_op")

    def case_of(name: str, case: Any, x: Sequence[str], expected: Sequence[int], shape: Sequence[int]) -> Conversion:
        scales = case["scale"] if isinstance(case["scale"], list) else [case["scale"]]
        zero_points = case["zp"] if isinstance(case["zp"], list) else [case["zp"]]
        quantized = _Quantized(case.get("out", "i8"), [float(s) for s in floats(scales)], zero_points, case.get("axis"))
        output = np.array(expected, quantized.dtype)
        return Conversion(name, "quantize", "litert", _plain("f32", *shape), str(quantized), floats(x), output)

    for index, case in enumerate(data["float_to_int"]):
        yield case_of(f"tflite_quantize_op/float_to_int/{index}", case, case["x"], case["ref"], [len(case["x"])])
    for index, case in enumerate(data["float_to_int_special"]):
        for part in ("vector", "tail"):
            expected = case[part]["ref"]
            name = f"tflite_quantize_op/float_to_int_special/{index}/{part}"
            yield case_of(name, case, case["x"][: len(expected)], expected, [len(expected)])
    for index, case in enumerate(data["per_channel_float_to_int8"]):
        name = f"tflite_quantize_op/per_channel_float_to_int8/{index}"
        yield case_of(name, case, case["x"], case["ref"], case["shape"])
    for group in ("requantize", "int16_to_int32"):
        for index, case in enumerate(data[group]):
            source, target = (
                _Quantized(case.get(side, default), [oracle.from_bits(case[f"{side}_scale"])], [case[f"{side}_zp"]])
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
        source = _Quantized(case["in"], [oracle.from_bits(case["scale"])], [case["zp"]])
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
        source = _Quantized("i32", [1.0] * len(weights), [0], 0 if len(weights) > 1 else None)
        target = _Quantized(case["out"], [1.0], [case["out_zp"]])
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
                    _Quantized("i32").tensor(len(values)),
                    str(_Quantized("i32")),
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
        source = _Quantized(sides[0], [1.0] * count, [case["input_zp"]], axis)
        target = _Quantized(sides[1], [1.0] * count, [case["output_zp"]], axis)
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


def conversions() -> list[Conversion]:
    """All conversions of the vectors."""
    return [*onnx_conversions(), *litert_conversions(), *fixed_point_conversions(), *tosa_conversions()]


def derivations() -> list[Derivation]:
    """All multiplier derivations of the vectors."""
    cases = []
    for index, case in enumerate(load("tflite_multiplier")["multipliers"]):
        name = f"tflite_multiplier/multipliers/{index}"
        cases.append(Derivation(name, "litert", case["real"], case["m"], case["shift"]))
        if "m_single" in case:
            cases.append(
                Derivation(name, "litert_single_rounding", case["real"], case["m_single"], case["shift_single"])
            )
    for index, case in enumerate(load("tosa_rescale")["multiplier_shift"]["cases"]):
        scheme = "tosa" if case["width"] == 32 else "tosa_scale16"
        error = None if case["mlir_ok"] else "parameter_invalid"
        name = f"tosa_rescale/multiplier_shift/{index}"
        cases.append(Derivation(name, scheme, case["scale_hex"], case["mlir_multiplier"], case["mlir_shift"], error))
    return cases


def represented(multiplier: int, shift: int, scheme: str) -> Fraction:
    """The real value of a multiplier and shift: LiteRT's shift is left of 2^-31, TOSA's is right."""
    return Fraction(multiplier) * Fraction(2) ** (shift - 31 if scheme.startswith("litert") else -shift)
