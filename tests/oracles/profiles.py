"""Every profile's quantize and dequantize in exact fractions, for every expressed type, written from the specification.

Imports nothing of ours. Real inputs are Python floats that hold values of the expressed type exactly. Each function
names the system that it was written from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tests.oracles.quantization import Stored, nearest_away, nearest_even, nearest_float, wrap32

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Format:
    """A binary float: p significand bits, the exponent of its last subnormal place, and its largest exponent."""

    precision: int
    last_place: int
    largest_exponent: int

    def round(self, value: Fraction) -> float:
        """The nearest number of the format, ties to even; beyond it an infinity."""
        return nearest_float(value, self.precision, self.last_place, self.largest_exponent)


FORMATS = {
    "f16": Format(11, -24, 15),
    "bf16": Format(8, -133, 127),
    "f32": Format(24, -149, 127),
    "f64": Format(53, -1074, 1023),
}
F32 = FORMATS["f32"]
F64 = FORMATS["f64"]


def quotient(x: float, s: float, to: Format) -> float:
    return x if not math.isfinite(x) else math.copysign(to.round(Fraction(x) / Fraction(s)), x)


def product(x: float, r: float, to: Format) -> float:
    """x * r for r > 0, which may be an infinity (the reciprocal of a tiny scale)."""
    if math.isinf(r):
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x)
    return x if not math.isfinite(x) else math.copysign(to.round(Fraction(x) * Fraction(r)), x)


def plus(a: float, b: float, to: Format) -> float:
    if not math.isfinite(a):
        return a + b
    return b if math.isinf(b) else to.round(Fraction(a) + Fraction(b))


def cvt32(integral: int | float) -> int:
    """x86's conversion to int32."""
    return int(integral) if math.isfinite(integral) and -(2**31) <= integral < 2**31 else -(2**31)


def rounded(value: float, rule: Callable[[Fraction], int] = nearest_even) -> int | float:
    """The nearest integer of a finite value; infinities pass."""
    return value if math.isinf(value) else rule(Fraction(value))


def clamped(total: int | float, lo: int, hi: int) -> Stored:
    return Stored(int(min(max(total, lo), hi)), low=total < lo, high=total > hi)


@dataclass(frozen=True)
class Target:
    """What is quantized to: bounds, what the storage type holds, its name, and how fine the parameters are."""

    storage: str
    lo: int
    hi: int
    type_lo: int
    type_hi: int
    expressed: str = "f32"
    granularity: str = "per_tensor"
    alone: bool = False
    """Of 4 bits: shares its byte with no element of the same scale."""


def target(storage: str, expressed: str = "f32", granularity: str = "per_tensor", *, alone: bool = False) -> Target:
    bits = int(storage[1:])
    lo, hi = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if storage[0] == "i" else (0, (1 << bits) - 1)
    return Target(storage, lo, hi, lo, hi, expressed, granularity, alone and bits == 4)


def stablehlo(x: float, scale: float, z: int, t: Target) -> Stored:
    """StableHLO specification, uniform_quantize."""
    e = FORMATS[t.expressed]
    value = plus(quotient(x, e.round(Fraction(scale)), e), e.round(Fraction(z)), e)
    if math.isnan(value):
        return Stored(0, nan=True)
    ideal = rounded(value)
    bounded = min(max(value, e.round(Fraction(t.lo))), e.round(Fraction(t.hi)))
    stored = min(max(rounded(bounded), t.type_lo), t.type_hi)
    return Stored(int(stored), low=ideal < t.lo, high=ideal > t.hi)


def mlir(x: float, scale: float, z: int, t: Target) -> Stored | None:
    """MLIR lower-quant-ops. None is poison."""
    e = FORMATS[t.expressed]
    bits = int(t.storage[1:])
    wrapped = (z - t.type_lo) % (1 << bits) + t.type_lo
    value = plus(quotient(x, e.round(Fraction(scale)), e), e.round(Fraction(wrapped)), e)
    if not math.isfinite(value) or not t.type_lo <= int(value) <= t.type_hi:
        return None
    return clamped(int(value), t.lo, t.hi)


def onnx(x: float, scale: float, z: int, t: Target) -> Stored:
    """onnxruntime QuantizeLinear to 1.31: f16 is divided in f32. Its scalar loops convert as the reference evaluator:
    f16, 2-bit storage, blocks along another axis than the last, and the 4-bit elements that vectors of whole bytes
    leave out (all seen live: tests/interop/test_onnxruntime.py).
    """
    s = FORMATS[t.expressed].round(Fraction(scale))
    value = quotient(x, s, F32)
    if t.storage in ("i2", "u2") or t.expressed == "f16" or t.granularity == "sub_channel_outer" or t.alone:
        return indefinite(x, value, nearest_even, z, t)
    if math.isnan(value):
        return Stored(t.lo, nan=True)
    return clamped(rounded(value) + z, t.lo, t.hi)


def onnx_1_32(x: float, scale: float, z: int, t: Target) -> Stored:
    """onnxruntime QuantizeLinear since 1.32, opset 23 and newer: divides in the type of the scale, and saturates."""
    e = FORMATS[t.expressed]
    value = quotient(x, e.round(Fraction(scale)), e)
    if math.isnan(value):
        return Stored(t.lo, nan=True)
    return clamped(rounded(value) + z, t.lo, t.hi)


def onnx_reference(x: float, scale: float, z: int, t: Target) -> Stored:
    """onnx.reference QuantizeLinear: numpy's division, RNE, cvt32, wrapping addition, clip."""
    e = FORMATS[t.expressed]
    return indefinite(x, quotient(x, e.round(Fraction(scale)), e), nearest_even, z, t)


def litert(x: float, scale: float, z: int, t: Target) -> Stored:
    """LiteRT QUANTIZE, reference kernel."""
    return indefinite(x, quotient(x, F32.round(Fraction(scale)), F32), nearest_away, z, t)


def indefinite(x: float, value: float, rule: Callable[[Fraction], int], z: int, t: Target) -> Stored:
    integral = math.nan if math.isnan(value) else rounded(value, rule)
    stored = clamped(wrap32(cvt32(integral) + z), t.lo, t.hi)
    if math.isnan(x):
        return Stored(stored.value, nan=True)
    if not -(2**31) <= integral < 2**31 and not stored.low and not stored.high:
        return stored._replace(low=True)
    return stored


def reciprocal(scale: float) -> float:
    return F32.round(1 / Fraction(F32.round(Fraction(scale))))


def flushed(value: float) -> float:
    """A subnormal f32 as zero, with the sign."""
    return math.copysign(0.0, value) if abs(value) < 2.0**-126 else value


def litert_xnnpack(x: float, scale: float, z: int, t: Target) -> Stored:
    """LiteRT QUANTIZE, XNNPACK delegate, whose threads take subnormals for zero: x, and f32(1 / s) beyond s = 2^126."""
    x, r = flushed(x), flushed(reciprocal(scale))
    value = math.nan if r == 0 and math.isinf(x) else product(x, r, F32)
    if math.isnan(value):
        return Stored(t.hi, nan=True)
    return clamped(rounded(value) + z, t.lo, t.hi)


def clamped_in_f32(total: int | float, t: Target) -> Stored:
    """Clamped to bounds that are rounded to f32, as far as the storage holds these."""
    lo, hi = max(F32.round(Fraction(t.lo)), t.type_lo), min(F32.round(Fraction(t.hi)), t.type_hi)
    return Stored(int(min(max(total, lo), hi)), low=total < t.lo, high=total > t.hi)


def left_out(scale: float) -> bool:
    """oneDNN's pass remove_quant_data_with_no_effect: |s - 1| <= eps, eps the f32 1e-6. The difference is exact."""
    return abs(Fraction(F32.round(Fraction(scale))) - 1) <= Fraction(F32.round(Fraction(1, 10**6)))


def onednn(x: float, scale: float, z: int, t: Target) -> Stored:
    """oneDNN Graph Quantize, with ONEDNN_MAX_CPU_ISA=AVX2."""
    scaled = x if left_out(scale) else product(x, reciprocal(scale), F32)
    value = plus(scaled, F32.round(Fraction(z)), F32)
    return Stored(t.lo, nan=True) if math.isnan(value) else clamped(rounded(value), t.lo, t.hi)


def torch(x: float, scale: float, z: int, t: Target) -> Stored:
    """torch, eager quantized tensors."""
    r = reciprocal(scale)
    fused = t.granularity == "per_tensor" and t.storage != "i32"
    if fused and math.isfinite(x) and math.isfinite(r):
        value = F32.round(Fraction(x) * Fraction(r) + z)
    else:
        value = plus(product(x, r, F32), F32.round(Fraction(z)), F32)
    if math.isnan(value):
        return Stored(t.lo if t.storage == "i32" else t.hi if fused else 0, nan=True)
    return clamped_in_f32(rounded(value), t)


def torch_2_14(x: float, scale: float, z: int, t: Target) -> Stored:
    """Eager since 2.14: the zero point after rounding, both as f32; per tensor with 8 bits in int32, which wraps."""
    value = product(x, reciprocal(scale), F32)
    if t.granularity == "per_tensor" and t.storage != "i32":
        largest = 2**31 - 128
        clipped = largest if math.isnan(value) else min(rounded(value), largest)
        stored = clamped(wrap32(cvt32(clipped) + z), t.lo, t.hi)
        return Stored(stored.value, nan=True) if math.isnan(value) else stored
    if math.isnan(value):
        return Stored(t.lo if t.storage == "i32" else 0, nan=True)
    integral = rounded(value)
    whole = integral if math.isinf(integral) else F32.round(Fraction(integral))
    return clamped_in_f32(plus(float(whole), F32.round(Fraction(z)), F32), t)


def torch_decomposed(x: float, scale: float, z: int, t: Target) -> Stored:
    """torch.ops.quantized_decomposed."""
    per_tensor = t.granularity == "per_tensor"
    r = F32.round(Fraction(F64.round(1 / Fraction(scale)))) if per_tensor else reciprocal(scale)
    value = product(x, r, F32)
    if t.granularity.startswith("sub_channel"):
        value = plus(value, F32.round(Fraction(z)), F32)
        if math.isnan(value):
            return Stored(-(2**31) if t.storage == "i32" else 0, nan=True)
        integral = rounded(value)
        bounded = min(max(integral, F32.round(Fraction(t.lo))), F32.round(Fraction(t.hi)))
        return Stored(cvt32(bounded), low=integral < t.lo, high=integral > t.hi)
    if math.isnan(value):
        return Stored(-(2**31) if t.storage == "i32" else 0, nan=True)
    integral = rounded(value)
    whole = integral if math.isinf(integral) else F32.round(Fraction(integral))
    total = plus(float(whole), F32.round(Fraction(z)), F32)
    bounded = min(max(total, F32.round(Fraction(t.lo))), F32.round(Fraction(t.hi)))
    return Stored(cvt32(bounded), low=total < t.lo, high=total > t.hi)


QUANTIZE: dict[str, Callable[[float, float, int, Target], Stored | None]] = {
    "stablehlo": stablehlo,
    "mlir": mlir,
    "onnx": onnx,
    "onnx_1_32": onnx_1_32,
    "onnx_reference": onnx_reference,
    "onednn": onednn,
    "litert": litert,
    "litert_xnnpack": litert_xnnpack,
    "torch": torch,
    "torch_2_14": torch_2_14,
    "torch_decomposed": torch_decomposed,
}


def dequantize(profile: str, q: int, scale: float, z: int, t: Target) -> float:
    """(q - z) * s, in each system's own precision."""
    e = FORMATS[t.expressed]
    s = e.round(Fraction(scale))
    if profile == "stablehlo":
        return e.round(_exact(e.round(Fraction(wrap32(q - z))), s, e))
    if profile == "mlir":
        bits = int(t.storage[1:])
        wrapped = (z - t.type_lo) % (1 << bits) + t.type_lo
        left, right = e.round(Fraction(q)), e.round(Fraction(wrapped))
        if math.isinf(left) or math.isinf(right):
            return left - right
        return e.round(_exact(e.round(Fraction(left) - Fraction(right)), s, e))
    if profile == "torch_decomposed":
        f32_scale = F32.round(Fraction(scale))
        step = e if t.granularity == "per_tensor" else F32
        if t.storage == "i32" and t.granularity != "per_tensor":
            difference = F32.round(Fraction(wrap32(q - z)))
        else:
            left, right = (step.round(Fraction(F32.round(Fraction(integer)))) for integer in (q, z))
            infinite = math.isinf(left) or math.isinf(right)
            difference = left - right if infinite else step.round(Fraction(left) - Fraction(right))
        if not math.isfinite(difference):
            return difference
        return _through_f32(Fraction(difference) * Fraction(f32_scale), e)
    if profile.startswith("litert") and profile != "litert_xnnpack":
        return F32.round(Fraction(F64.round(Fraction(s) * (q - z))))
    if profile == "onnx_reference" and t.storage == "i32":
        exact = Fraction(F64.round((Fraction(F32.round(Fraction(q))) - z) * Fraction(s)))
        return e.round(exact) if t.expressed == "f16" else _through_f32(exact, e)
    if profile == "onednn":
        difference = F32.round(Fraction(F32.round(Fraction(q))) - Fraction(F32.round(Fraction(z))))
        return difference if left_out(scale) else F32.round(Fraction(difference) * Fraction(s))
    if profile in ("torch", "torch_2_14") and t.storage == "i32" and t.granularity == "per_axis":
        difference = F32.round(Fraction(F32.round(Fraction(q))) - Fraction(F32.round(Fraction(z))))
        return F32.round(Fraction(difference) * Fraction(s))
    return _through_f32(Fraction(F32.round(Fraction(wrap32(q - z)))) * Fraction(s), e)


def _exact(a: float, s: float, e: Format) -> Fraction:
    """a * s; an infinity of a narrow format stands for something beyond it."""
    return (
        Fraction(2) ** (e.largest_exponent + 2) * (1 if a > 0 else -1) if math.isinf(a) else Fraction(a) * Fraction(s)
    )


def _through_f32(value: Fraction, e: Format) -> float:
    single = F32.round(value)
    return single if math.isinf(single) else e.round(Fraction(single))
