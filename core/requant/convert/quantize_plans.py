"""Plans of the quantization kernels, from the general one to those for few types.

The fast kernels take f32, f16 and bf16 to integers of 8, 16 and 32 bits, by the roundings to nearest; the general one
every rule, width and expressed type. Small floats are scaled in f32, then encoded by the profile's authority.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from requant.convert.float_encoding import Encoder
from requant.formats.elements import BYTE, FLOATS, FloatElement
from requant.formats.rules import Overflow, Quotient
from requant.kernels.convert.quantize import general as kernel
from requant.kernels.convert.quantize.native import QUANTIZE, WINDOW, Field, Form
from requant.kernels.jit.processor import HAS_FMA
from requant.kernels.scalar.reciprocal import reciprocals_agree
from requant.kernels.simd.widen import FloatKind
from requant.mlir.types import TensorType
from requant.plan.compute_dtype import rounded_scales, step_precision
from requant.plan.float_arrays import COMPUTE_DTYPES, rounded, widen
from requant.plan.operands import QuantizedOperand, float_element, static_shape
from requant.plan.plan import Array, DeferredPlan, Plan, Report, pieces, quantizing, shared_plan_fields
from requant.profiles import OperationRule, Rounding, ZeroPoint
from requant.profiles.rule import NanResult, Steps

_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal
_LARGEST_THAT_SHOWS = 2.0**-125
_SHOWING = (Rounding.FLOOR, Rounding.CEILING, Rounding.STOCHASTIC)


def flushed(values: Array) -> Array:
    """Return f32 with subnormals replaced by 0."""
    return np.where(np.abs(values) < _SMALLEST_NORMAL, np.float32(0), values)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushingPlan(Plan):
    """`whole`, in threads that take subnormal numbers for zero, where that shows.

    To nearest or toward zero, a quotient that rounds to other than 0 has |x| of at least half the scale. So subnormal x
    show only at scales of at most 2^-125; everywhere else they and zeros give the same. By the other roundings, which a
    request can choose, they show at every scale.
    """

    whole: Plan

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        for piece in pieces(source.size):
            self.whole.step(flushed(source[piece]), target[piece], start + piece.start, counts)

    def explain_undefined(self, counts: Array) -> str:
        return self.whole.explain_undefined(counts)


def plan_flushing(whole: Plan, rule: OperationRule, operand: QuantizedOperand) -> Plan:
    """Return `whole`, or a plan around it where subnormal x show."""
    if rule.rounding not in _SHOWING and min(operand.scales) > _LARGEST_THAT_SHOWS:
        return whole
    return FlushingPlan(**shared_plan_fields(whole), whole=whole)


ROUNDINGS = (
    Rounding.NEAREST_EVEN,
    Rounding.NEAREST_AWAY,
    Rounding.NEAREST_UP,
    Rounding.NEAREST_DOWN,
    Rounding.TOWARD_ZERO,
    Rounding.FLOOR,
    Rounding.CEILING,
    Rounding.STOCHASTIC,
)
"""The roundings of a real number to an integer, which can replace the profile's."""
_IN_FLOAT = (Overflow.FLOAT_CLAMP, Overflow.FLOAT_SATURATE)
_INT32_MINIMUM, _INT32_MAXIMUM = -(1 << 31), (1 << 31) - 1
_LARGEST_F32_IN_INT32 = (1 << 31) - 128
_WIDEST_NARROW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralPlan(Plan):
    """Plan of `requant.kernels.convert.quantize.general`."""

    compute_dtype: str
    wide: bool
    layout: Array
    factors: Array
    addends: Array
    zero_points: Array
    nans: Array
    rules: Array
    bounds: Array

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        kernel.QUANTIZE_ANY[self.compute_dtype, self.wide](
            source.view(BYTE),
            target.view(BYTE),
            start,
            source.size,
            self.layout,
            self.factors,
            self.addends,
            self.zero_points,
            self.nans,
            self.rules,
            self.bounds,
            counts,
        )

    def explain_undefined(self, counts: Array) -> str:
        lowest, highest = self.bounds[4:6].tolist()
        return (
            f"profile {self.profile} is undefined for this element: it is NaN, or rounds to a number outside "
            f"{lowest} to {highest}"
        )


def reciprocals(rule: OperationRule, operand: QuantizedOperand, scales: Array) -> Array:
    """1 / s in the compute dtype; of the type's own f64 scale, or 0 where it is subnormal, if the rule says so."""
    with np.errstate(over="ignore", divide="ignore"):
        if rule.quotient is Quotient.RECIPROCAL_OF_F64:
            return (1.0 / np.array(operand.scales)).astype(scales.dtype)
        quotients = (np.ones(1, scales.dtype) / scales).astype(scales.dtype)
        return flushed(quotients) if rule.flushes else quotients


def _addition(rule: OperationRule) -> kernel.Addition:
    if rule.quotient is Quotient.FUSED:
        return kernel.Addition.NONE
    if rule.zero_point is ZeroPoint.BEFORE_ROUNDING:
        return kernel.Addition.BEFORE
    return kernel.Addition.AFTER if rule.overflow in _IN_FLOAT else kernel.Addition.NONE


def adds_in_float(rule: OperationRule) -> bool:
    """Return whether the zero point is added to a float, so that nothing is added to the integer."""
    return _addition(rule) is not kernel.Addition.NONE or rule.quotient is Quotient.FUSED


def _stored_bounds(rule: OperationRule, operand: QuantizedOperand, in_float: bool, stepped: str) -> tuple[int, int]:
    """The first and last integer that can be stored. Bounds applied in a float type are rounded to it, and can lie
    beyond those of the type: then the storage type's own hold."""
    if not in_float or rule.overflow is Overflow.UNDEFINED:
        return operand.minimum, operand.maximum
    real = rounded(np.array([operand.minimum, operand.maximum], np.float64), FLOATS[stepped]).astype(np.float64)
    near = np.clip(real, -(2.0**40), 2.0**40).astype(np.int64).tolist()
    if rule.overflow is Overflow.FLOAT_CLAMP and operand.highest > 65535:
        # What int32 does not hold is the kernel's matter.
        return near[0], near[1]
    # Both bounds are infinite where they lie beyond the largest f16.
    first, last = (min(max(bound, operand.lowest), operand.highest) for bound in near)
    return first, last


def stored_nans(rule: OperationRule, operand: QuantizedOperand) -> Array:
    """Return what NaN is stored as, for each parameter of the type."""
    zero_points = np.array(operand.zero_points, np.int64)
    match rule.nan_result:
        case NanResult.LOWEST:
            return np.full_like(zero_points, operand.minimum)
        case NanResult.HIGHEST:
            return np.full_like(zero_points, operand.maximum)
        case NanResult.ZERO_POINT:
            return zero_points
        case NanResult.INT32_MINIMUM:
            return np.full_like(zero_points, _INT32_MINIMUM)
        case NanResult.INDEFINITE | NanResult.INDEFINITE_HIGHEST:
            converted = _INT32_MINIMUM if rule.nan_result is NanResult.INDEFINITE else _LARGEST_F32_IN_INT32
            added = 0 if adds_in_float(rule) else zero_points
            wrapped = np.full_like(zero_points, converted + added).astype(np.int32).astype(np.int64)
            return np.clip(wrapped, operand.minimum, operand.maximum)
    return np.zeros_like(zero_points)


def plan_general(
    profile: str, rule: OperationRule, input_type: TensorType, operand: QuantizedOperand, seed: int
) -> GeneralPlan:
    """Plan any conversion to integers."""
    expressed = operand.expressed.name
    compute_dtype = COMPUTE_DTYPES[expressed]
    stepped = expressed if rule.steps is Steps.EXPRESSED else "f32"
    in_float = adds_in_float(rule)
    wide = operand.width > _WIDEST_NARROW or compute_dtype == "<f8"
    integer = "<i8" if wide else "<i4"
    scales = rounded_scales(operand.scales, operand.expressed, rule)
    zero_points = np.array(operand.zero_points, np.int64)
    rules = {
        kernel.Field.SOURCE: FloatKind[expressed.upper()],
        kernel.Field.QUOTIENT: rule.quotient.code,
        kernel.Field.PRECISION: step_precision(rule.steps, expressed),
        kernel.Field.ADDITION: _addition(rule),
        kernel.Field.ROUNDING: rule.rounding.code,
        kernel.Field.OVERFLOW: rule.overflow.code,
        kernel.Field.NAN_UNDEFINED: rule.nan_result is NanResult.ERROR,
        kernel.Field.SEED: seed,
        kernel.Field.BYTES: operand.dtype.itemsize,
    }
    stored = _stored_bounds(rule, operand, in_float, stepped)
    added = np.zeros_like(zero_points) if in_float else zero_points
    from_int32 = (_INT32_MINIMUM + int(added.max()), _INT32_MAXIMUM + int(added.min()))
    channels = operand.channels
    return GeneralPlan(
        **quantizing(profile, rule, input_type, operand),
        compute_dtype=compute_dtype,
        wide=wide,
        layout=channels.layout,
        factors=channels.lay_out(
            scales if rule.quotient is Quotient.DIVISION else reciprocals(rule, operand, scales), compute_dtype
        ),
        addends=channels.lay_out(rounded(zero_points.astype(np.float64), FLOATS[stepped]), compute_dtype),
        zero_points=channels.lay_out(added, integer),
        nans=channels.lay_out(stored_nans(rule, operand), integer),
        rules=np.array([int(rules[field]) for field in kernel.Field], np.int64),
        bounds=np.array(
            # 16 bits of storage are far below what int32 holds, and the kernel does not look at it.
            [
                operand.minimum,
                operand.maximum,
                *stored,
                operand.lowest,
                operand.highest,
                *(from_int32 if wide else (0, 0)),
            ],
            integer,
        ),
    )


# Scales for which subnormals give the same as zeros: quotients and products stay far below 1/2.
_SMALLEST_FLUSHED = np.float32(2.0**-60)
_LARGEST_FLUSHED = np.float32(2.0**60)
_REST = 16384


def native_form(rule: OperationRule, operand: QuantizedOperand) -> Form | None:
    """Return the kernel that computes this rule for this type, or None if there is none."""
    expressed = operand.expressed.name
    in_f32 = COMPUTE_DTYPES[expressed] == "<f4" and (rule.steps is Steps.F32 or expressed == "f32")
    if not in_f32 or (rule.quotient is Quotient.FUSED and operand.channels.cycle):
        return None
    if operand.width > 16:
        # Beyond the bounds of i32 the rules differ where they do not for less; the general kernel knows how.
        exact = rule.overflow is Overflow.SATURATE and rule.zero_point is ZeroPoint.AFTER_ROUNDING
        whole = (operand.minimum, operand.maximum) == (operand.lowest, operand.highest)
        symmetric = not any(operand.zero_points)
        indefinite = rule.overflow is Overflow.INDEFINITE and symmetric
        if operand.storage != "i32" or not (exact or indefinite or (whole and rule.overflow is Overflow.SATURATE)):
            return None
    form = Form(
        multiplied=rule.quotient is not Quotient.DIVISION,
        before=rule.zero_point is ZeroPoint.BEFORE_ROUNDING and rule.quotient is not Quotient.FUSED,
        away=rule.rounding is Rounding.NEAREST_AWAY,
        source=expressed,
        bits=operand.dtype.itemsize * 8,
    )
    return form if rule.rounding in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY) and form in QUANTIZE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan(Plan):
    """Plan of `requant.kernels.convert.quantize.native`. `general` converts what that kernel stops at: few tensors have
    any of it, so that plan is made when the first one comes.
    """

    kernel: Callable[..., tuple[int, int, int, int]]
    numbers: Array
    factors: Array
    zeros: Array
    general: DeferredPlan

    def run(self, source: Array, target: Array) -> Report:
        """See Plan.run: without the array of a tally, which takes as long as the arithmetic of a small tensor."""
        self.check_arrays(source, target)
        done, low, high, missing = self.kernel(source, target, 0, self.numbers, self.factors, self.zeros)
        if done == self.elements:
            return self.tallied(low, high, missing)
        return Plan.run(self, source, target)

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        done = self._convert(source, target, start, counts)
        while done < source.size:
            rest = slice(done, done + _REST)
            self.general().step(source[rest], target[rest], start + done, counts)
            done += _REST
            if done < source.size:
                rest = slice(done, None)
                done += self._convert(source[rest], target[rest], start + done, counts)

    def _convert(self, source: Array, target: Array, start: int, counts: Array) -> int:
        """Do what the kernel does, and return how many elements that were."""
        done, low, high, missing = self.kernel(source, target, start, self.numbers, self.factors, self.zeros)
        if low or high or missing:
            counts[:3] += low, high, missing
        return done

    def explain_undefined(self, counts: Array) -> str:
        return self.general().explain_undefined(counts)


def plan_native(
    profile: str, rule: OperationRule, input_type: TensorType, operand: QuantizedOperand, form: Form
) -> NativePlan:
    """Plan a conversion for which `native_form` gives a form."""
    channels = operand.channels
    layout = channels.layout
    scales = rounded_scales(operand.scales, operand.expressed, rule)
    factors, corrections = scales, np.zeros_like(scales)
    if form.multiplied:
        factors = reciprocals(rule, operand, scales)
    elif form.bits < 32 and HAS_FMA and not channels.cycle:
        # The proof is for integers of 16 bits.
        points = np.array(operand.zero_points, np.float32)
        inverses, small = np.empty_like(scales), np.empty_like(scales)
        if reciprocals_agree(scales, points, form.before, form.away, inverses, small):
            form, factors, corrections = form._replace(multiplied=True), inverses, small
    exact = form._replace(exact=True)
    if form.multiplied and exact in QUANTIZE and not corrections.any():
        form = exact
    fused = rule.quotient is Quotient.FUSED
    window = WINDOW[form.bits]
    lowest, highest = -window, window
    if rule.overflow is Overflow.UNDEFINED or (form.bits == 32 and rule.overflow is Overflow.INDEFINITE):
        lowest, highest = operand.lowest, operand.highest
    integer = "<i8" if form.bits == 32 else "<i4"
    flushing = bool(scales.min() >= _SMALLEST_FLUSHED and scales.max() <= _LARGEST_FLUSHED)
    zero_points = np.array(operand.zero_points, np.int64)
    nans = stored_nans(rule, operand)
    rows = (factors, corrections, zero_points.astype(np.float32) * fused)
    laid_out = np.concatenate([channels.lay_out(each, "<f4") for each in rows])
    zeros = channels.lay_out(zero_points * (not fused), integer)
    zeros_and_nans = np.concatenate([zeros, channels.lay_out(nans, integer)])
    saturating = rule.overflow in (Overflow.SATURATE, Overflow.FLOAT_CLAMP) and rule.nan_result is not NanResult.ERROR
    numbers = {
        Field.PARAMETERS: zeros.size,
        # The kernel's way from f16 to f32 has subnormals in between.
        Field.FLUSHING: flushing and form.source != "f16",
        Field.SATURATING: saturating,
        Field.WORDS_SUFFICE: saturating and bool(np.all((nans >= operand.minimum) & (nans <= operand.maximum))),
        Field.MINIMUM: operand.minimum,
        Field.MAXIMUM: operand.maximum,
        Field.LOWEST: lowest,
        Field.HIGHEST: highest,
    }
    return NativePlan(
        **quantizing(profile, rule, input_type, operand),
        kernel=QUANTIZE[form].compiled(),
        numbers=np.array([*layout, *(int(numbers[field]) for field in Field)], np.int64),
        factors=laid_out,
        zeros=zeros_and_nans,
        general=DeferredPlan(
            # No native form draws at random, so that there is no seed.
            partial(plan_general, profile, rule, input_type, operand, 0),
            # It has as many rows of as wide numbers, less one.
            laid_out.nbytes + zeros_and_nans.nbytes,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloatPlan(Plan):
    """Plan of `requant.convert.float_encoding`."""

    encoder: Encoder
    layout: Array
    factors: Array

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        self.encoder.encode_scaled(source, target, start, counts, self.layout, self.factors)

    def explain_undefined(self, counts: Array) -> str:
        return "this element is NaN"


def plan_small_float(
    profile: str, rule: OperationRule, encoder: Encoder, input_type: TensorType, operand: QuantizedOperand
) -> SmallFloatPlan:
    """Plan x -> cast(x / s)."""
    scales = rounded_scales(operand.scales, operand.expressed, rule)
    divides = rule.quotient is Quotient.DIVISION
    with np.errstate(over="ignore"):
        factors = scales if divides else np.float32(1.0) / scales
    channels, expressed = operand.channels, operand.expressed.name
    return SmallFloatPlan(
        **quantizing(profile, rule, input_type, operand),
        encoder=encoder.scaling(expressed, divides, step_precision(rule.steps, expressed), rule.float_zero_point),
        layout=channels.layout,
        factors=channels.lay_out(factors, "<f4"),
    )


# Runs to a piece: enough that a piece costs nothing, few enough that what is kept of them stays in the cache.
_RUNS = 1 << 15
# In runs shorter than this it is cheaper to look at every element than to gather the boundary nibbles.
_SHORT_RUN = 512
# A quotient below this does not become 2^31 when it is rounded to f32.
_SURELY_WITHIN = np.float32(2.0**30)
_BEYOND_INT32 = np.float32(2.0**31)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of `length` elements of one scale. The last one of each `period` may be shorter."""

    length: int
    period: int

    @classmethod
    def of(cls, operand: QuantizedOperand) -> Runs:
        """Return the runs of a tensor that is not empty."""
        shape = static_shape(operand.tensor)
        pairs = zip(shape, operand.blocks, strict=True)
        axis = max((axis for axis, (size, block) in enumerate(pairs) if block < size), default=None)
        if axis is None:
            return cls(operand.elements, operand.elements)
        inner = prod(shape[axis + 1 :])
        return cls(operand.blocks[axis] * inner, shape[axis] * inner)

    @property
    def split_bytes(self) -> bool:
        """Whether a run begins or ends in the middle of a byte."""
        return self.length % 2 == 1 or self.period % 2 == 1

    def boundary_nibbles(self, start: int, stop: int) -> Array:
        """Return which elements from `start` to `stop` share their byte with none of their own run."""
        count = -(-self.period // self.length)
        first, last = (place // self.period * count + place % self.period // self.length for place in (start, stop))
        period, run = np.divmod(np.arange(first, last + 1), count)
        begins = period * self.period + run * self.length
        odd = begins[begins % 2 == 1]
        places = np.concatenate([odd - 1, odd])
        return places[(places >= start) & (places < stop)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBytesPlan(Plan):
    """4-bit elements as onnxruntime stores them, two to a byte, where runs of one scale begin or end within a byte.

    onnxruntime converts whole bytes in vectors, which saturate. A boundary nibble, which begins a run in the middle of
    a byte or ends one there, is converted alone: it goes to int32 as x86 converts, so that NaN and everything beyond
    int32 is -2^31; the zero point is added, and the sum clamped. Both give the same wherever x / s is within int32. So
    `whole` converts every element; then boundary nibbles are converted again, if any is out of the fast path's range.

    `scales`, `indefinite` (what -2^31 plus the zero point is clamped to) and `negative` (whether that sum wraps) have
    an entry for each parameter, laid out as runs. Where all |x| are below `reach`, no x / s is beyond int32. With
    `keeps_nan` what NaN becomes is left to `whole`.
    """

    whole: Plan
    runs: Runs
    layout: tuple[int, int, int, int]
    scales: Array
    indefinite: Array
    negative: Array
    reach: np.float32
    keeps_nan: bool
    element: FloatElement

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        length = self.runs.length * _RUNS
        for begin in range(0, source.size, length):
            piece = slice(begin, begin + length)
            before = counts[:3].tolist()
            self.whole.step(source[piece], target[piece], start + begin, counts)
            # What is beyond int32 is beyond 4 bits, and has been counted.
            if counts[:3].tolist() != before:
                self._convert_boundary_nibbles(source[piece], target[piece], start + begin, counts)

    def _convert_boundary_nibbles(self, source: Array, target: Array, start: int, counts: Array) -> None:
        reals = widen(source, self.element)
        short = self.runs.length < _SHORT_RUN
        if short and -self.reach < reals.min() and reals.max() < self.reach:
            return
        places = self.runs.boundary_nibbles(start, start + source.size)
        run, channels, group, groups = self.layout
        parameter = places // group % groups * channels + places // run % channels
        with np.errstate(all="ignore"):
            quotient = reals[places - start] / self.scales[parameter]
        is_nan = np.isnan(quotient)
        # -2^31 itself fits int32, but its sum with a negative zero point wraps too.
        number = ~is_nan & ~((quotient > -_BEYOND_INT32) & (quotient < _BEYOND_INT32))
        far = number if self.keeps_nan else number | is_nan
        target[places[far] - start] = self.indefinite[parameter[far]]
        was_high, is_high = quotient[number] > 0, self.negative[parameter[number]]
        moved = int(np.count_nonzero(is_high)) - int(np.count_nonzero(was_high))
        counts[0] -= moved
        counts[1] += moved

    def explain_undefined(self, counts: Array) -> str:
        return self.whole.explain_undefined(counts)


def plan_split_bytes(whole: Plan, rule: OperationRule, operand: QuantizedOperand, *, keeps_nan: bool) -> Plan:
    """Return a plan around `whole`, for a tensor in which a byte is split between runs of at least two elements."""
    channels = operand.channels.as_runs()
    zero_points = np.array(operand.zero_points, np.int64)
    indefinite = stored_nans(replace(rule, nan_result=NanResult.INDEFINITE), operand)
    scales = rounded_scales(operand.scales, operand.expressed, rule)
    with np.errstate(over="ignore"):
        reach = scales.min() * _SURELY_WITHIN
    return SplitBytesPlan(
        **shared_plan_fields(whole),
        whole=whole,
        runs=Runs.of(operand),
        layout=channels.scalars,
        scales=channels.lay_out(scales, "<f4"),
        indefinite=channels.lay_out(indefinite, operand.dtype.str),
        negative=channels.lay_out(zero_points < 0, "|b1"),
        reach=reach,
        keeps_nan=keeps_nan,
        element=float_element(whole.input_type, "input"),
    )
