"""Known answers of conversions: for each system, operation and kernel, a digest of what the exact oracle gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.requantize import plan_requantize
from requant.formats.elements import FloatElement
from requant.mlir import parse_type
from requant.mlir.types import TensorType, Type
from requant.plan.plan import Plan
from requant.profiles import Operation, Rounding
from requant.self_test.digest import digest

Array = NDArray[Any]

_PLANS: dict[Operation, Callable[[TensorType, Type, str], Plan]] = {
    Operation.QUANTIZE: plan_quantize,
    Operation.DEQUANTIZE: plan_dequantize,
    Operation.REQUANTIZE: plan_requantize,
}

# Longer than a vector of any kernel, and no multiple of one: the vectors and the rest are both run.
ELEMENTS = 1027
CHANNELS = 13


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A conversion of the inputs that `inputs` makes for `input_element`, and the start of the output's SHA-256.

    `scheme` replaces the profile's, in requantize; `rounding` in casts.
    """

    operation: Operation
    profile: str
    input_element: str
    output_element: str
    digest: str
    scheme: str | None = None
    rounding: Rounding | None = None

    def plan(self) -> Plan:
        """Return the plan of the conversion."""
        tensor = parse_type(f"tensor<{ELEMENTS // CHANNELS}x{CHANNELS}x{self.input_element}>")
        assert isinstance(tensor, TensorType)
        if self.scheme is not None:
            return plan_requantize(tensor, parse_type(self.output_element), self.profile, scheme=self.scheme)
        if self.rounding is not None:
            return plan_quantize(tensor, parse_type(self.output_element), self.profile, rounding=self.rounding)
        return _PLANS[self.operation](tensor, parse_type(self.output_element), self.profile)

    def actual(self) -> str:
        """Return what this machine gives, as `digest`."""
        plan = self.plan()
        output = np.empty(ELEMENTS, plan.output_dtype)
        plan.run(inputs(plan), output)
        return digest([output])


def inputs(plan: Plan) -> Array:
    """Return the elements that a known answer is about.

    Floats are k * 0.25 for k from -513 to 513, so that every tie of a scale of 0.5 is among them, for bf16 without what
    it does not hold; integers are k * 2654435761 mod 2^32, the low bits of which are taken as the storage.
    """
    element = plan.input_type.element
    if isinstance(element, FloatElement):
        values = (np.arange(ELEMENTS, dtype=np.float32) - 513) * np.float32(0.25)
        return (
            (values.view(np.uint32) >> 16).astype(np.uint16)
            if element.name == "bf16"
            else values.astype(plan.input_dtype)
        )
    bits = (np.arange(ELEMENTS, dtype=np.uint64) * 2654435761 & 0xFFFFFFFF).astype(np.uint32)
    if plan.input_bounds is not None:
        lowest, highest = plan.input_bounds
        return (lowest + bits.astype(np.int64) % (highest - lowest + 1)).astype(plan.input_dtype)
    return bits.astype(plan.input_dtype)


def _known(operation: Operation, source: str, target: str, digests: dict[str, str]) -> Iterator[KnownAnswer]:
    for profile, expected in digests.items():
        yield KnownAnswer(operation, profile, source, target, expected)


_I8 = "!quant.uniform<i8:f32, 0.5:3>"
_I8_COARSE = "!quant.uniform<i8:f32, 1.5:3>"
_I32 = "!quant.uniform<i32:f32, 1.0e-7>"
# 2^-8 of the other side's scale: one element in 256 is a tie.
_I16 = "!quant.uniform<i16:f32, 0.001953125>"

_I8_FINE = "!quant.uniform<i8:f32, 0.125:-3>"

# Distances of 0.75, 0.5 and 1.25: some inputs lie in the middle between two values.
_QUANTILE = "!quant.uniform<!quant.quantile<ui2:f32, {-1.0, -0.25, 0.25, 1.5}>:f32, 16.0>"

# Parameters along the last axis, with which no reciprocal stands in for a division.
_SCALES = (0.5, 0.25, 1.5, 0.3, 0.75, 2.0, 0.1, 0.125, 0.7, 0.9, 1.1, 0.05, 3.0)
_PARAMETERS = ", ".join(f"{scale}:{zero_point}" for zero_point, scale in enumerate(_SCALES, -6))

_I16_COARSE = "!quant.uniform<i16:f32, 0.3:-7>"
_I32_WHOLE = "!quant.uniform<i32:f32, 0.5>"
_I32_COARSE = "!quant.uniform<i32:f32, 0.3>"


def _along_the_axis(storage: str, expressed: str = "f32") -> str:
    return f"!quant.uniform<{storage}:{expressed}:1, {{{_PARAMETERS}}}>"


_QUANTILE_F64 = "!quant.uniform<!quant.quantile<ui2:f64, {-1.0, -0.25, 0.25, 1.5}>:f64, 16.0>"
_F8 = "!quant.uniform<f8E4M3FN:f32, 0.5>"

_EVEN_BEFORE = "49fc3178d3204afe"
_EVEN_AFTER = "edda8d6e102c9e73"
_AWAY = "34b566630f38f7e9"
_REAL = "f3a824ebf3a35cbc"

# By the rounding that tells the schemes apart.
_OF_SCHEMES = {
    "442d4f4191883639": ("litert_emulate_float", "gemmlowp", "cmsis_nn", "xnnpack_gemmlowp"),
    "491b0aa63f77358d": (
        "litert_int64", "cmsis_nn_single_rounding", "cmsis_nn_int64", "ethos_u", "ethos_u_reduced", "xnnpack_rndnu",
        "fbgemm_fixed_point", "tosa_scale16", "vnclip_rnu",
    ),
    "b54c8e463b5a3c5c": ("litert_float", "xnnpack_rndna"),
    "34a7a61c7434aefe": ("arm_vector",),
    "fda2728435629732": (
        "xnnpack_fp32", "fbgemm", "onnxruntime", "tosa_inexact_round", "tosa_scale16_inexact_round",
        "vnclip_rne",
    ),
    "a7503cc75ffeb24d": ("onnx_reference", "stablehlo"),
    "3d4ec0a59a1b0b50": ("vnclip_rdn",),
    "6fd2a4230a61530b": ("vnclip_rod",),
}  # fmt: skip

_OF_ROUNDINGS = {
    Rounding.NEAREST_EVEN: "e1ac13404ae02238",
    Rounding.NEAREST_AWAY: "11b0c92c25f68f07",
    Rounding.TOWARD_ZERO: "85a5673fd2b3af4a",
    Rounding.FLOOR: "d80d535877a3160b",
    Rounding.CEILING: "8013f40a8196100f",
    Rounding.ODD: "660a6e6681c3426e",
    Rounding.STOCHASTIC: "b02917ff59b1f85d",
}

KNOWN_ANSWERS = (
    *_known(
        Operation.QUANTIZE,
        "f32",
        _I8,
        {
            "stablehlo": _EVEN_BEFORE,
            "onednn": _EVEN_BEFORE,
            "torch": _EVEN_BEFORE,
            "onnx": _EVEN_AFTER,
            "onnx_1_32": _EVEN_AFTER,
            "onnx_reference": _EVEN_AFTER,
            "litert_xnnpack": _EVEN_AFTER,
            "torch_decomposed": _EVEN_AFTER,
            "torch_2_14": _EVEN_AFTER,
            "litert": _AWAY,
        },
    ),
    *_known(
        Operation.QUANTIZE,
        "f32",
        _I8_COARSE,
        {"mlir": "51a6aaeb4011e24d", "stablehlo": "ff0bdded8d2d5061", "onednn": "ff0bdded8d2d5061"},
    ),
    *_known(Operation.QUANTIZE, "f32", _QUANTILE, {"quantile": "feea0aa9c022a424"}),
    *_known(
        Operation.DEQUANTIZE,
        _I8,
        "f32",
        dict.fromkeys(("stablehlo", "mlir", "onnx", "onnx_reference", "onednn", "litert", "torch"), _REAL),
    ),
    *_known(
        Operation.REQUANTIZE,
        _I32,
        _I8,
        dict.fromkeys(
            ("litert", "litert_single_rounding", "litert_xnnpack", "onnx", "torch", "tosa", "tosa_double_round"),
            "190d91121d2bed8f",
        ),
    ),
    *_known(
        Operation.REQUANTIZE,
        _I8_FINE,
        _I8,
        {
            "stablehlo": "a72fe2d4f9a01926",
            "onnx_reference": "a72fe2d4f9a01926",
            "onednn": "a72fe2d4f9a01926",
            "onnx": "7e0b5b32b5b42509",
            "torch": "7e0b5b32b5b42509",
            "torch_decomposed": "7e0b5b32b5b42509",
            "litert_xnnpack": "3513dd98e22fdf44",
        },
    ),
    *_known(
        Operation.REQUANTIZE,
        _I16,
        _I8,
        {
            "litert": "442d4f4191883639",
            "litert_single_rounding": "491b0aa63f77358d",
            "tosa": "491b0aa63f77358d",
            "tosa_double_round": "442d4f4191883639",
        },
    ),
    *(
        KnownAnswer(Operation.REQUANTIZE, "litert", _I16, _I8, expected, scheme)
        for expected, schemes in _OF_SCHEMES.items()
        for scheme in schemes
    ),
    # What is above leaves these kernels out.
    KnownAnswer(Operation.QUANTIZE, "onnx", "f32", _along_the_axis("i8"), "0975d18f6e2d67f5"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "f32", _along_the_axis("i16"), "7c618dfeb44f4407"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "f32", "!quant.uniform<i8:f32, 0.3:3>", "e232fdd255b3239c"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "f32", _I16_COARSE, "2193fc3dc2ff0fb5"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "f32", _I32_COARSE, "7cbcd0d37d3ed47f"),
    KnownAnswer(Operation.QUANTIZE, "stablehlo", "f32", _along_the_axis("i8"), "adb6bd487c6a818b"),
    KnownAnswer(Operation.QUANTIZE, "stablehlo", "f32", _along_the_axis("i16"), "79403c666274c050"),
    KnownAnswer(Operation.QUANTIZE, "stablehlo", "f32", _I16_COARSE, "8d8c261276e58e68"),
    KnownAnswer(Operation.QUANTIZE, "stablehlo", "f32", _I32_COARSE, "7cbcd0d37d3ed47f"),
    KnownAnswer(Operation.QUANTIZE, "torch", "f32", _I32_COARSE, "0be47f2dc7494983"),
    KnownAnswer(Operation.QUANTIZE, "litert", "f32", _along_the_axis("i8"), "8a98d5a475dcf5fc"),
    KnownAnswer(Operation.QUANTIZE, "litert", "f32", _along_the_axis("i16"), "b8a084ff12d33fd8"),
    KnownAnswer(Operation.QUANTIZE, "litert", "f32", _I16_COARSE, "ee02175747cd53d7"),
    KnownAnswer(Operation.QUANTIZE, "litert", "f32", _I32_COARSE, "d9f4e7c89af1c2aa"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "f16", _along_the_axis("i8", "f16"), "f32ddf6daca0a977"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "bf16", _along_the_axis("i8", "bf16"), "615fede0b13c887a"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "f16", "!quant.uniform<i8:f16, 0.5:3>", "edda8d6e102c9e73"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "bf16", "!quant.uniform<i8:bf16, 0.5:3>", "de9c65915f1e8ee0"),
    KnownAnswer(Operation.QUANTIZE, "stablehlo", "f16", "!quant.uniform<i8:f16, 0.3:3>", "3ba67468029355c6"),
    KnownAnswer(Operation.QUANTIZE, "stablehlo", "f16", "!quant.uniform<i32:f16, 0.3:3>", "5cdd7c607f266d1b"),
    KnownAnswer(Operation.QUANTIZE, "stablehlo", "f64", "!quant.uniform<i8:f64, 0.3:3>", "3ba67468029355c6"),
    KnownAnswer(Operation.QUANTIZE, "quantile", "f64", _QUANTILE_F64, "feea0aa9c022a424"),
    KnownAnswer(Operation.QUANTIZE, "onnx", "f32", _F8, "2e33ab43b5aafb8b"),
    KnownAnswer(Operation.QUANTIZE, "stablehlo", "f64", "f8E5M2", "e1ac13404ae02238"),
    KnownAnswer(Operation.QUANTIZE, "ml_dtypes", "f32", "f8E8M0FNU", "070107739a0fb1da"),
    *(
        KnownAnswer(Operation.QUANTIZE, "ofp8", "f32", "f8E5M2", expected, rounding=rounding)
        for rounding, expected in _OF_ROUNDINGS.items()
    ),
    KnownAnswer(Operation.QUANTIZE, "gfloat", "f32", "f8E4M3FN", "b8585a441315613a"),
    KnownAnswer(Operation.QUANTIZE, "softfloat", "f64", "bf16", "f58c8e7222f27559", rounding=Rounding.ODD),
    KnownAnswer(Operation.QUANTIZE, "riscv", "bf16", "f8E4M3FN", "6a68957de13fa2d8", rounding=Rounding.NEAREST_AWAY),
    KnownAnswer(Operation.QUANTIZE, "ptx", "f16", "f4E2M1FN", "2caad5f5893f951a"),
    KnownAnswer(Operation.DEQUANTIZE, "litert", _I32_COARSE, "f32", "c463d94b8e4d23df"),
    KnownAnswer(Operation.DEQUANTIZE, "onnx", "!quant.uniform<i8:f16, 0.3:3>", "f16", "27c3901634e1f043"),
    KnownAnswer(Operation.DEQUANTIZE, "stablehlo", "!quant.uniform<i32:f16, 2.0e-5>", "f16", "d78763fe923f2a03"),
    KnownAnswer(Operation.DEQUANTIZE, "stablehlo", "!quant.uniform<i8:f64, 0.3:3>", "f64", "6908065177ad26ad"),
    KnownAnswer(Operation.DEQUANTIZE, "quantile", _QUANTILE, "f32", "d0d77f4862c785a1"),
    KnownAnswer(Operation.DEQUANTIZE, "quantile", _QUANTILE_F64, "f64", "269a31751f108278"),
    KnownAnswer(Operation.DEQUANTIZE, "onnx", _F8, "f32", "59af0fdabcf193a2"),
    KnownAnswer(Operation.REQUANTIZE, "stablehlo", _I8_FINE, _I32_COARSE, "d9dad00d8034d9a8"),
    KnownAnswer(Operation.REQUANTIZE, "litert", "!quant.uniform<i32:f32, 0.49999997>", _I32_WHOLE, "d153c9e3e2b28f35"),
)
