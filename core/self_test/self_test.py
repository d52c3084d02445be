"""Known answers, computed anew on this machine before any work is taken.

A profile's bits never change, but the machine code that makes them does: with the CPU, with numba, with a cache that
was made elsewhere. So each start runs every kernel, through the same plans as requests and by the rules of every
system, and compares a digest of all output bytes with the one stated here. `tests/core/self_test/test_self_test.py`
derives every digest from the exact oracle.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.convert.dequantize import plan_dequantize
from core.convert.quantize import plan_quantize
from core.convert.requantize import plan_requantize
from core.errors import SelfTestError
from core.formats.elements import FloatElement
from core.integer.conv2d import Padding, Window, conv2d_integers
from core.integer.matmul import matmul_integers
from core.kernels.jit.warmup import came_from_cache, compile_kernels, recompile_kernels
from core.mlir import parse_type
from core.mlir.types import TensorType, Type
from core.plan.plan import Plan
from core.profiles import Operation
from core.profiles.integer_rule import Accumulator
from core.self_test.known_calls import KNOWN_CALLS

_log = logging.getLogger(__name__)

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

    `scheme` replaces the profile's, in requantize.
    """

    operation: Operation
    profile: str
    input_element: str
    output_element: str
    digest: str
    scheme: str | None = None

    def plan(self) -> Plan:
        """Return the plan of the conversion."""
        tensor = parse_type(f"tensor<{ELEMENTS // CHANNELS}x{CHANNELS}x{self.input_element}>")
        assert isinstance(tensor, TensorType)
        if self.scheme is not None:
            return plan_requantize(tensor, parse_type(self.output_element), self.profile, scheme=self.scheme)
        return _PLANS[self.operation](tensor, parse_type(self.output_element), self.profile)

    def found(self) -> str:
        """Return what this machine gives, as `digest`."""
        plan = self.plan()
        output = np.empty(ELEMENTS, plan.output_dtype)
        plan.run(inputs(plan), output)
        return digest(output)


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


def digest(output: Array) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the output's bytes."""
    return hashlib.sha256(output.tobytes()).hexdigest()[:16]


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
        "fbgemm_fixed_point", "tosa_scale16",
    ),
    "b54c8e463b5a3c5c": ("litert_float", "xnnpack_rndna"),
    "34a7a61c7434aefe": ("arm_vector",),
    "fda2728435629732": (
        "xnnpack_fp32", "fbgemm", "onnxruntime", "tosa_inexact_round", "tosa_scale16_inexact_round",
    ),
    "a7503cc75ffeb24d": ("onnx_reference", "stablehlo"),
}  # fmt: skip

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
    KnownAnswer(Operation.DEQUANTIZE, "litert", _I32_COARSE, "f32", "c463d94b8e4d23df"),
    KnownAnswer(Operation.DEQUANTIZE, "stablehlo", "!quant.uniform<i32:f16, 2.0e-5>", "f16", "d78763fe923f2a03"),
    KnownAnswer(Operation.DEQUANTIZE, "stablehlo", "!quant.uniform<i8:f64, 0.3:3>", "f64", "6908065177ad26ad"),
    KnownAnswer(Operation.DEQUANTIZE, "quantile", _QUANTILE, "f32", "d0d77f4862c785a1"),
    KnownAnswer(Operation.DEQUANTIZE, "quantile", _QUANTILE_F64, "f64", "269a31751f108278"),
    KnownAnswer(Operation.DEQUANTIZE, "onnx", _F8, "f32", "59af0fdabcf193a2"),
    KnownAnswer(Operation.REQUANTIZE, "stablehlo", _I8_FINE, _I32_COARSE, "d9dad00d8034d9a8"),
    KnownAnswer(Operation.REQUANTIZE, "litert", "!quant.uniform<i32:f32, 0.49999997>", _I32_WHOLE, "d153c9e3e2b28f35"),
)


@dataclass(frozen=True, slots=True)
class KnownSums:
    """Sums of products by one kind of kernel, of the operands that `factors` makes, and the start of their SHA-256.

    With `weights`, the shape OHWI of a 3 by 3 kernel, they are those of a convolution, else of a matrix product.
    """

    lhs: str
    rhs: str
    accumulator: Accumulator
    digest: str
    weights: tuple[int, int, int, int] | None = None

    def factors(self) -> tuple[Array, Array]:
        """Return operands whose numbers are the low bits of k * 2654435761, for k from 0 and from 100000 on."""
        shapes: tuple[tuple[int, ...], ...] = (13, 1037), (1037, 131)
        if self.weights is not None:
            shapes = (1, 9, 11, 37), self.weights
        made = []
        for first, shape, dtype in zip((0, 100_000), shapes, (self.lhs, self.rhs), strict=True):
            bits = (np.arange(first, first + prod(shape), dtype=np.uint64) * 2654435761 >> 7).astype(np.uint32)
            made.append(bits.astype(dtype).reshape(shape))
        return made[0], made[1]

    def sums(self) -> Array:
        """Return the sums of this machine."""
        lhs, rhs = self.factors()
        if self.weights is not None:
            window = Window(padding=Padding.SAME_UPPER, groups=lhs.shape[3] // rhs.shape[3])
            return conv2d_integers(lhs, rhs, 3, -5, window=window, accumulator=self.accumulator)
        return matmul_integers(lhs, rhs, 3, -5, accumulator=self.accumulator)

    def found(self) -> str:
        """Return what this machine gives, as `digest`."""
        return digest(self.sums())


# By the way that conv2d goes: an output channel for each input channel, two for each, few for all, more for all where
# tiles cannot be used, and so many that tiles are the cheaper way.
_DEPTHWISE = (37, 3, 3, 1)
_GROUPED = (74, 3, 3, 1)
_FEW = (5, 3, 3, 37)
_MORE = (9, 3, 3, 37)
_TILED = (64, 3, 3, 37)

KNOWN_SUMS = (
    KnownSums("int8", "int8", Accumulator.I32, "4058f424db9a386a"),
    KnownSums("uint8", "int8", Accumulator.I64, "024482e02fce22e4"),
    KnownSums("int16", "int8", Accumulator.I32, "2c09aa669afcd382"),
    KnownSums("int16", "int8", Accumulator.I64, "a2e435c2423f5b75"),
    KnownSums("int16", "int16", Accumulator.I64, "8997e959dba7d145"),
    KnownSums("int8", "int8", Accumulator.I32, "09ecbf5b256844e1", _DEPTHWISE),
    # What is above leaves these kernels out, where bytes are multiplied as such.
    KnownSums("int8", "int16", Accumulator.I64, "3d09913149a96fcc"),
    KnownSums("uint8", "uint16", Accumulator.I64, "59afd55813cf4ca0"),
    KnownSums("int16", "uint8", Accumulator.I64, "0771046bb1bbb38a"),
    KnownSums("uint8", "uint8", Accumulator.I32, "9fdb3119083bc778", _FEW),
    KnownSums("int16", "int8", Accumulator.I64, "4fa3970162fec9f1", _FEW),
    KnownSums("int16", "int8", Accumulator.I64, "caf8b9c4453692b7", _DEPTHWISE),
    KnownSums("uint8", "int8", Accumulator.I64, "a345a4c2fd98f93f", _GROUPED),
    KnownSums("uint8", "int8", Accumulator.I64, "301c7431c5721a7d", _FEW),
    KnownSums("int16", "int16", Accumulator.I32, "c82f403bc5a96c79", _DEPTHWISE),
    KnownSums("uint16", "int16", Accumulator.I32, "625e2c516fdae992", _GROUPED),
    KnownSums("int16", "int16", Accumulator.I64, "ae40885bc26f45b6", _MORE),
    KnownSums("uint8", "int8", Accumulator.I32, "b753dbf9d4540896", _TILED),
    KnownSums("int16", "int8", Accumulator.I32, "bdf86bc78e1a4f31", _TILED),
)


def _check(name: str, run: Callable[[], str], expected: str) -> None:
    try:
        found = run()
    except Exception as error:
        # Wrong numbers of a kernel can be refused, as input would be, by what comes after it.
        raise SelfTestError(f"{name} failed: {error}") from error
    if found != expected:
        raise SelfTestError(f"{name} gave {found}; expected {expected}")


def run_self_test() -> None:
    """Repeat every known answer. Raise SelfTestError naming the first that is wrong or that fails."""
    for call in KNOWN_CALLS:
        _check(call.name, call.found, call.digest)
    for each in KNOWN_SUMS:
        kind = "products" if each.weights is None else f"convolution with {each.weights} weights"
        _check(f"{kind} of {each.lhs} by {each.rhs} in {each.accumulator}", each.found, each.digest)
    for known in KNOWN_ANSWERS:
        name = f"{known.operation} of {known.input_element} to {known.output_element} under {known.profile}"
        _check(name, known.found, known.digest)


def prepare_kernels() -> int:
    """Compile or load every kernel, and see that they give the known answers. Return the number of specialisations.

    If they do not, and machine code of the cache was among them, compile all of it anew, once. Raise SelfTestError if
    that does not help.
    """
    count = compile_kernels()
    try:
        run_self_test()
    except SelfTestError as error:
        if not came_from_cache():
            raise
        _log.warning("Machine code of the cache computes wrongly: %s. All kernels are compiled anew.", error)
        recompile_kernels()
        run_self_test()
    return count
