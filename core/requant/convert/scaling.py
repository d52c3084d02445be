"""Plans of the requantization kernels: stored integers scaled by multipliers and shifts, or by real factors.

A plan proves from the bounds of the storage and the multipliers, where it can, that no element fails a requirement of
the scheme, and that the fast kernel's arithmetic is exact. Where it cannot, the elements are checked one by one
(`requant.kernels.convert.requantize.general`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import ParameterError, UnsupportedError
from requant.kernels.convert.requantize import fixed_point, real_factor
from requant.kernels.convert.requantize.general import REQUANTIZE_ANY, REQUANTIZE_FLOAT_ANY, Field
from requant.kernels.convert.requantize.rules import FixedPointRule, FloatRule, Requirement
from requant.kernels.jit.jit import Kernel
from requant.kernels.simd.integer_lanes import Storage, storage_of
from requant.plan.channels import Channels, block_counts, channels_of, whole_blocks
from requant.plan.operands import StoredOperand
from requant.plan.plan import Array, requantizing
from requant.plan.table import TablePlan, table_for
from requant.schemes import FixedPoint, Float, Multiplier, Scheme, Sum
from requant.schemes.scheme import INT32, INT32_MAX

# Two sides of different granularity have as many parameters as both together tell apart.
_MAX_PARAMETERS = 65_536


@dataclass(frozen=True, slots=True)
class Granularity:
    """The coarsest blocks that lie within one block of every side. `indices[k]` has the parameter of side k for each.

    `blocks` is their size along each dimension, `count` their number; they are in row-major order.
    """

    channels: Channels
    blocks: tuple[int, ...]
    count: int
    indices: tuple[NDArray[np.int64], ...]


def _index(shape: Sequence[int], blocks: Sequence[int], side: Sequence[int]) -> NDArray[np.int64]:
    """Return, for each block, the row-major index of the block of `side` that it lies in."""
    rank = len(shape)
    of_side = block_counts(shape, side)
    index: NDArray[Any] = np.zeros((1,) * rank, np.int64)
    for axis, count in enumerate(block_counts(shape, blocks)):
        along = np.arange(count) * blocks[axis] // side[axis] * prod(of_side[axis + 1 :])
        index = index + along.reshape([-1 if i == axis else 1 for i in range(rank)])
    return index.ravel()


def common_granularity(shape: Sequence[int], *sides: tuple[Sequence[int], int]) -> Granularity:
    """Combine sides, each as the size of its blocks along each dimension and the number of its parameters.

    Raise UnsupportedError if that makes more parameters than any side has, and more than 65536.
    """
    most = max(count for _, count in sides)
    if 0 in shape:
        # No element has a parameter; the multipliers are derived and told all the same.
        indices = tuple(np.arange(most) % count for _, count in sides)
        return Granularity(Channels(1, 1, 1), whole_blocks(shape), most, indices)
    blocks = tuple(gcd(*sizes) for sizes in zip(*(blocks for blocks, _ in sides), strict=True))
    count = prod(block_counts(shape, blocks))
    if count > max(most, _MAX_PARAMETERS):
        raise UnsupportedError(
            f"the granularities of input and output make {count} parameters together; at most {_MAX_PARAMETERS} are "
            "computed with"
        )
    indices = tuple(_index(shape, blocks, side) for side, _ in sides)
    return Granularity(channels_of(shape, blocks), blocks, count, indices)


_LARGEST_WORD_ADDED = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A kernel and what it is called with: the layout and then choices, parameters, and perhaps bounds.

    `parameters` have one entry for each block of the common granularity. A kernel with `bounds` takes each array of
    these on its own. The fast ones take as few arrays as can be, for each takes as long as the arithmetic of some
    hundred elements: layout and choices as one, and the parameters, row after row, as one.
    """

    kernel: Kernel
    choices: Array
    parameters: tuple[Array, ...]
    bounds: Array | None = None

    def arguments(self, channels: Channels) -> tuple[Array, ...]:
        """Return the arguments, with the parameters laid out for the kernel."""
        rows = [channels.lay_out(each, each.dtype.str) for each in self.parameters]
        if self.bounds is None:
            return np.concatenate([channels.layout, self.choices]), np.concatenate(rows)
        return channels.layout, self.choices, *rows, self.bounds


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides, and their zero points as arrays with one entry for each block of the common granularity."""

    source: StoredOperand
    target: StoredOperand
    zeros_in: Array
    zeros_out: Array

    def within(self, widths: Array) -> bool:
        """Whether -2^width <= q - z_in < 2^width for every q, where `in_int32`."""
        bounds = np.int64(1) << widths
        lowest, highest = self.source.lowest - self.zeros_in, self.source.highest - self.zeros_in
        return bool(np.all((lowest >= -bounds) & (highest < bounds)))

    @property
    def reach(self) -> Array:
        """The largest |q - z_in| for each block, where `in_int32`."""
        ends = (abs(end - self.zeros_in) for end in (self.source.lowest, self.source.highest))
        reach: Array = np.maximum(*ends)
        return reach

    @property
    def in_int32(self) -> bool:
        """Whether int32 holds every source and every zero point."""
        zeros = (self.zeros_in, self.zeros_out)
        fits = self.source.dtype.itemsize < 8 and self.source.storage != "u32"
        return fits and all(int(abs(each).max()) < 1 << 31 for each in zeros)

    @property
    def elements(self) -> tuple[Storage, int]:
        """What the source is stored in, and the bytes of an element of the target."""
        return storage_of(self.source.dtype), self.target.dtype.itemsize

    def in_words(self, added: Array) -> bool:
        """Whether sums are made in 16 bits: the target has bytes, and what is added fits 14 bits and a sign."""
        return self.target.dtype.itemsize == 1 and int(np.abs(added).max()) < _LARGEST_WORD_ADDED

    def rules(self, rule: int, *, wraps: bool = False) -> Array:
        """Return the rules of the kernels in `requant.kernels.convert.requantize.general`."""
        storage, target_bytes = self.elements
        rules = {
            Field.RULE: rule,
            Field.SOURCE: storage,
            Field.TARGET_BYTES: target_bytes,
            Field.WRAPS: wraps,
        }
        return np.array([int(rules[field]) for field in Field], np.int64)


# Bounds that no sum of a product in int64 and a zero point of 33 bits passes.
_ANY_INT64 = (-(1 << 63), (1 << 63) - 1)
# |y| is below its f64 estimate times this, plus what two roundings add.
_ESTIMATE, _ROUNDINGS = 1 + 1e-6, 2.0
_TWICE = (FixedPointRule.DOUBLE, FixedPointRule.DOUBLE_UP, FixedPointRule.TOSA_DOUBLE)
"""The rules with 2^30 before the last rounding."""
_NUDGED = (FixedPointRule.DOUBLE, FixedPointRule.TOSA_DOUBLE)
_GENERAL = (FixedPointRule.NEAREST_EVEN, FixedPointRule.FLOOR, FixedPointRule.ODD)
"""The rules that the fast kernel does not have."""


def _fixed_point_is_defined(stage: FixedPoint, factors: Array, shifts: Array, widths: Array, sides: Sides) -> bool:
    """Whether every source meets the scheme's demands, and every factor, difference and sum fits int32."""
    if not sides.in_int32 or int(factors.min()) < 0 or int(factors.max()) > INT32_MAX:
        return False
    scaled = np.ldexp(sides.reach * factors.astype(np.float64) * _ESTIMATE, -shifts) + _ROUNDINGS
    defined = sides.within(np.minimum(widths, 31)) and bool(np.all(scaled + np.abs(sides.zeros_out) < INT32_MAX))
    if stage.scaled is not None:
        defined &= bool(np.all(scaled < min(-stage.scaled[0], stage.scaled[1])))
    return defined


def sum_rule(stage: FixedPoint | Float, target: StoredOperand) -> Sum:
    """Return what becomes of sums that do not fit int32. No system has unsigned 32-bit targets to say it for them."""
    return Sum.EXACT if target.storage == "u32" else stage.total


def _fast_fixed_point(stage: FixedPoint, factors: Array, shifts: Array, sides: Sides) -> Application | None:
    """Return the fast kernel, or None where it has no such rule or its arithmetic is not proved to be exact."""
    if stage.rule in _GENERAL:
        return None
    twice = stage.rule in _TWICE
    if not twice:
        # With one rounding only the quotient counts; a short multiplier leaves room for a longer shift.
        room = 31 - np.frexp(factors.astype(np.float64))[1]
        longer = np.minimum(np.maximum(32 - shifts, 0), room)
        factors, shifts = factors << longer, shifts + longer
    # A half of a bit below the upper half of the product is the same for all parameters.
    fewest = 31 if twice or int(shifts.max()) <= 31 else 32
    lefts = np.maximum(fewest - shifts, 0)
    if int(lefts.max()) > 31 or not sides.within(31 - lefts):
        return None
    rights = shifts + lefts - 31
    halves = (np.int64(1) << rights) >> 1
    if np.any((((sides.reach << lefts) * factors) >> 31) + halves + 2 > INT32_MAX):
        return None
    nudges = (rights > 0) if stage.rule in _NUDGED else np.zeros_like(rights)
    rows = {
        fixed_point.Parameter.MULTIPLIER: 2 * factors,
        fixed_point.Parameter.HALF: halves,
        fixed_point.Parameter.NEGATIVE: 2 * factors + nudges,
        fixed_point.Parameter.LEFT: lefts,
        fixed_point.Parameter.RIGHT: rights,
        fixed_point.Parameter.ZERO_IN: sides.zeros_in,
        fixed_point.Parameter.ZERO_OUT: sides.zeros_out,
    }
    storage, target_bytes = sides.elements
    choices = {
        fixed_point.Choice.SOURCE: storage,
        fixed_point.Choice.TARGET_BYTES: target_bytes,
        fixed_point.Choice.AWAY: stage.rule is FixedPointRule.NEAREST_AWAY,
        fixed_point.Choice.FIRST: 1 << 31 if fewest == 31 else 0,
        fixed_point.Choice.PLAIN: not (lefts.any() or sides.zeros_in.any()),
        fixed_point.Choice.MINIMUM: sides.target.minimum,
        fixed_point.Choice.MAXIMUM: sides.target.maximum,
        fixed_point.Choice.WORDS: sides.in_words(sides.zeros_out),
    }
    return Application(
        kernel=fixed_point.requantize_by_multiplier,
        # Numbers of 32 bits without a sign keep their bits.
        parameters=tuple(rows[row].astype(np.uint32).view(np.int32) for row in fixed_point.Parameter),
        choices=np.array([int(choices[choice]) for choice in fixed_point.Choice], np.int64),
    )


def apply_fixed_point(stage: FixedPoint, multipliers: Sequence[Multiplier], sides: Sides) -> Application:
    """Return the kernel of a stage for these multipliers: one, or one for each block of the common granularity."""
    # From a generator: numpy's own way through a list of many would let no other thread run.
    numbers = (number for p in map(stage.prepare, multipliers) for number in (p.multiplier, p.shift, p.width))
    prepared = np.fromiter(numbers, np.int64, 3 * len(multipliers)).reshape(-1, 3)
    factors, shifts, widths = (np.broadcast_to(column, sides.zeros_in.shape) for column in prepared.T)
    if sides.target.storage != "u32" and _fixed_point_is_defined(stage, factors, shifts, widths, sides):
        fast = _fast_fixed_point(stage, factors, shifts, sides)
        if fast is not None:
            return fast
    total = sum_rule(stage, sides.target)
    sums = INT32 if total is Sum.ERROR else _ANY_INT64
    bounds = np.array([sides.target.minimum, sides.target.maximum, *(stage.scaled or _ANY_INT64), *sums], np.int64)
    return Application(
        kernel=REQUANTIZE_ANY,
        parameters=(factors, shifts, widths, sides.zeros_in, sides.zeros_out),
        choices=sides.rules(int(stage.rule), wraps=total is Sum.WRAPS),
        bounds=bounds,
    )


_ANY_FLOAT = (-float("inf"), float("inf"))
_IN_F32 = (FloatRule.F32_EVEN, FloatRule.F32_OFFSET)
# What the kernel of f32 takes.
_LARGEST_ZERO_POINT = 1 << 22
_WIDEST_TARGET = 2


def _offsets(rule: FloatRule, exact: Array, sides: Sides) -> tuple[Array, Array, Array]:
    """Return offsets and the zero points that are left to subtract and to add."""
    none = np.zeros(sides.zeros_in.shape, np.int64)
    if rule is FloatRule.F32_OFFSET:
        with np.errstate(all="ignore"):
            offsets = (sides.zeros_out - sides.zeros_in * exact).astype(np.float32)
        if not np.all(np.isfinite(offsets)):
            raise ParameterError("the merged zero point, z_out - z_in * factor, is larger than the largest f32")
        return offsets.astype(np.float64), none, none
    if rule is FloatRule.F64_EVEN_OFFSET:
        return sides.zeros_out.astype(np.float64), sides.zeros_in, none
    return none.astype(np.float64), sides.zeros_in, sides.zeros_out


def _bounds(rule: FloatRule, sides: Sides) -> tuple[float, float]:
    """Return the storage bounds; for F32_OFFSET as f32 has them, within what the storage holds."""
    target = sides.target
    if rule is not FloatRule.F32_OFFSET:
        return float(target.minimum), float(target.maximum)
    lowest, highest = (float(np.float32(bound)) for bound in (target.minimum, target.maximum))
    return max(lowest, float(target.lowest)), min(highest, float(target.highest))


def _float_is_defined(
    stage: Float, factors: Array, widths: Array, zeros_in: Array, zeros_out: Array, sides: Sides
) -> bool:
    """Whether every source meets the scheme's demands, and every number that a kernel takes fits it."""
    defined = sides.in_int32 and sides.target.storage != "u32" and sides.within(np.minimum(widths, 31))
    for limit, added in ((stage.scaled, 0), (None if stage.total is Sum.EXACT else INT32, np.abs(zeros_out))):
        if defined and limit is not None:
            with np.errstate(over="ignore"):
                reached = sides.reach * np.abs(factors) * _ESTIMATE + _ROUNDINGS + added
            defined = bool(np.all(reached < min(-limit[0], limit[1])))
    if defined and stage.rule in _IN_F32:
        defined = sides.target.dtype.itemsize <= _WIDEST_TARGET and all(
            int(np.abs(zeros).max()) <= _LARGEST_ZERO_POINT for zeros in (zeros_in, zeros_out)
        )
    return defined


def _fast_float(
    stage: Float, parameters: Mapping[real_factor.Parameter, Array], bounds: tuple[float, float], sides: Sides
) -> Application:
    """Return the fast kernel."""
    storage, target_bytes = sides.elements
    choices = {
        real_factor.Choice.SOURCE: storage,
        real_factor.Choice.TARGET_BYTES: target_bytes,
        real_factor.Choice.AWAY: stage.rule is FloatRule.F64_AWAY,
        real_factor.Choice.MINIMUM: bounds[0],
        real_factor.Choice.MAXIMUM: bounds[1],
        real_factor.Choice.WORDS: sides.in_words(parameters[real_factor.Parameter.ZERO_OUT]),
    }
    in_f32 = stage.rule in _IN_F32
    number = np.float32 if in_f32 else np.float64
    return Application(
        kernel=real_factor.REQUANTIZE_F32 if in_f32 else real_factor.REQUANTIZE_F64,
        parameters=tuple(parameters[row].astype(number) for row in real_factor.Parameter),
        choices=np.array([int(choices[choice]) for choice in real_factor.Choice], np.int64),
    )


def apply_float(stage: Float, multipliers: Sequence[Multiplier], exact: Sequence[float], sides: Sides) -> Application:
    """Return the kernel of a stage for these multipliers: one, or one for each block of the common granularity.

    `exact` are the factors before they became multipliers.
    """
    shape = sides.zeros_in.shape
    prepared = [stage.prepare(each) for each in multipliers]
    factors = np.broadcast_to(np.array([each.factor for each in prepared], np.float64), shape)
    widths = np.broadcast_to(np.array([each.width for each in prepared], np.int64), shape)
    exact_factors = np.broadcast_to(np.array(exact, np.float64), shape)
    offsets, zeros_in, zeros_out = _offsets(stage.rule, exact_factors, sides)
    bounds = _bounds(stage.rule, sides)
    if _float_is_defined(stage, factors, widths, zeros_in, zeros_out, sides):
        parameters = {
            real_factor.Parameter.FACTOR: factors,
            real_factor.Parameter.OFFSET: offsets,
            real_factor.Parameter.ZERO_IN: zeros_in,
            real_factor.Parameter.ZERO_OUT: zeros_out,
        }
        return _fast_float(stage, parameters, bounds, sides)
    total = sum_rule(stage, sides.target)
    sums = INT32 if total is Sum.ERROR else _ANY_FLOAT
    limits = np.array([*bounds, *(stage.scaled or _ANY_FLOAT), *sums], np.float64)
    return Application(
        kernel=REQUANTIZE_FLOAT_ANY,
        parameters=(factors, offsets, widths, zeros_in, zeros_out),
        choices=sides.rules(int(stage.rule), wraps=total is Sum.WRAPS),
        bounds=limits,
    )


_NO_COUNTS = np.array([0, 0, 0, -1, -1], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan(TablePlan):
    """Plan of `requant.kernels.convert.requantize.fixed_point`, `requant.kernels.convert.requantize.real_factor` and
    `requant.kernels.convert.requantize.general`.

    `multipliers` are one, or one for each block of `granularity`, which the zero points of `sides` have one for.
    """

    scheme: Scheme
    granularity: Granularity
    sides: Sides
    kernel: Callable[..., None]
    arguments: tuple[Array, ...]

    def new_counts(self) -> Array:
        """See Plan.new_counts. The last of these is the requirement that the first undefined element fails."""
        return _NO_COUNTS.copy()

    def compute(self, source: Array, target: Array, start: int, counts: Array) -> None:
        # A view of a small tensor takes as long as its arithmetic, and to the kernel bytes of any type are bytes.
        as_bytes = source if source.itemsize == 1 else source.view(np.uint8)
        into = target if target.itemsize == 1 else target.view(np.uint8)
        self.kernel(as_bytes, into, start, source.size, *self.arguments, counts)

    def explain_undefined(self, counts: Array) -> str:
        demand = self.scheme.stage.demands[Requirement(int(counts[4]))]
        return f"profile {self.profile}, scheme {self.scheme.name}, is not defined for this element: {demand}"


def plan_scaling(
    scheme: Scheme,
    source: StoredOperand,
    target: StoredOperand,
    granularity: Granularity,
    multipliers: Sequence[Multiplier],
    *,
    profile: str,
    exact: Sequence[float] | None = None,
) -> ScalingPlan:
    """Plan q -> q' by multipliers: one, or one for each block of `granularity`.

    The first two sides of the granularity are source and target.
    `exact` are the factors that the multipliers were derived from, which has checked them; default: what they
    represent. Raise ParameterError, pointing into `multipliers`, for one that is outside what the scheme is defined
    for.
    """
    for index, each in enumerate(multipliers if exact is None else ()):
        try:
            scheme.check(each)
        except ParameterError as error:
            raise ParameterError(error.detail, pointer=f"/multipliers/{index}{error.pointer}") from None
    of_source, of_target = granularity.indices[:2]
    sides = Sides(
        source,
        target,
        np.array(source.zero_points, np.int64)[of_source],
        np.array(target.zero_points, np.int64)[of_target],
    )
    stage = scheme.stage
    if isinstance(stage, FixedPoint):
        application = apply_fixed_point(stage, multipliers, sides)
    else:
        factors = [float(scheme.represented(each)) for each in multipliers] if exact is None else exact
        application = apply_float(stage, multipliers, factors, sides)
    return _plan(scheme, sides, granularity, multipliers, application, profile)


def _plan(
    scheme: Scheme,
    sides: Sides,
    granularity: Granularity,
    multipliers: Sequence[Multiplier],
    application: Application,
    profile: str,
) -> ScalingPlan:
    source, target, channels = sides.source, sides.target, granularity.channels
    return ScalingPlan(
        **requantizing(profile, scheme.rounding, source, target),
        multipliers=tuple(multipliers),
        scheme=scheme,
        granularity=granularity,
        sides=sides,
        kernel=application.kernel.compiled(),
        arguments=application.arguments(channels),
        table=table_for(source.dtype, target.dtype, granularity.count),
    )
