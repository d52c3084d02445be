"""Floats of at most 16 bits: the values of their codes. `requant.convert.float_encoding` turns values into codes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import TensorDataError, UnsupportedError, excerpt
from requant.formats.elements import BYTE, FLOATS, FloatElement, Specials
from requant.kernels.convert.floats import decoding as kernel
from requant.kernels.convert.floats.decoding import Field
from requant.kernels.simd.widen import FloatKind
from requant.plan.float_arrays import f32_of_f16

Array = NDArray[Any]


# OCP OFP8 and MX v1.0, and the other formats of ml_dtypes.
SMALL_FLOATS: dict[str, FloatElement] = {
    name: FLOATS[name]
    for name in (
        "f16",
        "bf16",
        "f8E4M3FN",
        "f8E4M3FNUZ",
        "f8E5M2",
        "f8E5M2FNUZ",
        "f8E4M3",
        "f8E3M4",
        "f8E4M3B11FNUZ",
        "f4E2M1FN",
        "f6E2M3FN",
        "f6E3M2FN",
        "f8E8M0FNU",
    )
}


def small_float(name: str) -> FloatElement:
    """Return the format with the MLIR name `name`, or raise UnsupportedError."""
    format_ = SMALL_FLOATS.get(name)
    if format_ is None:
        raise UnsupportedError(
            f"'{excerpt(name)}' is not a float of at most 16 bits; those are: {', '.join(SMALL_FLOATS)}"
        )
    return format_


@cache
def decode_table(element_name: str) -> Array:
    """Return the values of all codes of a format in order of the codes: 2^width f32, read-only.

    NaNs are quiet, without payload, and have the sign of their code. Raises UnsupportedError for an unknown format.
    """
    format_ = small_float(element_name)
    table = np.array([format_.value(code) for code in range(1 << format_.width)], "<f4")
    # The sign of a NaN does not survive every conversion from f64, so it is written here.
    negative = np.isnan(table) & (np.arange(table.size) & format_.sign_bit > 0)
    table[np.isnan(table)] = np.uint32(0x7FC00000).view("<f4")
    table[negative] = np.uint32(0xFFC00000).view("<f4")
    table.flags.writeable = False
    return table


def check_codes(codes: Array, element_name: str) -> None:
    """Raise TensorDataError if a code has bits beyond the width of its format (f4 and f6, stored one to a byte)."""
    codes_of_format = 1 << small_float(element_name).width
    if codes.size and codes_of_format < 256 and int(codes.max()) >= codes_of_format:
        index = int(np.argmax(codes >= codes_of_format))
        raise TensorDataError(
            f"the code {int(codes[index])} at index {index} is not one of {element_name}, "
            f"whose codes are 0 to {codes_of_format - 1}"
        )


_INT64_MAX = (1 << 63) - 1
# One endless run of the scale 1.
_LAYOUT = np.array([_INT64_MAX, 1, _INT64_MAX, 1, 0], np.int64)
_ONE = np.ones(1, "<f4")


@dataclass(frozen=True, slots=True)
class Decoder:
    """A conversion of the codes of a format of at most 8 bits to f32, f16 or bf16.

    `rules` is what `requant.kernels.convert.floats.decoding` goes by.
    """

    element_name: str
    rules: Array

    def decode(
        self, codes: Array, values: Array, counts: Array, start: int = 0, layout: Array = _LAYOUT, scales: Array = _ONE
    ) -> None:
        """Write f32(value * scale), rounded to the target's type. `codes`: uint8, of which the first is element `start`
        of `layout` (`requant.kernels.loops.unpacked`). NaNs are counted in counts[2]; they are quiet, without
        payload,
        and have the sign of their code. Raise TensorDataError for a code wider than its format."""
        if kernel.decode(codes, values.view(BYTE), start, layout, scales, self.rules, counts) >= 0:
            check_codes(codes, self.element_name)


def has_decoder(element_name: str) -> bool:
    """Return whether there is a `decoder` of a format."""
    format_ = small_float(element_name)
    return format_.width <= 8 and format_.specials is not Specials.SCALE


@cache
def decoder(element_name: str, target: str = "f32") -> Decoder:
    """Return the conversion from a format that has one to `target`: f32, f16 or bf16."""
    format_ = small_float(element_name)
    rules = {
        Field.TARGET: FloatKind[target.upper()],
        Field.SIGN_BIT: format_.sign_bit,
        Field.MANTISSA_BITS: format_.mantissa_bits,
        Field.BIAS: format_.bias,
        Field.LARGEST: format_.largest_code,
        Field.INFINITY: -1 if format_.infinity_code is None else format_.infinity_code,
        Field.NAN: format_.sign_bit if format_.specials is Specials.FNUZ else -1,
        Field.WIDTH: format_.width,
    }
    return Decoder(element_name, np.array([int(rules[field]) for field in Field], np.int64))


def decode(codes: Array, element_name: str) -> Array:
    """Return the values of `codes` (1-D, uint8, or uint16 for f16 and bf16) as f32; every value is exact.

    NaNs are quiet with the sign of their code, and those of f16 keep their payload. bf16 are shifted, so that all of a
    NaN is kept, and a signalling one stays one.
    Raises UnsupportedError for an unknown format, TensorDataError for a code wider than its format.
    """
    format_ = small_float(element_name)
    if format_.name == "f16":
        return f32_of_f16(codes)
    if format_.name == "bf16":
        return np.left_shift(codes, 16, dtype="<u4").view("<f4")
    if format_.specials is Specials.SCALE:
        return np.take(decode_table(element_name), codes)
    values = np.empty(codes.size, "<f4")
    decoder(element_name).decode(np.ascontiguousarray(codes), values, np.zeros(4, np.int64))
    return values
