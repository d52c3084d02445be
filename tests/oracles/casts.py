"""Every profile's casts between floats in exact fractions, written from the formats' definitions and what the
systems gave (tests/interop). Imports nothing of ours.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import NamedTuple

from tests.oracles import small_floats as small_float_oracle
from tests.oracles.profiles import F32, FORMATS
from tests.oracles.small_floats import ROWS

F8 = ("f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ")
FINITE = ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN")
IEEE_LIKE = ("f8E4M3", "f8E3M4", "f8E4M3B11FNUZ")
WIDE = ("f16", "bf16", "f32", "f64")
TARGETS = {
    "onnx": ("f16", "bf16", *F8, *FINITE, "f8E8M0FNU"),
    "onnx_1_32": ("f16", "bf16", *F8, *FINITE, "f8E8M0FNU"),
    "onnx_reference": ("f16", "bf16", *F8, *FINITE, "f8E8M0FNU"),
    "torch": ("f16", "bf16", *F8, "f8E8M0FNU"),
    "torch_2_14": ("f16", "bf16", *F8, "f8E8M0FNU"),
    "onednn": ("f8E4M3FN", "f8E5M2"),
    "stablehlo": ("f16", "bf16", *F8, *IEEE_LIKE, *FINITE),
    "ml_dtypes": ("f16", "bf16", *F8, *IEEE_LIKE, *FINITE, "f8E8M0FNU"),
}
SOURCES = dict.fromkeys(TARGETS, WIDE) | {"onednn": ("f32",)}
CHOOSE_SATURATION = ("onnx", "onnx_1_32", "onnx_reference")


class Cast(NamedTuple):
    """A code and how it is counted."""

    code: int
    low: bool = False
    high: bool = False
    nan: bool = False


def _bits(x: float) -> int:
    (pattern,) = struct.unpack(">Q", struct.pack(">d", x))
    return int(pattern)


def _quiet_or_payload(profile: str, source: str, target: str, x: float) -> int:
    """The code of a NaN in an IEEE format. x holds the source's payload in its own highest mantissa bits."""
    row = small_float_oracle.FORMATS[target]
    m, sign = row.mantissa_bits, row.sign * (math.copysign(1, x) < 0)
    infinity = ROWS[target][1] + 1
    highest, ones = 1 << (m - 1), (1 << m) - 1
    payload = (_bits(x) >> (52 - m)) & ones
    if profile == "torch" and target == "bf16":
        return infinity | highest if source not in ("f32", "f64") else row.sign | infinity | ones
    if profile in ("stablehlo", "onednn") or (profile == "torch" and target == "f16"):
        return sign | infinity | highest | payload
    if profile in ("ml_dtypes", "onnx_reference") and target == "f16" and source != "bf16":
        return sign | infinity | max(payload, 1)
    if profile == "torch" or (profile == "onnx" and target == "f8E5M2"):
        return sign | infinity | ones
    return sign | infinity | highest


def _nan(profile: str, source: str, target: str, x: float) -> int:
    row = small_float_oracle.FORMATS[target]
    negative = math.copysign(1, x) < 0
    match row.kind:
        case "finite":
            return row.sign * (negative if profile == "stablehlo" else not negative)
        case "fn":
            return row.sign * negative | (row.sign - 1)
        case "fnuz":
            return row.sign
        case _:
            return _quiet_or_payload(profile, source, target, x)


def _saturates(profile: str, target: str, saturate: bool | None) -> bool:
    if saturate is None:
        return profile in CHOOSE_SATURATION or (profile == "torch" and target == "f8E4M3FN")
    return saturate


def in_tail(profile: str, source: str, target: str, index: int, size: int) -> bool:
    """Whether torch converts an element by its scalar loop, which has another NaN: the last size mod 16."""
    return profile.startswith("torch") and (source, target) == ("f64", "bf16") and index >= size - size % 16


def cast(
    profile: str,
    source: str,
    target: str,
    x: float,
    *,
    saturate: bool | None = None,
    rounding: str | None = None,
    tail: bool = False,
) -> Cast:
    """The code of x, a value of `source` held in binary64. NaNs hold their payload in its highest bits."""
    # Both versions cast alike.
    profile = {"torch_2_14": "torch", "onnx_1_32": "onnx"}.get(profile, profile)
    if math.isnan(x) and tail:
        return Cast(0x7FC0, nan=True)
    if math.isnan(x):
        return Cast(255 if target == "f8E8M0FNU" else _nan(profile, source, target, x), nan=True)
    once = profile == "stablehlo" or (profile in ("ml_dtypes", "onnx_reference") and target == "f16")
    if source == "f64" and not once and math.isfinite(x):
        x = math.copysign(F32.round(Fraction(x)), x)
    if profile == "onednn":
        if x == 0:
            x = 0.0
        elif math.isfinite(x):
            x = math.copysign(FORMATS["f16"].round(Fraction(x)), x)
    saturating = _saturates(profile, target, saturate)
    if target == "f8E8M0FNU":
        return _scale(profile, x, rounding, saturating)
    row, negative = small_float_oracle.FORMATS[target], math.copysign(1, x) < 0
    code = None if math.isinf(x) else small_float_oracle.nearest(target, x)
    if code is None:
        largest = ROWS[target][1]
        if row.kind == "finite":
            magnitude = 0 if profile == "stablehlo" and math.isinf(x) else largest
        elif row.codes == 256 and saturating:
            magnitude = largest
        else:
            magnitude = row.sign if row.kind == "fnuz" else largest + 1
        # What onnxruntime gives instead.
        if profile == "onnx" and saturate is False and target == "f8E4M3FN" and 480 <= abs(x) < 496:
            magnitude = largest
        if profile == "onnx" and saturate is False and target == "f8E5M2" and 61440 <= abs(x) < 65536:
            magnitude = 0x7F
        return Cast(magnitude | (row.sign * negative), low=negative, high=not negative)
    return Cast(code if row.kind == "fnuz" and code == 0 else code | (row.sign * negative))


def _scale(profile: str, x: float, rounding: str | None, saturating: bool) -> Cast:
    """E8M0. For onnxruntime on the number, for the others on the bits of the f32, as their definitions are."""
    default = "ceil" if profile in CHOOSE_SATURATION else "nearest_up"
    mode = {"ceil": "up", "floor": "down", "nearest_up": "nearest"}[rounding or default]
    counted = abs(x) if profile in ("onnx_reference", "torch") else x
    low = counted < 2.0**-127
    if profile == "onnx":
        if low:
            return Cast(0 if saturating else 255, low=True)
        if x > 2.0**127:
            return Cast(254 if saturating else 255, high=True)
        half, exponent = math.frexp(x)  # x = half * 2^exponent, exactly, 0.5 <= half < 1
        up = {"up": half > 0.5, "down": False, "nearest": half >= 0.75}[mode]
        return Cast(exponent - 1 + 127 + up)
    pattern = int.from_bytes(struct.pack(">f", x), "big")
    code = small_float_oracle.encode_scale(pattern, mode, saturating=saturating, positive_only=profile == "ml_dtypes")
    unbounded = small_float_oracle.encode_scale(pattern & 0x7FFFFFFF, mode, saturating=False, positive_only=False)
    return Cast(code, low=low, high=not low and unbounded == 255)
