"""Casts in every rounding in exact integers, for the profiles that have them: written from IEEE 754, OCP OFP8, the
RISC-V manuals, the PTX ISA, SoftFloat's interface and gfloat's documentation. Imports nothing of ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

IEEE = ("nearest_even", "nearest_away", "toward_zero", "floor", "ceil")
DRAWN = 32


@dataclass(frozen=True)
class Format:
    """Exponent bits, mantissa bits, bias, width, the largest finite code, and the kind of special values."""

    mantissa_bits: int
    bias: int
    width: int
    largest: int
    kind: str

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)


FORMATS = {
    "f32": Format(23, 127, 32, 0x7F7FFFFF, "ieee"),
    "f16": Format(10, 15, 16, 0x7BFF, "ieee"),
    "bf16": Format(7, 127, 16, 0x7F7F, "ieee"),
    "f8E5M2": Format(2, 15, 8, 0x7B, "ieee"),
    "f8E4M3": Format(3, 7, 8, 0x77, "ieee"),
    "f8E3M4": Format(4, 3, 8, 0x6F, "ieee"),
    "f8E4M3FN": Format(3, 7, 8, 0x7E, "fn"),
    "f8E4M3FNUZ": Format(3, 8, 8, 0x7F, "fnuz"),
    "f8E5M2FNUZ": Format(2, 16, 8, 0x7F, "fnuz"),
    "f8E4M3B11FNUZ": Format(3, 11, 8, 0x7F, "fnuz"),
    "f6E2M3FN": Format(3, 1, 6, 0x1F, "finite"),
    "f6E3M2FN": Format(2, 3, 6, 0x1F, "finite"),
    "f4E2M1FN": Format(1, 1, 4, 0x7, "finite"),
}
OFP8, FINITE = ("f8E4M3FN", "f8E5M2"), ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN")


@dataclass(frozen=True)
class Rule:
    """What a profile casts to, by which roundings, and which targets can be saturated by choice or always."""

    targets: tuple[str, ...]
    roundings: dict[str, tuple[str, ...]]
    choice: tuple[str, ...] = ()
    default: bool = False
    always: tuple[str, ...] = field(default=FINITE)

    def roundings_to(self, target: str) -> tuple[str, ...]:
        return self.roundings.get(target, self.roundings.get("", IEEE[:1]))


_ALL = tuple(FORMATS)
RULES = {
    "ofp8": Rule(OFP8, {"": (*IEEE, "odd", "stochastic")}, OFP8, default=True),
    "gfloat": Rule(_ALL, {"": (*IEEE, "stochastic")}, tuple(name for name in _ALL if name not in FINITE)),
    "softfloat": Rule(("f32", "f16", "bf16"), {"": (*IEEE, "odd")}),
    "riscv": Rule(("f32", "f16", "bf16", *OFP8), {"": IEEE, "f16": (*IEEE, "odd"), "f32": (*IEEE, "odd")}, OFP8),
    "ptx": Rule(
        ("f32", "f16", "bf16", *OFP8, *FINITE),
        dict.fromkeys(("f16", "f32"), tuple(name for name in IEEE if name != "nearest_away"))
        | {"bf16": ("nearest_even", "toward_zero")},
        ("f16", "bf16"),
        always=(*OFP8, *FINITE),
    ),
}


class Cast(NamedTuple):
    """A code and how it is counted; None for an error."""

    code: int | None
    low: bool = False
    high: bool = False
    nan: bool = False


def drawn(seed: int, index: int) -> int:
    """SplitMix64's output `index`, its upper half."""
    mask = (1 << 64) - 1
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) >> 32


def unbounded_code(format_: Format, x: float, rounding: str, random: tuple[int, int] = (0, 0)) -> int:
    """The magnitude code of a finite x as if exponents never ended. `random`: how many bits, and these."""
    numerator, denominator = abs(x).as_integer_ratio()
    places = denominator.bit_length() - 1
    lowest = 1 - format_.bias
    exponent = max(numerator.bit_length() - 1 - places, lowest) if numerator else lowest
    shift = places + exponent - format_.mantissa_bits
    if shift > 0:
        whole, rest, one = numerator >> shift, numerator & ((1 << shift) - 1), 1 << shift
    else:
        whole, rest, one = numerator << -shift, 0, 1
    negative = math.copysign(1, x) < 0
    match rounding:
        case "nearest_even":
            up = 2 * rest > one or (2 * rest == one and whole % 2 == 1)
        case "nearest_away":
            up = 2 * rest >= one
        case "toward_zero":
            up = False
        case "floor":
            up = negative and rest > 0
        case "ceil":
            up = not negative and rest > 0
        case "odd":
            up = rest > 0 and whole % 2 == 0
        case "stochastic":
            count, bits = random
            up = (rest << count) // one + bits >= 1 << count
        case _:
            raise ValueError(rounding)
    return ((exponent - lowest) << format_.mantissa_bits) + whole + up


def _nan(profile: str, target: str, x: float) -> int | None:
    """The code of a NaN with the sign of x."""
    format_ = FORMATS[target]
    negative = math.copysign(1, x) < 0
    m, sign = format_.mantissa_bits, format_.sign
    ones, highest = (1 << m) - 1, 1 << (m - 1)
    if format_.kind == "finite":
        return format_.largest if profile == "ptx" else None
    if format_.kind == "fnuz":
        return sign
    if format_.kind == "fn":
        with_sign = {"ofp8": negative, "gfloat": True, "riscv": False, "ptx": False}[profile]
        return sign * with_sign | (sign - 1)
    infinity = format_.largest + 1
    match profile:
        case "ofp8":
            return sign * negative | infinity | highest
        case "gfloat":
            return sign | infinity | ones
        case "softfloat" | "riscv":
            return infinity | (ones if target in OFP8 else highest)
        case _:
            return infinity | ones


def cast(
    profile: str,
    target: str,
    x: float,
    *,
    saturate: bool | None = None,
    rounding: str | None = None,
    random: tuple[int, int] = (0, 0),
) -> Cast:
    """The code of x, a number of any source held in binary64."""
    rule, format_ = RULES[profile], FORMATS[target]
    rounding = rounding or rule.roundings_to(target)[0]
    if math.isnan(x):
        return Cast(_nan(profile, target, x), nan=True)
    negative = math.copysign(1, x) < 0
    sign = format_.sign * negative
    code = format_.largest + 1 if math.isinf(x) else unbounded_code(format_, x, rounding, random)
    if code <= format_.largest:
        return Cast(0 if format_.kind == "fnuz" and code == 0 else code | sign)
    saturating = target in rule.always or (rule.default if saturate is None else saturate)
    inward = rounding in ("toward_zero", "odd") or rounding == ("ceil" if negative else "floor")
    if saturating or (inward and not math.isinf(x)):
        return Cast(format_.largest | sign, low=negative, high=not negative)
    # IEEE formats have an infinity; a NaN has the sign that NaNs have.
    beyond = format_.largest + 1 | sign if format_.kind == "ieee" else _nan(profile, target, math.copysign(math.nan, x))
    return Cast(beyond, low=negative, high=not negative)
