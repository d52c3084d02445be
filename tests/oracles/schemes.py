"""The schemes in exact integers, from the specification, importing nothing of ours.

A float is an integer times a power of two, so that rounding one to 24 or 53 bits is rounding an integer. Subnormals and
overflow are left out: they are too small and too large to be told apart after rounding and clamping to integers.
Each function names the source that it was written from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from tests.oracles import quantization as oracle
from tests.oracles.quantization import wrap32

INT32 = (-(2**31), 2**31 - 1)
Scale = Callable[[int, int, int], int | None]


def up(value: int, shift: int) -> int:
    """RNU(value / 2^shift)."""
    return value << -shift if shift <= 0 else (value + (1 << (shift - 1))) >> shift


def away(value: int, shift: int) -> int:
    """RNA(value / 2^shift)."""
    return up(value, shift) if value >= 0 else -up(-value, shift)


def even(value: int, shift: int) -> int:
    """RNE(value / 2^shift)."""
    if shift <= 0:
        return value << -shift
    floor, rest, half = value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1)
    return floor + (rest > half or (rest == half and floor & 1))


def rounded(value: int, bits: int) -> int:
    """An integer rounded to `bits` significant bits, ties to even."""
    dropped = abs(value).bit_length() - bits
    return even(value, dropped) << dropped if dropped > 0 else value


class Derived(NamedTuple):
    """A multiplier and shift, and the right shift of the exact value m * 2^-right."""

    multiplier: int
    shift: int
    right: int


def significand(d: float, bits: int) -> tuple[int, int]:
    """(RNA(f * 2^bits), e) with d = f * 2^e, 0.5 <= |f| < 1."""
    numerator, denominator = d.as_integer_ratio()
    e = abs(numerator).bit_length() - denominator.bit_length() + 1
    shift = bits - e
    return (away(numerator << max(shift, 0), denominator.bit_length() - 1 - min(shift, 0))), e


def of_f32(d: float) -> tuple[int, int] | None:
    """(m, n): f32(d) = m * 2^-n with 24 bits in m; None if it is infinite."""
    f = oracle.f32(Fraction(d))
    if math.isinf(f):
        return None
    if f == 0:
        return 0, 0
    m, e = significand(f, 24)
    return m, 24 - e


def integer_frexp(d: float) -> tuple[int, int]:
    """LiteRT IntegerFrExp, of a finite number: the upper 31 bits of the significand, ties toward zero."""
    if d == 0:
        return 0, 0
    subnormal = abs(d) < 2.0**-1022
    f, e = math.frexp(abs(d))
    scaled = 2**30 + Fraction(abs(d)) / Fraction(2) ** (-1074 + 22) if subnormal else Fraction(f) * 2**31
    fraction = math.ceil(scaled - Fraction(1, 2))
    return (-fraction if d < 0 else fraction), (-1022 if subnormal else e)


def factor(scheme: str, scale_in: float, other: float | None, scale_out: float) -> float:
    """How the factor comes from scales, in each system's own precision."""
    if scheme.startswith(("tosa", "stablehlo")):
        return (scale_in if other is None else scale_in * other) / scale_out
    a, b, c = (oracle.f32(Fraction(1.0 if each is None else each)) for each in (scale_in, other, scale_out))
    if scheme.startswith(("xnnpack", "onnx", "fbgemm")):
        return oracle.f32(Fraction(oracle.f32(Fraction(a) * Fraction(b))) / Fraction(c))
    return a * b / c


def _of_vnclip(d: float) -> Derived | None:
    """31 bits, then as few as m needs."""
    if d == 0:
        return Derived(0, 0, 0)
    m, e = significand(d, 31)
    shift = 31 - e
    while m % 2 == 0 and shift > 0:
        m, shift = m // 2, shift - 1
    return Derived(m, shift, shift) if 0 <= shift <= 62 and 0 < m < 2**31 else None


def derive(scheme: str, d: float) -> Derived | None:
    """The multiplier and shift of a factor, None where the scheme has none."""
    if scheme in ("litert_float",):
        m, e = significand(d, 53) if d else (0, 53)
        return Derived(m, 53 - e, 53 - e)
    if scheme in ("onnxruntime", "onnx_reference", "fbgemm", "stablehlo"):
        pair = of_f32(d)
        return None if pair is None else Derived(*pair, pair[1])
    if scheme.startswith("xnnpack"):
        return _xnnpack(scheme, d)
    if scheme == "fbgemm_fixed_point":
        return _fbgemm(d)
    if scheme.startswith("vnclip"):
        return _of_vnclip(d)
    if scheme.startswith("tosa"):
        m, shift = oracle.tosa_multiplier(d, 16 if "scale16" in scheme else 32)
        return None if shift < 2 else Derived(m, shift, shift)
    if scheme.startswith("ethos_u"):
        return _vela(d, reduced=scheme.endswith("reduced"))
    if scheme == "litert_emulate_float":
        m, shift = integer_frexp(d)
        if m == 2**31:
            m, shift = 2**30, shift + 1
        if shift < -31:
            m, shift = 0, 0
        return Derived(m, shift, 31 - shift)
    if d < 0 and scheme not in ("litert", "arm_vector", "gemmlowp"):
        return None
    m, shift = oracle.litert_multiplier(d, single=scheme == "litert_single_rounding")
    if scheme == "gemmlowp" and d and (shift > 30 or (m == 0)):
        return None
    if scheme in ("litert_int64", "cmsis_nn_int64"):
        return Derived(m, shift, 31 - shift)
    return Derived(m, shift, 31 - shift)


def _xnnpack(scheme: str, d: float) -> Derived | None:
    """XNNPACK qs8-requantization and qs8-vcvt."""
    pair = of_f32(d)
    if pair is None:
        return None
    m, n = pair
    real = Fraction(m) / Fraction(2) ** n
    if scheme == "xnnpack_cvt8":
        return Derived(round(real * 256), 8, 8) if Fraction(1, 256) <= real <= 128 else None
    if not Fraction(1, 2**32) <= real < (1 if scheme == "xnnpack_gemmlowp" else 256):
        return None
    return Derived(m << 7, n - 24, n + 7) if scheme == "xnnpack_gemmlowp" else Derived(m, n, n)


def _fbgemm(d: float) -> Derived | None:
    """FBGEMM ChooseRequantizationMultiplier, step by step."""
    f = oracle.f32(Fraction(d))
    if math.isinf(f) or f <= 0:
        return None
    s = 31
    while f < 0.5:
        f, s = f * 2, s + 1
    while f > 1:
        f, s = f / 2, s - 1
    m = round(Fraction(f) * 2**31)
    if m == 2**31:
        m, s = 2**30, s - 1
    return Derived(m, s, s) if 1 <= s <= 63 else None


def _vela(d: float, *, reduced: bool) -> Derived | None:
    """Vela quantise_scale."""
    if d < 0:
        return None
    m, e = significand(d, 31) if d else (0, 0)
    shift = 31 - e
    if not 0 <= shift <= 63:
        m, shift = 0, 16
    if reduced:
        m, shift = reduced_multiplier(m), shift - 16
    return Derived(m, shift, shift)


def reduced_multiplier(m: int) -> int:
    """LiteRT, of int64, and Vela reduced_quantise_scale: 16 bits of it."""
    return (m + 2**15) >> 16 if m < 0x7FFF0000 else 0x7FFF


def represented(scheme: str, derived: Derived) -> Fraction:
    """The exact value that m and shift stand for."""
    m = derived.multiplier
    if scheme in ("litert_int64", "cmsis_nn_int64"):
        m = reduced_multiplier(m) << 16
    return Fraction(m) / Fraction(2) ** derived.right


def _fits(value: int, bounds: tuple[int, int] = INT32) -> bool:
    return bounds[0] <= value <= bounds[1]


def _double(v: int, m: int, shift: int) -> int | None:
    """LiteRT MultiplyByQuantizedMultiplier, double rounding."""
    left = wrap32(v << max(shift, 0))
    high = 2**31 - 1 if left == m == -(2**31) else up(left * m, 31)
    return away(high, max(-shift, 0)) if _fits(v) else None


def _vector(v: int, m: int, shift: int) -> int | None:
    """LiteRT MultiplyByQuantizedMultiplier4Rows."""
    left = wrap32(v << max(shift, 0))
    high = 2**31 - 1 if left == m == -(2**31) else up(left * m, 31)
    return up(high, max(-shift, 0)) if _fits(v) else None


def _int64(v: int, m: int, shift: int) -> int | None:
    """LiteRT MultiplyByQuantizedMultiplier of int64."""
    y = up(v * reduced_multiplier(m), 15 - shift)
    return y if -(2**47) <= v < 2**47 and _fits(y) else None


def _float(v: int, m: int, shift: int) -> int | None:
    """LiteRT reference FULLY_CONNECTED."""
    y = away(rounded(rounded(v, 53) * m, 53), shift)
    return y if _fits(y) else None


def _cmsis_single(v: int, m: int, shift: int) -> int | None:
    """CMSIS-NN arm_nn_requantize, single rounding."""
    y = (((v * m) >> (30 - shift)) + 1) >> 1
    return y if _fits(v) and _fits(y) else None


def _cmsis_int64(v: int, m: int, shift: int) -> int | None:
    """CMSIS-NN arm_nn_requantize_s64. The C code keeps the low 32 bits of the intermediate: right if none is lost."""
    intermediate = (v * reduced_multiplier(m)) >> (14 - shift)
    exact, cut = (intermediate + 1) >> 1, wrap32(wrap32(intermediate) + 1) >> 1
    return cut if -(2**47) <= v < 2**47 and cut == exact else None


def _f32(v: int, m: int, shift: int) -> int:
    """XNNPACK fp32, FBGEMM requantizeOutputProcessing, onnxruntime QLinearMatMul."""
    return even(rounded(rounded(v, 24) * m, 24), shift)


def _value32(v: int, shift: int) -> bool:
    """TOSA 1.0 RESCALE, the bound of scale32; int32 at most."""
    bound = 1 << min(31, shift - 1)
    return -bound <= v < bound


def _tosa16(v: int, m: int, shift: int) -> int | None:
    """TOSA 1.0 RESCALE, scale16."""
    y = up(v * m, shift)
    return y if -(2**47) <= v < 2**47 and _fits(y) else None


def _inexact(v: int, m: int, shift: int) -> int:
    """TOSA 1.0 RESCALE, INEXACT_ROUND as the reference model computes it."""
    return even(rounded(rounded(v, 24) * rounded(m, 24), 24), shift)


def _inexact16(v: int, m: int, shift: int) -> int | None:
    """The same of 16-bit multipliers, for v of 48 bits and y of 32."""
    y = _inexact(v, m, shift)
    return y if -(2**47) <= v < 2**47 and _fits(y) else None


def _within(width: int, scale: Callable[[int, int, int], int]) -> Scale:
    return lambda v, m, shift: scale(v, m, shift) if -(2**width) <= v < 2**width else None


def _unwrapped(v: int, m: int, shift: int) -> int | None:
    """gemmlowp and CMSIS-NN: double rounding, where the shift to the left loses nothing."""
    return _double(v, m, shift) if _fits(v << max(shift, 0)) else None


def _up(v: int, m: int, shift: int) -> int:
    """One rounding of the exact product."""
    return up(v * m, shift)


def _vnclip(rounded_off: Callable[[int, int], int]) -> Scale:
    """roundoff of the product, as the vector chapter of the RISC-V manual tables it: (v >> d) + r."""

    def scale(v: int, m: int, shift: int) -> int | None:
        width = 62 - m.bit_length()
        return rounded_off(v * m, shift) if -(2**width) <= v < 2**width else None

    return scale


def _increment_to_even(p: int, d: int) -> int:
    """r = v[d-1] & (v[d-2:0] != 0 | v[d])."""
    return (p >> (d - 1) & 1) & int(p & ((1 << (d - 1)) - 1) != 0 or p >> d & 1)


SCALED: dict[str, Scale] = {
    "litert": _double,
    "litert_emulate_float": _double,
    "litert_single_rounding": lambda v, m, shift: oracle.multiply_single(v, m, shift) if _fits(v) else None,
    "litert_int64": _int64,
    "litert_float": _float,
    "arm_vector": _vector,
    "gemmlowp": _unwrapped,
    "cmsis_nn": _unwrapped,
    "cmsis_nn_single_rounding": _cmsis_single,
    "cmsis_nn_int64": _cmsis_int64,
    "ethos_u": _within(31, _up),
    "ethos_u_reduced": _within(47, _up),
    "xnnpack_fp32": _f32,
    "xnnpack_rndnu": _within(31, _up),
    "xnnpack_rndna": _within(31, lambda v, m, shift: away(v * m, shift)),
    "xnnpack_gemmlowp": _within(31, lambda v, m, shift: away(up(v * m, 31), shift)),
    "xnnpack_cvt8": _within(8, _up),
    "fbgemm": _f32,
    "fbgemm_fixed_point": _within(31, _up),
    "onnxruntime": _f32,
    "vnclip_rnu": _vnclip(lambda p, d: (p >> d) + (p >> (d - 1) & 1 if d else 0)),
    "vnclip_rne": _vnclip(lambda p, d: (p >> d) + (_increment_to_even(p, d) if d else 0)),
    "vnclip_rdn": _vnclip(lambda p, d: p >> d),
    "vnclip_rod": _vnclip(lambda p, d: (p >> d) + (not (p >> d) & 1 and p & ((1 << d) - 1) != 0)),
    "tosa": lambda v, m, shift: up(v * m, shift) if _value32(v, shift) else None,
    "tosa_double_round": lambda v, m, shift: (
        oracle.tosa_rescale(v, m, shift, double=True) if _value32(v, shift) else None
    ),
    "tosa_inexact_round": lambda v, m, shift: _inexact(v, m, shift) if _value32(v, shift) else None,
    "tosa_scale16": _tosa16,
    "tosa_scale16_inexact_round": _inexact16,
}
"""y of (v = q - z_in, multiplier, shift), before z_out is added; None where the scheme is not defined."""

MERGED = ("onnx_reference", "stablehlo")
"""The schemes that add the zero point before they round."""

_ANY_VALUE = ("litert_float", "xnnpack_fp32", "fbgemm", "onnxruntime", *MERGED)
_WRAPPING = ("litert", "litert_emulate_float", "litert_single_rounding", "litert_int64", "litert_float", "arm_vector")
_EXACT_SUMS = {name for name in SCALED if name.startswith(("ethos_u", "fbgemm", "onnx", "vnclip", "xnnpack"))} | {
    "tosa_inexact_round",
}


def _total(scheme: str, y: int, z_out: int) -> int | None:
    """y + z_out, None where it may not be."""
    if scheme in _WRAPPING:
        return wrap32(y + z_out)
    return y + z_out if scheme in _EXACT_SUMS or _fits(y + z_out) else None


def _onnx_reference(v: int, m: int, shift: int, z_out: int) -> int:
    """onnx.reference QLinearMatMul: f64, the zero point before rounding."""
    product = rounded(rounded(v, 53) * m, 53)
    point = max(shift, 0)
    return even(rounded((product << (point - shift)) + (z_out << point), 53), point)


@lru_cache
def _merged_zero_point(z_in: int, z_out: int, exact: float) -> Fraction:
    return Fraction(oracle.f32(Fraction(float(z_out - Fraction(float(z_in * Fraction(exact)))))))


def _stablehlo(q: int, z_in: int, m: int, shift: int, z_out: int, exact: float) -> int:
    """stablehlo-legalize-quant-to-math: merged scale and zero point. A huge number stands for an infinite one."""
    product = Fraction(rounded(rounded(q, 24) * m, 24)) / Fraction(2) ** shift
    value = oracle.f32(product + _merged_zero_point(z_in, z_out, exact))
    return oracle.nearest_even(Fraction(value)) if math.isfinite(value) else 2**200 * (1 if value > 0 else -1)


def requantized(
    scheme: str,
    q: int,
    z_in: int,
    m: int,
    shift: int,
    z_out: int,
    bounds: tuple[int, int],
    exact: float | None = None,
) -> int | None:
    """q' of q, None where the scheme is not defined. `exact`: the factor before it became m and shift."""
    if scheme in _ANY_VALUE and not -(2**62) <= q - z_in < 2**62:
        return None
    sum_: int | None
    if scheme == "stablehlo":
        sum_ = _stablehlo(q, z_in, m, shift, z_out, math.ldexp(m, -shift) if exact is None else exact)
    elif scheme == "onnx_reference":
        sum_ = _onnx_reference(q - z_in, m, shift, z_out)
    else:
        y = SCALED[scheme](q - z_in, m, shift)
        sum_ = None if y is None else _total(scheme, y, z_out)
    return None if sum_ is None else min(max(sum_, bounds[0]), bounds[1])
