"""OCP microscaling (MX v1.0): blocks of 32 along the last axis, one E8M0 scale X = 2^e each.

    e = floor(log2 amax) - emax, clamped to [-127, 127]      element = RNE(x / X), magnitudes above the largest clamped

Libraries choose e differently (`MxRule`).

amax is the largest magnitude of the block, emax the exponent of the element's largest value; the logarithm is the exact
exponent, read from the bits. Where MX v1.0 leaves the choice to the implementation:

- amax = 0, and any amax below 2^(emax - 126), gives the smallest scale, 2^-127 (code 0x00). Zeros keep their sign.
- A NaN or an infinity anywhere in a block makes the scale NaN (0xFF), which makes the whole block NaN. Its elements are
  all written as code 0; rule TOSA writes what the reference model does, a code of a NaN, or of all exponent bits where
  the element has no NaN (MXINT8: 127), with the sign bit (MXINT8: -128) where the value is a NaN that has it.
- MXINT8 elements are 64ths in [-127, 127]; -128 is read as -2, and written only by rule TOSA, where 2^127 is too small.

TOSA's reference model rounds some MXINT8 quotients below 2^-48 to 1/64 and not to 0; that is not reproduced.
microxcaling is not among the rules: its exponent is the floor of an f32 logarithm, which depends on the mathematics
library below it for amax just under a power of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.blocks.blocking import block_count, check_length, flat_f32
from requant.convert.small_floats import check_codes, decode_table, small_float
from requant.errors import UnsupportedError
from requant.errors.names import entry_named
from requant.kernels.convert import blocks as kernels
from requant.kernels.convert.blocks import ExponentRule
from requant.mlir.types import BLOCK_FORMATS, BLOCK_SIZE, MXINT8

Array = NDArray[Any]

BLOCK = BLOCK_SIZE
_SCALE = "f8E8M0FNU"
_NAN_SCALE = 0xFF

MX_ELEMENTS: dict[str, str | None] = {
    name: None if element == MXINT8 else element for element, name in BLOCK_FORMATS.items()
}
"""The element type of each format; mxint8 has integers, 64ths of the scale."""


class MxRule(StrEnum):
    """The rule for the shared exponent."""

    OCP = "ocp"
    """floor(log2 amax) - emax: MX v1.0, and oneDNN's dynamic_mx."""

    TOSA = "tosa"
    """One more where RNE(amax / X) would be beyond the element's largest value: the TOSA 1.1 reference model."""

    FLOOR = "floor"
    """torchao's FLOOR: as ocp, but an infinity has an exponent, and the smallest scale counts as 2^-126 in x / X."""

    CEIL = "ceil"
    """torchao's CEIL: ceil(log2 amax) - emax; the rest as floor."""

    EVEN = "even"
    """torchao's EVEN: the exponent of amax rounded to the element's mantissa, ties away, - emax; the rest as floor."""

    RCEIL = "rceil"
    """torchao's RCEIL on a GPU: ceil(log2 f32(amax / largest)); elements of the smallest scale are not scaled."""


@dataclass(frozen=True, slots=True)
class _Exponent:
    """What the kernel is told of a rule; `smallest` is what elements of the smallest scale are multiplied by."""

    rule: ExponentRule
    smallest: float = 2.0**127
    infinity_is_nan: bool = True


_EXPONENTS = {
    MxRule.OCP: _Exponent(ExponentRule.FLOOR),
    MxRule.TOSA: _Exponent(ExponentRule.DOUBLED),
    MxRule.FLOOR: _Exponent(ExponentRule.FLOOR, 2.0**126, infinity_is_nan=False),
    MxRule.CEIL: _Exponent(ExponentRule.CEIL, 2.0**126, infinity_is_nan=False),
    MxRule.EVEN: _Exponent(ExponentRule.EVEN, 2.0**126, infinity_is_nan=False),
    MxRule.RCEIL: _Exponent(ExponentRule.QUOTIENT_CEIL, 1.0, infinity_is_nan=False),
}
_INFINITY_BITS = 0x7F800000


@dataclass(frozen=True, slots=True)
class MxTensor:
    """`shape` elements of `format_name`, flat in row-major order, one to a byte, and one scale for each 32 of them.

    `scales`: uint8, f8E8M0FNU codes. `elements`: uint8, codes of the element type; for mxint8 the bits of int8.
    """

    format_name: str
    shape: tuple[int, ...]
    scales: Array
    elements: Array


def mx_element(format_name: str) -> str | None:
    """Return the element type of an MX format (None for mxint8), or raise UnknownNameError."""
    return entry_named(MX_ELEMENTS, format_name, "MX format")


def _nan_element(element: str | None, rule: MxRule) -> tuple[int, int]:
    """The code of the elements of a block that is NaN, and what a NaN's sign flips in it."""
    if rule is not MxRule.TOSA:
        return 0, 0
    if element is None:
        return 127, 255
    format_ = small_float(element)
    exponent = ((1 << format_.exponent_bits) - 1) << format_.mantissa_bits
    mantissa = {"f8E4M3FN": 0b111, "f8E5M2": 0b10}.get(element, 0)
    return exponent | mantissa, format_.sign_bit


@cache
def _values(format_name: str) -> Array:
    element = mx_element(format_name)
    if element is None:
        return np.arange(256, dtype="|u1").view("|i1").astype("<f4") / np.float32(64)
    return decode_table(element)


def quantize_mx(values: Array, format_name: str, rule: MxRule = MxRule.OCP) -> MxTensor:
    """Derive the scales of an f32 tensor of any rank from 1 and quantize it. Elements saturate (f8E5M2 too).

    With rule TOSA and a scale that would be 2^128, the scale is 2^127 and the elements saturate. Raises
    UnknownNameError for the format, UnsupportedError for values that are not f32 and for a rule that mxint8 does not
    have, TypeFitError if the last axis is not a multiple of 32.
    """
    element = mx_element(format_name)
    if element is None and rule not in (MxRule.OCP, MxRule.TOSA):
        raise UnsupportedError(f"torchao has no {format_name}, which rule {rule} could follow", pointer="/rule")
    shape = values.shape
    count = block_count(shape, BLOCK, format_name)
    source = flat_f32(values, format_name)
    scales, elements = np.empty(count, "|u1"), np.empty(source.size, "|u1")
    exponent = _EXPONENTS[rule]
    nan_code, nan_flip = _nan_element(element, rule)
    if element is None:
        doubling = rule is MxRule.TOSA
        lowest = -128 if doubling else -127
        kernels.quantize_mxint8(source, scales, elements, BLOCK, lowest, doubling, nan_code, nan_flip)
    else:
        format_ = small_float(element)
        kernels.quantize_mx(
            source,
            scales,
            elements,
            BLOCK,
            frexp(format_.largest)[1] - 1,
            format_.mantissa_bits,
            format_.bias,
            format_.sign_bit,
            format_.largest_code,
            format_.largest,
            exponent.rule,
            exponent.smallest,
            _INFINITY_BITS + (not exponent.infinity_is_nan),
            nan_code,
            nan_flip,
        )
    return MxTensor(format_name, shape, scales, elements)


def dequantize_mx(tensor: MxTensor) -> Array:
    """Return f32(element * X) in the tensor's shape: exact, or an infinity beyond f32.

    A scale of 0xFF gives the quiet NaN without sign, whatever the element. Raises UnknownNameError for the format,
    TypeFitError if the last axis is not a multiple of 32, TensorDataError for arrays of another length and codes wider
    than their type.
    """
    element = mx_element(tensor.format_name)
    count = block_count(tensor.shape, BLOCK, tensor.format_name)
    check_length(tensor.scales, count, "scales")
    check_length(tensor.elements, count * BLOCK, "elements")
    if element is not None:
        check_codes(tensor.elements, element)
    target = np.empty(tensor.elements.size, "<f4")
    scales = decode_table(_SCALE)[tensor.scales]
    kernels.scale_blocks(tensor.elements, _values(tensor.format_name), scales, BLOCK, target)
    # Which of two NaN a product takes after is up to the compiler and the CPU.
    target.reshape(-1, BLOCK)[tensor.scales == _NAN_SCALE] = np.float32(np.nan)
    return target.reshape(tensor.shape)
