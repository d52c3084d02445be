"""The slow truth of the weights of NVIDIA ModelOpt, in exact fractions, importing nothing of ours.

Written from nvidia-modelopt 0.47.0: `dequantize` of its `FP8QTensor`, `INT8QTensor`, `NVFP4QTensor`, `MXFP8QTensor` and
`MXFP4QTensor`, the exports that these read, and `disable_pre_quant_scale_and_resmooth`; `quantize` of `NVFP4QTensor`
and what `to_quantized_weight` does for FP8. Each step is one of torch: the
exact result, rounded. Numbers are Python floats, which hold those of all formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from tests.oracles.profiles import FORMATS, Format
from tests.oracles.small_floats import nearest, value_of

F32 = FORMATS["f32"]
DTYPES = {"BF16": FORMATS["bf16"], "F16": FORMATS["f16"], "F32": F32}


def rounded(number: float, to: Format) -> float:
    """The nearest number of a format, with the sign of a zero."""
    return number if not math.isfinite(number) else math.copysign(to.round(abs(Fraction(number))), number)


def product(a: float, b: float, to: Format = F32) -> float:
    """a * b, rounded once."""
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and b == 0) or (a == 0 and math.isinf(b)):
        return math.nan
    if math.isinf(a) or math.isinf(b):
        return sign * math.inf
    return math.copysign(to.round(abs(Fraction(a) * Fraction(b))), sign)


def e4m3(code: int) -> float:
    """The value of a byte."""
    magnitude = value_of("f8E4M3FN", code & 0x7F)
    return math.copysign(math.nan if isinstance(magnitude, str) else float(magnitude), -1 if code & 0x80 else 1)


def e2m1(code: int) -> float:
    """The value of a code of 4 bits."""
    magnitude = value_of("f4E2M1FN", code & 7)
    assert isinstance(magnitude, Fraction)
    return math.copysign(float(magnitude), -1 if code & 8 else 1)


def e8m0(byte: int) -> float:
    """2^(byte - 127): exp2 in f32."""
    return math.inf if byte == 255 else math.ldexp(1, byte - 127)


def signed(code: int, bits: int) -> float:
    """The value of an integer in two's complement."""
    return float(code - (1 << bits) if code >> (bits - 1) else code)


def scaled(value: float, scale: float, dtype: str) -> float:
    """A code of FP8, INT8 or INT4 times its scale: both in the dtype."""
    to = DTYPES[dtype]
    return product(value, rounded(scale, to), to)


def nvfp4(code: int, scale: int, second: float, dtype: str) -> float:
    """Its table has no -0."""
    value = 0.0 if code == 8 else e2m1(code)
    return rounded(product(value, product(e4m3(scale), second)), DTYPES[dtype])


def mx(value: float, byte: int, dtype: str) -> float:
    """A code of MXFP4 or MXFP8."""
    return rounded(product(value, e8m0(byte)), DTYPES[dtype])


def smoothed(value: float, scale: float, dtype: str) -> float:
    """A dequantized weight times the pre_quant_scale of its column."""
    return rounded(product(value, scale), DTYPES[dtype])


def _quotient(a: float, b: float) -> Fraction:
    return Fraction(F32.round(Fraction(a) / Fraction(b)))


def _code(name: str, magnitude: Fraction, largest: int) -> int:
    code = nearest(name, min(magnitude, Fraction(largest)))
    assert code is not None
    return code


def fp8_scale(weights: Iterable[float]) -> float:
    """Of what shares one, as f32; 1 for zeros, where an export stops."""
    return float(_quotient(max(map(abs, weights)), 448)) or 1.0


def fp8_code(weight: float, scale: float) -> int:
    """The byte, with the sign of a zero."""
    code = _code("f8E4M3FN", _quotient(abs(weight), scale), 448)
    return code | (0x80 if math.copysign(1, weight) < 0 else 0)


def nvfp4_second(weights: Iterable[float]) -> float:
    """weight_scale_2 of all that share it; 1 for zeros, for which an export writes NaN."""
    return float(_quotient(max(map(abs, weights)), 2688)) or 1.0


def nvfp4_scale(group: Iterable[float], second: float) -> int:
    """The byte of a group's scale."""
    ratio = _quotient(max(map(abs, group)), F32.round(6 * Fraction(second))) or Fraction(1)
    return _code("f8E4M3FN", max(ratio, Fraction(1, 512)), 448)


def nvfp4_code(weight: float, scale: int, second: float) -> int:
    """Four bits. The sign is that of what is below 0."""
    code = _code("f4E2M1FN", _quotient(abs(weight), product(e4m3(scale), second)), 6)
    return code | (8 if weight < 0 else 0)
