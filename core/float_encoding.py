"""From real numbers to the codes of a float of at most 16 bits, by the rule of an authority (`core.profiles.cast`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import UnsupportedError
from core.kernels import small_floats as kernels
from core.kernels._jit import Kernel
from core.profiles import Rounding
from core.profiles.cast import CastRule, FiniteNan, FloatOverflow, NanCode, ScaleRange
from core.small_floats import SmallFloat, Specials, small_float

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class SpecialCodes:
    """What is no finite number of a format gives, as magnitude codes: the arguments of the kernels, in their order.

    A NaN gives `nan` with the source's highest mantissa bits under `nan_payload` put in, at least `smallest_nan`; and
    the sign ((sign of the source) and `nan_sign`) exclusive or `nan_flip`.
    """

    overflow: int
    infinity: int
    nan: int
    smallest_nan: int = 0
    nan_payload: int = 0
    nan_sign: int = 0
    nan_flip: int = 0


def _saturates(rule: CastRule, format_: SmallFloat, saturate: bool | None) -> bool:
    """Return whether an overflow gives the largest value."""
    if saturate is not None:
        return saturate
    return rule.overflow is FloatOverflow.SATURATING or (
        rule.overflow is FloatOverflow.SATURATING_E4M3FN and format_.name == "f8E4M3FN"
    )


def special_codes(rule: CastRule, target: str, source: str = "f32", saturate: bool | None = None) -> SpecialCodes:
    """Return what overflow, infinity and NaN of `source` give in `target`, which is not f8E8M0FNU."""
    format_ = small_float(target)
    sign, largest = format_.sign_bit, format_.largest_code
    if format_.specials is Specials.FINITE:
        flip = sign if rule.finite_nan is FiniteNan.OPPOSITE_ZERO else 0
        infinity = 0 if rule.finite_infinity_zero else largest
        return SpecialCodes(largest, infinity, 0, nan_sign=sign, nan_flip=flip)
    saturating = format_.width == 8 and _saturates(rule, format_, saturate)
    if format_.specials is Specials.FNUZ:
        overflow = largest if saturating else sign
        return SpecialCodes(overflow, overflow, sign)
    overflow = largest if saturating else largest + 1
    if format_.specials is Specials.FN:
        return SpecialCodes(overflow, overflow, largest + 1, nan_sign=sign)
    infinity = largest + 1
    ones = (1 << format_.mantissa_bits) - 1
    quiet = (ones + 1) >> 1
    code = rule.nan_code(source, target)
    mantissa, payload = {
        NanCode.PAYLOAD: (0, ones),
        NanCode.QUIET_PAYLOAD: (quiet, ones),
        NanCode.ONES: (ones, 0),
        NanCode.NEGATIVE_ONES: (ones, 0),
        NanCode.QUIET: (quiet, 0),
        NanCode.POSITIVE_QUIET: (quiet, 0),
    }[code]
    keeps_sign = code not in (NanCode.NEGATIVE_ONES, NanCode.POSITIVE_QUIET)
    return SpecialCodes(
        overflow,
        overflow,
        infinity | mantissa,
        smallest_nan=infinity + 1,
        nan_payload=payload,
        nan_sign=sign if keeps_sign else 0,
        nan_flip=sign if code is NanCode.NEGATIVE_ONES else 0,
    )


@dataclass(frozen=True, slots=True)
class Encoder:
    """A conversion to the codes of `target`: uint8, or uint16 for 16 bits. `lanes` are the floats that it takes.

    Underflow to zero keeps the sign where the format has a negative zero.
    """

    target: str
    rounding: Rounding
    lanes: str
    kernel: Kernel
    numbers: tuple[int, ...]
    refuses_nan: bool

    def encode(self, values: Array, codes: Array, start: int, counts: Array) -> None:
        """Write the codes of `values` (1-D, contiguous, f32 or f64), of which the first is element `start`.

        `counts` as in `Plan.step`: an element is saturated when what it is rounded to is beyond the largest finite
        value, whatever it then becomes, and in f8E8M0FNU also when it is less than the smallest.
        """
        # What f64 is rounded to on its way may well be an infinity, and a signalling NaN is one like any other.
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.ascontiguousarray(values.astype(self.lanes, copy=False))
        before = counts[2]
        self.kernel(values, codes, *self.numbers, counts)
        if self.refuses_nan and counts[2] > before and counts[3] < 0:
            counts[3] = start + int(np.argmax(np.isnan(values)))


def _scale_numbers(rule: CastRule, rounding: Rounding, saturating: bool) -> tuple[int, ...]:
    added, highest = {
        Rounding.CEILING: (0x7FFFFF, 0x7F000000),
        Rounding.FLOOR: (0, 0x7F7FFFFF),
        Rounding.NEAREST_UP: (0x400000, 0x7F3FFFFF),
    }[rounding]
    # 2^-127 itself is a subnormal f32 with the mantissa of a tie; to nearest it stays, rounded up it does not (onnx).
    less = int(rounding is Rounding.NEAREST_UP)
    above = 254 if saturating else 255
    if rule.scale_range is ScaleRange.BEFORE_ROUNDING:
        return added, 0, True, True, 0x7F000000, above, above, 0x00400000, 0 if saturating else 255
    positive_only = rule.scale_range is ScaleRange.POSITIVE_ONLY
    return added, less, False, positive_only, highest, above, 255, 1 if positive_only else 0, 255


def _chosen_rounding(rule: CastRule, target: str, rounding: Rounding | None) -> Rounding:
    choices = rule.scale_roundings if small_float(target).specials is Specials.SCALE else (Rounding.NEAREST_EVEN,)
    if rounding is not None and rounding not in choices:
        raise UnsupportedError(
            f"{rule.authority} rounds to {target} by {' or '.join(choices)}; this is {rounding}", pointer="/rounding"
        )
    return choices[0] if rounding is None else rounding


def encoder(
    rule: CastRule,
    target: str,
    source: str = "f32",
    *,
    saturate: bool | None = None,
    rounding: Rounding | None = None,
    refuses_nan: bool = False,
) -> Encoder:
    """Return the conversion of numbers that were `source` (an element type) to `target` by `rule`.

    `saturate` and `rounding` replace the rule's own. Raise UnsupportedError for a format that the rule does not have,
    for a source that it does not take, and for a saturation or rounding that it leaves no choice of.
    """
    if target not in rule.formats:
        raise UnsupportedError(f"{rule.authority} does not cast to {target}; it does to {', '.join(rule.formats)}")
    format_ = small_float(target)
    if saturate is not None and not (rule.chosen_saturation and format_.width == 8):
        raise UnsupportedError(f"{rule.authority} leaves no choice of saturation to {target}", pointer="/saturate")
    rounding = _chosen_rounding(rule, target, rounding)
    if format_.specials is Specials.SCALE:
        numbers = _scale_numbers(rule, rounding, _saturates(rule, format_, saturate))
        return Encoder(target, rounding, "<f4", kernels.encode_e8m0, numbers, refuses_nan)
    special = special_codes(rule, target, source, saturate)
    numbers = (
        format_.mantissa_bits,
        format_.bias,
        format_.sign_bit,
        0 if format_.specials is Specials.FNUZ else format_.sign_bit,
        format_.largest_code,
        special.overflow,
        special.infinity,
        special.nan,
        special.smallest_nan,
        special.nan_payload,
        special.nan_sign,
        special.nan_flip,
    )
    if source == "f64" and target in rule.f64_once:
        return Encoder(target, rounding, "<f8", kernels.encode_f64, numbers, refuses_nan)
    slip = None if _saturates(rule, format_, saturate) else rule.slips.get(target)
    ends = (0, 0) if slip is None else np.array([slip.start, slip.stop], "<f4").view("<i4").tolist()
    numbers = (*numbers, *ends, 0 if slip is None else slip.code)
    return Encoder(target, rounding, "<f4", kernels.ENCODE_F32[rule.through_f16], numbers, refuses_nan)
