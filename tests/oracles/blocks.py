"""The slow truth of the block formats, in exact fractions, importing nothing of ours.

A block is a list of floats that hold f32 values. What a rule computes in f32 is rounded by `oracle.f32`, step by step.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import NamedTuple

from tests.oracles.quantization import f32, nearest_away, nearest_even
from tests.oracles.small_floats import FORMATS, ROWS, nearest, value_of

# OCP MX v1.0: the element of each format and the exponent of its largest value.
MX = {
    "mxfp8_e4m3": ("f8E4M3FN", 8),
    "mxfp8_e5m2": ("f8E5M2", 15),
    "mxfp6_e2m3": ("f6E2M3FN", 2),
    "mxfp6_e3m2": ("f6E3M2FN", 4),
    "mxfp4_e2m1": ("f4E2M1FN", 2),
    "mxint8": (None, 0),
}
# TOSA 1.1: where RNE(amax / X) is beyond the largest element.
TOSA_BOUNDS = {
    "mxfp8_e4m3": (Fraction(464), False),
    "mxfp8_e5m2": (Fraction(61440), True),
    "mxfp6_e2m3": (Fraction(31, 4), True),
    "mxfp6_e3m2": (Fraction(30), True),
    "mxfp4_e2m1": (Fraction(7), True),
    "mxint8": (Fraction(255, 128), True),
}
# What the reference model writes into a block that is NaN: for a NaN with its sign set, the second.
TOSA_NANS = {
    "mxfp8_e4m3": (0x7F, 0xFF),
    "mxfp8_e5m2": (0x7E, 0xFE),
    "mxfp6_e2m3": (0x18, 0x38),
    "mxfp6_e3m2": (0x1C, 0x3C),
    "mxfp4_e2m1": (0x06, 0x0E),
    "mxint8": (0x7F, 0x80),
}


class Block(NamedTuple):
    """The code of the scale and the codes of the elements."""

    scale: int
    elements: list[int]


def floor_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def saturated(name: str, value: Fraction, *, negative: bool) -> int:
    """The code of RNE(value), the largest one beyond it. The sign is apart, for zeros have one."""
    code = nearest(name, value)
    return (ROWS[name][1] if code is None else code) + (FORMATS[name].sign if negative else 0)


LARGEST = {
    "mxfp8_e4m3": Fraction(448),
    "mxfp8_e5m2": Fraction(57344),
    "mxfp6_e2m3": Fraction(15, 2),
    "mxfp6_e3m2": Fraction(28),
    "mxfp4_e2m1": Fraction(6),
}
MANTISSA_BITS = {"mxfp8_e4m3": 3, "mxfp8_e5m2": 2, "mxfp6_e2m3": 3, "mxfp6_e3m2": 2, "mxfp4_e2m1": 1}


def ceil_log2(value: Fraction) -> int:
    exponent = floor_log2(value)
    return exponent + (Fraction(2) ** exponent < value)


def torchao_exponent(name: str, rule: str, amax: float) -> int:
    """torchao's ScaleCalculationMode: the exponent of the scale."""
    if math.isinf(amax):
        return 127 if rule == "rceil" else 128 - MX[name][1]
    value = Fraction(amax)
    if rule == "rceil":
        quotient = Fraction(f32(value / LARGEST[name]))
        return min(max(ceil_log2(quotient), -127), 127) if quotient else -127
    if value < Fraction(2) ** -126:
        # The exponent field of a subnormal is 0, whatever its value.
        return -127
    if rule == "ceil":
        exponent = ceil_log2(value)
    elif rule == "even":
        exponent = floor_log2(value)
        exponent += value >= Fraction(2) ** exponent * (2 - Fraction(1, 2 << MANTISSA_BITS[name]))
    else:
        exponent = floor_log2(value)
    return min(max(exponent - MX[name][1], -127), 127)


def quantize_mx_of_torchao(name: str, rule: str, block: list[float]) -> Block:
    """One block under a rule of torchao; one with a NaN has elements of no meaning, here 0."""
    if any(math.isnan(x) for x in block):
        return Block(255, [0] * len(block))
    exponent = torchao_exponent(name, rule, max(abs(x) for x in block))
    shift = max(exponent, -126)
    if rule == "rceil":
        shift = exponent if exponent > -127 else 0
    element = MX[name][0]
    assert element is not None
    largest = LARGEST[name]
    codes = []
    for x in block:
        scaled = min(max(Fraction(x) / Fraction(2) ** shift, -largest), largest) if math.isfinite(x) else largest
        codes.append(saturated(element, scaled, negative=math.copysign(1, x) < 0))
    return Block(exponent + 127, codes)


def quantize_mx(name: str, rule: str, block: list[float]) -> Block:
    """One block under the OCP floor rule, the TOSA reference rule, or one of torchao."""
    if rule not in ("ocp", "tosa"):
        return quantize_mx_of_torchao(name, rule, block)
    if not all(math.isfinite(x) for x in block):
        nan, negative_nan = TOSA_NANS[name] if rule == "tosa" else (0, 0)
        return Block(255, [negative_nan if math.isnan(x) and math.copysign(1, x) < 0 else nan for x in block])
    element, largest_exponent = MX[name]
    amax = max(Fraction(abs(x)) for x in block)
    exponent = floor_log2(amax) - largest_exponent if amax else -127
    if rule == "tosa" and amax:
        bound, inclusive = TOSA_BOUNDS[name]
        scaled = amax / Fraction(2) ** exponent
        exponent += scaled > bound or (inclusive and scaled == bound)
    exponent = min(max(exponent, -127), 127)
    codes = []
    for x in block:
        scaled = Fraction(x) / Fraction(2) ** exponent
        if element is None:
            codes.append(min(max(nearest_even(scaled * 64), -128 if rule == "tosa" else -127), 127) % 256)
        else:
            codes.append(saturated(element, scaled, negative=math.copysign(1, x) < 0))
    return Block(exponent + 127, codes)


def quantize_nvfp4(block: list[float], global_scale: float) -> Block:
    """NVFP4 as in torchao: one block; global_scale = 1 is the single-level form."""
    if any(math.isnan(x) for x in block):
        return Block(0x7F, [0] * len(block))
    amax = max(abs(x) for x in block)
    ideal = math.inf if math.isinf(amax) else f32(Fraction(f32(Fraction(amax) / 6)) / Fraction(global_scale))
    scale = nearest("f8E4M3FN", min(max(ideal, 2.0**-6), 448.0))
    assert scale is not None
    real = value_of("f8E4M3FN", scale)
    assert isinstance(real, Fraction)
    divisor = Fraction(f32(Fraction(global_scale) * real))
    codes = []
    for x in block:
        quotient = math.copysign(math.inf, x) if math.isinf(x) else f32(Fraction(x) / divisor)
        clamped = Fraction(min(max(quotient, -6.0), 6.0))
        codes.append(saturated("f4E2M1FN", clamped, negative=math.copysign(1, x) < 0))
    return Block(scale, codes)


LARGEST_F32 = float(2**128 - 2**104)


def _finite(value: Fraction) -> Fraction:
    """A step of f32 of a number that is not negative; the largest f32 where it is beyond."""
    return Fraction(min(f32(value), LARGEST_F32))


def global_scale_by(rule: str, values: list[float]) -> float:
    """The number that a library keeps beside an NVFP4 tensor, with which it divides or multiplies."""
    largest = max(Fraction(abs(x)) for x in values)
    if rule == "compressed_tensors":
        whole = f32(Fraction(f32(1 / max(largest, Fraction(2) ** -126))) * 2688)
        return 1.0 if math.isinf(whole) else whole
    if rule == "transformer_engine":
        return float(_finite(2688 / largest)) if largest else 1.0
    if rule in FOUR_OVER_SIX:
        return float(largest)
    return f32(largest / 2688)


FOUR_OVER_SIX = {"fouroversix": "mse", "fouroversix_mae": "mae", "fouroversix_abs_max": "abs_max"}


def _times(a: float, b: float) -> float:
    """f32(a * b) of numbers that are not NaN, none of them 0 where the other is infinite."""
    return math.copysign(math.inf, a * b) if math.isinf(a) or math.isinf(b) else f32(Fraction(a) * Fraction(b))


def _plus(a: float, b: float) -> float:
    """f32(a + b) of numbers that are not opposite infinities."""
    return a + b if math.isinf(a) or math.isinf(b) else f32(Fraction(a) + Fraction(b))


def _candidate(block: list[float], ideal: Fraction, decode: Fraction, whole: float) -> tuple[Block, list[float]]:
    """A block with a scale, and the distances of its real numbers from the block's."""
    code = nearest("f8E4M3FN", ideal)
    assert code is not None
    scale = value_of("f8E4M3FN", code)
    assert isinstance(scale, Fraction)
    codes, distances = [], []
    factor = Fraction(f32(1 / Fraction(f32(decode * scale)))) if scale else Fraction(0)
    for x in block:
        scaled = Fraction(f32(Fraction(x) * factor))
        element = saturated("f4E2M1FN", abs(scaled), negative=scaled < 0)
        magnitude = value_of("f4E2M1FN", element & 7)
        assert isinstance(magnitude, Fraction)
        if abs(scaled) >= 7:
            element, magnitude = 8, Fraction(8)
        product = _times(float(magnitude * scale * (-1 if scaled < 0 else 1)), whole)
        real = product if math.isinf(product) else f32(Fraction(product) / 1536)
        codes.append(element)
        distances.append(abs(_plus(real, -x)))
    return Block(code, codes), distances


def _error_of(kind: str, distances: list[float]) -> float:
    if kind == "abs_max":
        return max(distances)
    errors = [_times(each, each) if kind == "mse" else each for each in distances]
    total = 0.0
    for lane in range(8):
        total = _plus(total, _plus(errors[lane], errors[lane + 8]))
    return total


def four_over_six(rule: str, block: list[float], largest: float) -> Block:
    """One block of finite numbers by fouroversix 1.0.5, as its PyTorch reference says."""
    encode = Fraction(f32(1536 / Fraction(largest)))
    decode = Fraction(f32(1 / encode))
    of_six = _finite(_finite(max(Fraction(abs(x)) for x in block) / 6) * encode)
    six, four = (_candidate(block, each, decode, largest) for each in (of_six, _finite(of_six * Fraction(3, 2))))
    kind = FOUR_OVER_SIX[rule]
    return four[0] if _error_of(kind, four[1]) < _error_of(kind, six[1]) else six[0]


def _ideal_scale(rule: str, amax: Fraction, whole: Fraction) -> Fraction:
    if rule == "compressed_tensors":
        return _finite(whole * _finite(amax / 6))
    if rule == "transformer_engine":
        return _finite(amax * _finite(whole * _finite(Fraction(1, 6))))
    if rule == "model_optimizer":
        return max(_finite(amax / _finite(6 * whole)) or Fraction(1), Fraction(1, 512))
    return max(_finite(_finite(amax / 6) / whole), Fraction(1, 64))


def _factor(rule: str, scale: Fraction, whole: Fraction) -> Fraction:
    """What magnitudes are multiplied by, or by the rules of `DIVIDING` divided by."""
    if rule == "compressed_tensors":
        return _finite(scale / whole)
    if rule == "transformer_engine":
        decoded = _finite(scale * _finite(1 / whole))
        return _finite(1 / decoded) if decoded else Fraction(LARGEST_F32)
    if rule == "model_optimizer":
        return _finite(scale * whole)
    return _finite(_finite(1 / whole) / scale)


DIVIDING = ("compressed_tensors", "model_optimizer")


def quantize_nvfp4_by(rule: str, block: list[float], global_scale: float) -> Block:
    """One block of finite numbers by torchao 0.18.0, compressed-tensors 0.20.0, ModelOpt 0.47.0 or TransformerEngine's
    f32 path, as their sources say; 1 is torchao's form without a global scale."""
    if rule in FOUR_OVER_SIX:
        return four_over_six(rule, block, global_scale)
    whole = Fraction(global_scale)
    ideal = _ideal_scale(rule, max(Fraction(abs(x)) for x in block), whole)
    code = nearest("f8E4M3FN", min(ideal, Fraction(448)))
    assert code is not None
    if rule == "compressed_tensors" and code == 0:
        code = 0x20
    scale = value_of("f8E4M3FN", code)
    assert isinstance(scale, Fraction)
    factor, divides = _factor(rule, scale, whole), rule in DIVIDING
    codes = []
    for x in block:
        magnitude = Fraction(abs(x))
        scaled = _finite(magnitude / factor if divides else magnitude * factor)
        # Those that divide compare the quotient with 0; the others keep its sign bit.
        signed = x < 0 and scaled > 0 if divides else math.copysign(1, x) < 0
        codes.append(saturated("f4E2M1FN", min(scaled, Fraction(6)), negative=signed))
    return Block(code, codes)


def dequantize_nvfp4_by(rule: str, element: int, scale: Fraction, global_scale: float) -> float:
    """f32 of an element with a scale that is no NaN, by a library that multiplies with its global scale or divides."""
    whole = Fraction(global_scale)
    magnitude = value_of("f4E2M1FN", element & 7)
    assert isinstance(magnitude, Fraction)
    if rule in FOUR_OVER_SIX:
        real = f32(Fraction(_times(float(magnitude * scale), global_scale)) / 1536)
        return math.copysign(real, -1 if element >= 8 else 1)
    factor = f32(scale / whole if rule == "compressed_tensors" else scale * whole)
    negative = element > 8 or (element == 8 and rule != "model_optimizer")
    return math.copysign(f32(magnitude * Fraction(factor)), -1 if negative else 1)


def global_scale_of(values: list[float]) -> float:
    """f32(amax / 2688)."""
    return f32(max(Fraction(abs(x)) for x in values) / 2688)


def f16(value: float) -> bytes:
    """The little-endian bytes of f16(value), beyond its range an infinity."""
    if abs(value) >= 65520:
        return struct.pack("<H", 0x7C00 | (0x8000 if value < 0 else 0))
    return struct.pack("<e", value)


def _quotient(numerator: float, divisor: int) -> float:
    """f32(numerator / divisor) with the sign that a division gives, that of a zero too."""
    return math.copysign(f32(Fraction(numerator) / divisor), numerator * divisor)


def _reciprocal(d: float) -> float:
    return f32(1 / Fraction(d)) if d else 0.0


def quantize_gguf(name: str, block: list[float]) -> bytes:
    """ggml: the bytes of one block."""
    extreme = max(block, key=abs)  # the first of equal ones
    if name == "Q8_0":
        d = f32(Fraction(abs(extreme)) / 127)
        inverse = _reciprocal(d)
        codes = [nearest_away(Fraction(f32(Fraction(x) * Fraction(inverse)))) for x in block]
        return f16(d) + bytes(code % 256 for code in codes)
    top = 31 if name[1] == "5" else 15
    if name.endswith("_0"):
        d = _quotient(extreme, -(top + 1) // 2)
        head, low, added = f16(d), 0.0, Fraction(top + 2, 2)
    else:
        low = min(block)
        d = f32(Fraction(f32(Fraction(max(block)) - Fraction(low))) / top)
        head, added = f16(d) + f16(low), Fraction(1, 2)
    inverse = _reciprocal(d)
    codes = []
    for x in block:
        product = f32(Fraction(f32(Fraction(x) - Fraction(low))) * Fraction(inverse))
        codes.append(min(top, math.trunc(f32(Fraction(product) + added))))
    fifths = sum((code >> 4) << index for index, code in enumerate(codes)).to_bytes(4, "little")
    nibbles = bytes((codes[j] & 15) | ((codes[j + 16] & 15) << 4) for j in range(16))
    return head + (fifths if top == 31 else b"") + nibbles


def dequantize_gguf(name: str, data: bytes) -> list[float]:
    """ggml: the values of one block."""
    d: float = struct.unpack("<e", data[:2])[0]
    low: float = struct.unpack("<e", data[2:4])[0] if name.endswith("_1") else 0.0
    if name == "Q8_0":
        codes = [code - 256 if code > 127 else code for code in data[2:]]
    else:
        word = int.from_bytes(data[-20:-16], "little") if name[1] == "5" else 0
        plain = [*(byte & 15 for byte in data[-16:]), *(byte >> 4 for byte in data[-16:])]
        zero = {"Q4_0": 8, "Q5_0": 16}.get(name, 0)
        codes = [code + 16 * ((word >> index) & 1) - zero for index, code in enumerate(plain)]
    products = [math.copysign(f32(Fraction(d) * code), math.copysign(1, d) * (-1 if code < 0 else 1)) for code in codes]
    return [f32(Fraction(product) + Fraction(low)) for product in products] if name.endswith("_1") else products
