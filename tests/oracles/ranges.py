"""Parameters from ranges in exact fractions, each rounding step written out; from the specification, nothing of ours.

Ends are Python floats that hold f32 values where a system keeps those. A step that a system takes in f32 is `f32(...)`,
in f64 `f64(...)`, of the exact value of its operands. Each function names its source.
None is returned for ranges that a system has no finite answer for, or divides by zero for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

from tests.oracles.quantization import f32, nearest_away, nearest_even

Parameters = tuple[float, int] | None

F = Fraction
SMALLEST_NORMAL = 2.0**-126


def f64(value: Fraction) -> float:
    """Round to the nearest double, ties to even."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def litert(low: float, high: float, lowest: int, highest: int) -> Parameters:
    """LiteRT ChooseQuantizationParams."""
    if low == high == 0:
        return 0.0, 0
    scale = f64(F(f64(F(high) - F(low)) if math.isfinite(f64(F(high) - F(low))) else 0) / (highest - lowest))
    if scale == 0:
        return None
    return scale, _nearer(low, high, scale, lowest, highest, add=True, rounding=nearest_away)


def mlir(low: float, high: float, lowest: int, highest: int) -> Parameters:
    """MLIR FakeQuantSupport.cpp."""
    width = f64(F(high) - F(low))
    if not math.isfinite(width):
        return None
    if width < 2.0**-52:
        return 1.0, lowest
    scale = f64(F(width) / (highest - lowest))
    return scale, _nearer(low, high, scale, lowest, highest, add=True, rounding=nearest_away)


def _nearer(
    low: float, high: float, scale: float, lowest: int, highest: int, *, add: bool, rounding: Callable[[Fraction], int]
) -> int:
    sign = 1 if add else -1
    below, above = f64(F(low) / F(scale)), f64(F(high) / F(scale))
    low_error = f64(abs(lowest) + sign * abs(F(below)))
    high_error = f64(abs(highest) + sign * abs(F(above)))
    zero_point = f64(lowest - F(below)) if low_error < high_error else f64(highest - F(above))
    return min(max(rounding(F(zero_point)), lowest), highest)


def litert_converter(low: float, high: float, *, symmetric: bool, highest: int) -> Parameters:
    """LiteRT's converter. `highest`: 127 or 32767."""
    if symmetric:
        return f32(F(max(abs(low), abs(high))) / highest), 0
    low, high = min(low, 0.0), max(high, 0.0)
    width = f32(F(high) - F(low))
    if math.isinf(width):
        return None
    scale = f32(F(width) / 255)
    if scale == 0:
        return scale, -128
    zero_point = f32(-128 - F(f32(F(low) / F(scale))))
    return scale, nearest_away(F(min(max(zero_point, -128.0), 127.0)))


def litert_hybrid(low: float, high: float, *, symmetric: bool) -> Parameters:
    """LiteRT's hybrid kernels; the width is rounded to f32, as the interpreter does."""
    if symmetric:
        reach = max(abs(low), abs(high))
        return (f32(F(reach) / 127), 0) if reach else (1.0, 0)
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return 1.0, 0
    width = f32(F(high) - F(low))
    if math.isinf(width):
        return None
    scale = f64(F(width) / 255)
    return f32(F(scale)), _nearer(low, high, scale, -128, 127, add=True, rounding=nearest_away)


def nudge(low: float, high: float, lowest: int, highest: int) -> tuple[float, int, float, float] | None:
    """LiteRT NudgeQuantizationRange: scale, zero point, nudged minimum and maximum."""
    width = f32(F(high) - F(low))
    if math.isinf(width) or low == high:
        return None
    scale = f32(F(width) / (highest - lowest))
    if scale == 0:
        return None
    wanted = f32(lowest - F(f32(F(low) / F(scale))))
    zero_point = nearest_away(F(min(max(wanted, float(lowest)), float(highest))))
    return (
        scale,
        zero_point,
        f32(F(lowest - zero_point) * F(scale)),
        f32(F(highest - zero_point) * F(scale)),
    )


def tensorflow_nudge(low: float, high: float, lowest: int, highest: int) -> tuple[float, int, float, float] | None:
    """The same with subnormal ends read as 0, for the steps for which nothing else can be flushed."""
    low, high = (0.0 if abs(end) < SMALLEST_NORMAL else end for end in (low, high))
    if low == high == 0:
        return 0.0, lowest, 0.0, 0.0
    found = nudge(low, high, lowest, highest)
    return found if found and 2.0**-124 <= found[0] <= 2.0**125 else None


def onnxruntime(
    low: float, high: float, lowest: int, highest: int, *, symmetric: bool, least_width: float | None, blocked: bool
) -> Parameters:
    """onnxruntime.quantization compute_scale_zp."""
    low, high = min(low, 0.0), max(high, 0.0)
    if least_width is not None:
        high = max(high, f32(F(low) + F(f32(F(least_width)))))
        if math.isinf(high):
            return None
    if symmetric:
        high = max(abs(low), abs(high))
        low = -high
    width = f32(F(high) - F(low)) if blocked else f64(F(high) - F(low))
    if math.isinf(width):
        return None
    scale = f64(F(width) / (highest - lowest))
    if blocked:
        scale = f32(F(scale))
    if scale < SMALLEST_NORMAL:
        return 1.0, 0
    if symmetric:
        return f32(F(scale)), nearest_even(F(lowest + highest, 2))
    zero_point = nearest_even(F(f64(lowest - F(f64(F(low) / F(scale))))))
    return f32(F(scale)), min(max(zero_point, lowest), highest) if blocked else zero_point


def onnx_dynamic(low: float, high: float, *, empty: float, undefined: int) -> Parameters:
    """ONNX DynamicQuantizeLinear. `empty`: the scale of a range of zero width; `undefined`: the zero point of 0/0."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return empty, 0
    width = f32(F(high) - F(low))
    if math.isinf(width):
        return None
    scale = f32(F(width) / 255)
    if scale == 0:
        return scale, undefined if low == 0 else 255
    zero_point = f32(-F(f32(F(low) / F(scale))))
    return scale, nearest_even(F(min(max(zero_point, 0.0), 255.0)))


def torch(
    low: float, high: float, lowest: int, highest: int, *, power_of_two: bool, preserve_sparsity: bool
) -> Parameters:
    """torch _choose_qparams_per_tensor. None for powers of two that an int does not hold, and for symmetric ranges
    beyond f32."""
    smallest = f32(F("6.1e-5"))
    span = highest - lowest
    if preserve_sparsity and low < 0 < high:
        below, above = -(span // 2 + 1), span // 2
        largest = max(
            abs(f32(F(low) / F(f32(F(below))))),
            abs(f32(F(high) / F(f32(F(above))))),
        )
        low, high = f32(F(f64(F(largest) * below))), f32(F(f64(F(largest) * above)))
    if math.isinf(low) or math.isinf(high):
        return None
    low, high = min(low, 0.0), max(high, 0.0)
    scale = f64(F(f64(F(high) - F(low))) / span)
    narrow = f32(F(scale))
    if narrow == 0 or math.isinf(f32(1 / F(narrow))):
        scale = 0.1
    if power_of_two:
        scale = _power_of_two(scale)
        if math.isnan(scale):
            return None
    if scale < smallest:
        if low == 0:
            high = f32(F(smallest) * F(f32(F(span))))
        elif high == 0:
            low = -f32(F(smallest) * F(f32(F(span))))
        else:
            factor = f32(F(smallest) / F(f32(F(scale))))
            low, high = f32(F(low) * F(factor)), f32(F(high) * F(factor))
        scale = smallest
    if preserve_sparsity and low < 0 < high:
        zero_point = nearest_even(F(lowest + highest, 2))
        return scale, min(max(zero_point, lowest), highest)
    return scale, _nearer(low, high, scale, lowest, highest, add=False, rounding=nearest_even)


_DIGITS = Context(prec=60)


def _logarithm(value: float) -> float:
    """ln, correctly rounded to f64: what a good C library gives."""
    return float(_DIGITS.ln(Decimal(value)))


def _power_of_two(scale: float) -> float:
    below = scale < 1
    ratio = f64(F(_logarithm(f64(1 / F(scale)) if below else scale)) / F(_logarithm(2.0)))
    shift = math.floor(ratio) if below else math.ceil(ratio)
    if shift > 30:
        return math.nan
    return 2.0**-shift if below else 2.0**shift


def torch_observer(
    low: float, high: float, lowest: int, highest: int, *, middle: int | None, epsilon: float
) -> Parameters:
    """torch.ao.quantization observers. `middle`: the zero point of a symmetric range; None for an affine one."""
    low, high, epsilon = min(low, 0.0), max(high, 0.0), f32(F(epsilon))
    span = highest - lowest
    if middle is not None:
        return max(f32(F(max(-low, high)) / F(f32(F(span, 2)))), epsilon), middle
    width = f32(F(high) - F(low))
    if math.isinf(width):
        return None
    scale = max(f32(F(width) / F(f32(F(span)))), epsilon)
    below = max(nearest_even(F(f32(F(low) / F(scale)))), -(1 << 31))
    wrapped = (lowest - below + (1 << 31)) % (1 << 32) - (1 << 31)
    return scale, min(max(wrapped, lowest), highest)


def torch_per_token(low: float, high: float, *, symmetric: bool) -> Parameters:
    """torch quantized_decomposed, per token, for i8."""
    if symmetric:
        return f32(F(max(abs(low), abs(high), f32(F("1e-5")))) / 127), 0
    low, high = min(low, 0.0), max(high, 0.0)
    width = f32(F(high) - F(low))
    if math.isinf(width):
        return None
    scale = max(f32(F(width) / 255), 2.0**-23)
    below, above = f32(F(low) / F(scale)), f32(F(high) / F(scale))
    low_error, high_error = f32(-128 + F(below)), f32(127 + F(above))
    wanted = f32(-128 - F(below)) if f32(F(low_error) + F(high_error)) > 0 else f32(127 - F(above))
    return scale, nearest_even(F(min(max(wanted, -128.0), 127.0)))


def onednn(low: float, high: float, *, highest: int) -> Parameters:
    """The developer guide: 255 or 127 steps to the largest magnitude."""
    return f32(F(max(abs(low), abs(high))) / highest), 0


# --- Fake quantization ----------------------------------------------------------------------------------------------


def fake_quantize(x: float, low: float, high: float, lowest: int, highest: int, scheme: str) -> float | None:
    """What a scheme makes of an f32 `x` for the range low to high. None where the range has no answer."""
    if scheme == "litert":
        nudged = nudge(low, high, lowest, highest)
        if nudged is None or math.isinf(f32(1 / F(nudged[0]))):
            return None
        scale, _, start, end = nudged
        clamped = min(end, max(start, x)) if not math.isnan(x) else start
        away = nearest_away(F(f32(F(f32(F(clamped) - F(start))) * F(f32(1 / F(scale))))))
        return f32(F(f32(away * F(scale))) + F(start))
    nudged = tensorflow_nudge(low, high, lowest, highest)
    if nudged is None:
        return None
    scale, _, start, end = nudged
    if scale == 0:
        return 0.0
    if math.isnan(x):
        return math.nan
    low, high = (0.0 if abs(limit) < SMALLEST_NORMAL else limit for limit in (low, high))
    inverse = f32(F(highest - lowest) / F(f32(F(high) - F(low))))
    zero = math.floor(F(f32(F(f32(-F(start) * F(inverse))) + F(1, 2))))
    shifted = F(f32(F(min(max(x, start), end)) - F(start)))
    steps = f32(shifted / F(scale)) if scheme == "tf_fake_quant_vars" else f32(shifted * F(inverse))
    return f32(math.floor(F(f32(F(f32(F(steps) - zero)) + F(1, 2)))) * F(scale))
