"""From real numbers to the codes of a narrower float, by an authority's rule (`requant.profiles.cast`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import ParameterError, UnsupportedError
from requant.formats.elements import BYTE, FLOATS, FloatElement, Specials
from requant.kernels.convert.floats import general
from requant.kernels.convert.floats.encoding import ENCODE, Field, Scaling
from requant.kernels.scalar import small_floats as kernels
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.widen import FloatKind
from requant.plan.float_arrays import COMPUTE_DTYPES, widen
from requant.profiles import Rounding
from requant.profiles.cast import DRAWN_BITS, CastRule, FiniteNan, FloatOverflow, NanCode, ScaleRange

Array = NDArray[Any]

_INT64_MAX = (1 << 63) - 1
# One endless run, and the factor that is not used.
_LAYOUT = np.array([_INT64_MAX, 1, _INT64_MAX, 1, 0], np.int64)
_ONE = {"<f4": np.ones(1, "<f4"), "<f8": np.ones(1, "<f8")}
_BITS = {"<f4": ("<i4", 23), "<f8": ("<i8", 52)}
"""For each compute dtype: that of their bits, and how many of these the mantissa has."""


@dataclass(frozen=True, slots=True)
class SpecialCodes:
    """What is no finite number of a format gives, as magnitude codes.

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


def saturates(rule: CastRule, format_: FloatElement, saturate: bool | None) -> bool:
    """Return whether an overflow gives the largest value."""
    if saturate is not None:
        return saturate
    if rule.overflow is FloatOverflow.SATURATING_E4M3FN:
        return format_.name == "f8E4M3FN"
    return rule.overflow is FloatOverflow.SATURATING and format_.width <= 8


def special_codes(rule: CastRule, target: str, source: str = "f32", saturate: bool | None = None) -> SpecialCodes:
    """Return what overflow, infinity and NaN of `source` give in `target`, which is not f8E8M0FNU. The overflow is that
    of rounding to nearest."""
    format_ = FLOATS[target]
    sign, largest = format_.sign_bit, format_.largest_code
    if format_.specials is Specials.FINITE:
        infinity = 0 if rule.finite_infinity_zero else largest
        if rule.finite_nan is FiniteNan.LARGEST:
            return SpecialCodes(largest, infinity, largest)
        flip = sign if rule.finite_nan is FiniteNan.OPPOSITE_ZERO else 0
        return SpecialCodes(largest, infinity, 0, nan_sign=sign, nan_flip=flip)
    saturating = saturates(rule, format_, saturate)
    if format_.specials is Specials.FNUZ:
        overflow = largest if saturating else sign
        return SpecialCodes(overflow, overflow, sign)
    overflow = largest if saturating else largest + 1
    code = rule.nan_code(source, target)
    keeps_sign = code not in (NanCode.NEGATIVE_ONES, NanCode.POSITIVE_QUIET, NanCode.POSITIVE_ONES)
    nan_sign = sign if keeps_sign else 0
    nan_flip = sign if code is NanCode.NEGATIVE_ONES else 0
    if format_.specials is Specials.FN:
        return SpecialCodes(overflow, overflow, largest + 1, nan_sign=nan_sign, nan_flip=nan_flip)
    infinity = largest + 1
    ones = (1 << format_.mantissa_bits) - 1
    quiet = (ones + 1) >> 1
    mantissa, payload = {
        NanCode.PAYLOAD: (0, ones),
        NanCode.QUIET_PAYLOAD: (quiet, ones),
        NanCode.ONES: (ones, 0),
        NanCode.NEGATIVE_ONES: (ones, 0),
        NanCode.POSITIVE_ONES: (ones, 0),
        NanCode.QUIET: (quiet, 0),
        NanCode.POSITIVE_QUIET: (quiet, 0),
    }[code]
    return SpecialCodes(
        overflow,
        overflow,
        infinity | mantissa,
        smallest_nan=infinity + 1,
        nan_payload=payload,
        nan_sign=nan_sign,
        nan_flip=nan_flip,
    )


def overflows(special: SpecialCodes, format_: FloatElement, rounding: Rounding) -> tuple[int, int]:
    """Return the codes that an overflow above and below zero gives: the largest finite value where it is rounded
    inward."""
    inward = rounding in (Rounding.TOWARD_ZERO, Rounding.ODD)
    above = format_.largest_code if inward or rounding is Rounding.FLOOR else special.overflow
    below = format_.largest_code if inward or rounding is Rounding.CEILING else special.overflow
    return signed_special(special, format_, above, 0), signed_special(special, format_, below, format_.sign_bit)


def signed_special(special: SpecialCodes, format_: FloatElement, magnitude: int, sign: int) -> int:
    """Return the code of an overflow or an infinity. `sign`: 0 or the sign bit. One that is NaN has the sign of one."""
    is_nan = format_.specials is Specials.FN and magnitude > format_.largest_code
    return signed_nan(special, sign) if is_nan else magnitude | sign


def signed_nan(special: SpecialCodes, sign: int) -> int:
    """Return the code of a NaN without payload. `sign`: 0 or the sign bit."""
    return special.nan | ((sign & special.nan_sign) ^ special.nan_flip)


@dataclass(frozen=True, slots=True)
class Encoder:
    """A conversion of floats, arrays of the element type `source`, to the codes of `target`: uint8, or uint16.

    Underflow to zero keeps the sign where the format has a negative zero. `rules` are those of
    `requant.kernels.convert.floats.encoding`.
    """

    source: str
    target: str
    rounding: Rounding
    compute_dtype: str
    rules: Array

    def encode(self, values: Array, codes: Array, start: int, counts: Array) -> None:
        """Write the codes of `values` (1-D, contiguous), of which the first is element `start`.

        `counts` as in `Plan.step`: an element is saturated when what it is rounded to is beyond the largest finite
        value, whatever it then becomes.
        """
        self.encode_scaled(values, codes, start, counts, _LAYOUT, _ONE[self.compute_dtype])

    def encode_scaled(
        self, values: Array, codes: Array, start: int, counts: Array, layout: Array, factors: Array
    ) -> None:
        """The same of scaled values. `layout`: as in `requant.kernels.loops.unpacked`."""
        ENCODE[self.compute_dtype](
            values.view(BYTE), codes.view(BYTE), start, values.size, layout, factors, self.rules, counts
        )

    def scaling(
        self, source: str, divides: bool, precision: Precision = Precision.NATIVE, adds_zero: bool = False
    ) -> Encoder:
        """Return the conversion of x / s, or of x * s, for x of `source`, computed in f32. The quotient is rounded to
        `precision`; then +0 may be added."""
        rules = self.rules.copy()
        rules[Field.SOURCE] = FloatKind[source.upper()]
        rules[Field.SCALING] = Scaling.DIVISION if divides else Scaling.MULTIPLICATION
        rules[Field.PRECISION] = precision
        rules[Field.ADDS_ZERO] = adds_zero
        return Encoder(source, self.target, self.rounding, "<f4", rules)


@dataclass(frozen=True, slots=True)
class GeneralEncoder:
    """The same by any rounding. `rules` are those of `requant.kernels.convert.floats.general`; `seed` is that of
    stochastic rounding."""

    source: str
    target: str
    rounding: Rounding
    rules: Array
    seed: int

    def encode(self, values: Array, codes: Array, start: int, counts: Array) -> None:
        """See `Encoder.encode`."""
        general.encode_any(values.view(BYTE), codes.view(BYTE), start, values.size, self.seed, self.rules, counts)


@dataclass(frozen=True, slots=True)
class ScaleEncoder:
    """A conversion of floats to f8E8M0FNU, in f32. An element is saturated also when it is less than the smallest."""

    source: str
    rounding: Rounding
    numbers: tuple[int, ...]
    refuses_nan: bool

    def encode(self, values: Array, codes: Array, start: int, counts: Array) -> None:
        # What f64 is rounded to on its way may well be an infinity, and a signalling NaN is one like any other.
        with np.errstate(over="ignore", invalid="ignore"):
            reals = np.ascontiguousarray(widen(values, FLOATS[self.source]).astype("<f4", copy=False))
        before = counts[2]
        kernels.encode_e8m0(reals, codes, *self.numbers, counts)
        if self.refuses_nan and counts[2] > before and counts[3] < 0:
            counts[3] = start + int(np.argmax(np.isnan(reals)))


AnyEncoder = Encoder | GeneralEncoder | ScaleEncoder


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


def _highest(format_: FloatElement, compute_dtype: str) -> int:
    """Return the bits of the largest number that is rounded to a finite one: the tie above the largest finite value
    goes to it where its code is even."""
    dtype, mantissa_bits = _BITS[compute_dtype]
    half = 1 << (mantissa_bits - format_.mantissa_bits - 1)
    return int(np.array(format_.largest, compute_dtype).view(dtype)) + half - (format_.largest_code & 1)


def _chosen_rounding(rule: CastRule, target: str, rounding: Rounding | None) -> Rounding:
    choices = rule.roundings_to(target)
    if rounding is not None and rounding not in choices:
        raise UnsupportedError(
            f"{rule.authority} rounds to {target} by {' or '.join(choices)}; this is {rounding}", pointer="/rounding"
        )
    return choices[0] if rounding is None else rounding


def _check_random_bits(random_bits: int | None, rounding: Rounding) -> None:
    if random_bits is None:
        return
    if rounding is not Rounding.STOCHASTIC:
        raise ParameterError(f"random_bits are for stochastic rounding; this is {rounding}", pointer="/random_bits")
    if not 1 <= random_bits <= DRAWN_BITS:
        raise ParameterError(f"random_bits is {random_bits}; expected 1 to {DRAWN_BITS}", pointer="/random_bits")


def _general_rules(
    format_: FloatElement, array: str, rounding: Rounding, special: SpecialCodes, random_bits: int
) -> Array:
    overflow, negative_overflow = overflows(special, format_, rounding)
    fields = {
        general.Field.SOURCE: FloatKind[array.upper()],
        general.Field.ROUNDING: rounding.code,
        general.Field.RANDOM_BITS: random_bits,
        general.Field.NAN_UNDEFINED: 0,
        general.Field.BYTES: format_.code_dtype.itemsize,
        general.Field.MANTISSA_BITS: format_.mantissa_bits,
        general.Field.BIAS: format_.bias,
        general.Field.SIGN_BIT: format_.sign_bit,
        general.Field.ZERO_SIGN: _zero_sign(format_),
        general.Field.LARGEST: format_.largest_code,
        general.Field.OVERFLOW: overflow,
        general.Field.NEGATIVE_OVERFLOW: negative_overflow,
        general.Field.INFINITY: signed_special(special, format_, special.infinity, 0),
        general.Field.NEGATIVE_INFINITY: signed_special(special, format_, special.infinity, format_.sign_bit),
        general.Field.NAN: signed_nan(special, 0),
        general.Field.NEGATIVE_NAN: signed_nan(special, format_.sign_bit),
        general.Field.NAN_PAYLOAD: special.nan_payload,
    }
    return np.array([int(fields[field]) for field in general.Field], np.int64)


def _zero_sign(format_: FloatElement) -> int:
    """Return the sign bit of a zero: 0 where the format has no negative zero."""
    return 0 if format_.specials is Specials.FNUZ else format_.sign_bit


def encoder(
    rule: CastRule,
    target: str,
    source: str = "f32",
    *,
    saturate: bool | None = None,
    rounding: Rounding | None = None,
    seed: int = 0,
    random_bits: int | None = None,
    refuses_nan: bool = False,
) -> AnyEncoder:
    """Return the conversion of numbers that were `source` (an element type) to `target` by `rule`.

    Those of at most 8 bits come as f32; to f32 they are f64. `saturate` and `rounding` replace the rule's own; `seed`
    and `random_bits`, of 1 to 32, are those of stochastic rounding. Raise UnsupportedError for a format that the rule
    does not have, for a source that it does not take, and for a saturation or rounding that it leaves no choice of;
    ParameterError for another number of random bits, or with another rounding.
    """
    if target not in rule.formats:
        raise UnsupportedError(f"{rule.authority} does not cast to {target}; it does to {', '.join(rule.formats)}")
    format_ = FLOATS[target]
    if saturate is not None and target not in rule.chosen_saturation:
        raise UnsupportedError(f"{rule.authority} leaves no choice of saturation to {target}", pointer="/saturate")
    rounding = _chosen_rounding(rule, target, rounding)
    _check_random_bits(random_bits, rounding)
    array = source if source in COMPUTE_DTYPES else "f32"
    saturating = saturates(rule, format_, saturate)
    if format_.specials is Specials.SCALE:
        return ScaleEncoder(array, rounding, _scale_numbers(rule, rounding, saturating), refuses_nan)
    special = special_codes(rule, target, source, saturate)
    refuses_nan |= format_.specials is Specials.FINITE and rule.finite_nan is FiniteNan.ERROR
    keeps_sign = overflows(special, format_, rounding) == (special.overflow, special.overflow | format_.sign_bit)
    if rounding is not Rounding.NEAREST_EVEN or not keeps_sign:
        rules = _general_rules(format_, array, rounding, special, DRAWN_BITS if random_bits is None else random_bits)
        rules[general.Field.NAN_UNDEFINED] = refuses_nan
        return GeneralEncoder(array, target, rounding, rules, seed)
    compute_dtype = "<f8" if source == "f64" and target in rule.f64_once else "<f4"
    slip_from = slip_to = np.iinfo(_BITS[compute_dtype][0]).max
    slip = None if saturating or compute_dtype == "<f8" else rule.slips.get(target)
    if slip is not None:
        slip_from, slip_to = np.array([slip.start, slip.stop], "<f4").view("<i4").tolist()
    fields = {
        Field.SOURCE: FloatKind[array.upper()],
        Field.SCALING: Scaling.NONE,
        Field.PRECISION: Precision.NATIVE,
        Field.ADDS_ZERO: False,
        Field.THROUGH_F16: rule.through_f16 and compute_dtype == "<f4",
        Field.NAN_UNDEFINED: refuses_nan,
        Field.BYTES: format_.code_dtype.itemsize,
        Field.MANTISSA_BITS: format_.mantissa_bits,
        Field.BIAS: format_.bias,
        Field.SIGN_BIT: format_.sign_bit,
        Field.ZERO_SIGN: _zero_sign(format_),
        Field.HIGHEST: _highest(format_, compute_dtype),
        Field.OVERFLOW: special.overflow,
        Field.INFINITY: special.infinity,
        Field.NAN: special.nan,
        Field.SMALLEST_NAN: special.smallest_nan,
        Field.NAN_PAYLOAD: special.nan_payload,
        Field.NAN_SIGN: special.nan_sign,
        Field.NAN_FLIP: special.nan_flip,
        Field.SLIP_FROM: slip_from,
        Field.SLIP_TO: slip_to,
        Field.SLIP: 0 if slip is None else slip.code,
    }
    return Encoder(array, target, rounding, compute_dtype, np.array([int(fields[field]) for field in Field], np.int64))
